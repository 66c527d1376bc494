"""The retry topic of v1 of what G pops from `topic` is named like that of the group `G_topic`."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers import (
    ConsumerSendMsgBackRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
)
from tests.broker.conftest import Client, Connect, StartBroker, fill
from tests.broker.pop.consuming import PopClient, Popped, passes
from tests.fake_time import FakeTime

NOTHING_TO_PEEK, NO_PERMISSION, SYSTEM_ERROR = 19, 16, 1


@pytest.fixture
def joined(topic: str) -> str:
    return f"%RETRY%G_{topic}"


def make_group(broker: Broker, topic: str) -> None:
    broker.tables.groups.update([SubscriptionGroupConfig(group_name=f"G_{topic}")])


def written(broker: Broker, topic: str) -> int:
    return broker.store.max_offset(topic, 0)


async def has_message(client: Client, topic: str, poll_time: int = 0) -> bool:
    header = NotificationRequestHeader(
        consumer_group="G", topic=topic, queue_id=-1, poll_time=poll_time
    )
    answer = await client.request(RequestCode.NOTIFICATION, header)
    assert answer.code == 0
    return NotificationResponseHeader.from_ext(answer.ext_fields).has_msg


async def peeks(client: Client, topic: str) -> int:
    header = PeekMessageRequestHeader(consumer_group="G", topic=topic, queue_id=-1, max_msg_nums=32)
    return (await client.request(RequestCode.PEEK_MESSAGE, header)).code


async def until(condition: Callable[[], object]) -> None:
    """Let the broker work until it is so; pytest's limit of time ends what never is."""
    for _ in itertools.count():
        if condition():
            return
        await asyncio.sleep(0)


async def given_back(pops: PopClient, time: FakeTime) -> None:
    """A message that G popped from the topic, and that is to be redelivered at once."""
    await fill(pops.client, pops.topic, "")
    (message,) = await pops.pop()
    await pops.change(message, 0)
    await passes(time, 1)


@pytest.mark.parametrize("v2", [False, True])
async def test_the_group_of_that_name_has_its_retries_to_itself(
    pops: PopClient, broker: Broker, time: FakeTime, topic: str, joined: str, v2: bool
) -> None:
    broker.config.enable_retry_topic_v2 = v2
    make_group(broker, topic)
    assert (await pops.client.send(joined, b"failed in the other group")).code == 0
    await fill(pops.client, topic, "")
    (message,) = await pops.pop()
    assert await pops.pop() == []
    assert await peeks(pops.client, topic) == NOTHING_TO_PEEK
    assert not await has_message(pops.client, topic)

    await pops.change(message, 0)
    await passes(time, 1)
    assert written(broker, joined) == 1
    assert written(broker, f"%RETRY%G+{topic}") == 1
    assert await peeks(pops.client, topic) == 0
    assert await has_message(pops.client, topic)
    (back,) = await pops.pop()
    assert (back.body, back.record.topic, back.record.reconsume_times) == (b"m0", topic, 1)
    await passes(time, 61_000)  # a retry of the retry
    (again,) = await pops.pop()
    assert (again.body, again.record.reconsume_times) == (b"m0", 2)
    assert (await pops.ack(again)).code == 0
    await passes(time, 120_000)
    assert await pops.pop() == []
    theirs = await pops.client.pulled(joined, consumer_group=f"G_{topic}")
    assert [record.body for record in theirs] == [b"failed in the other group"]


async def test_without_such_a_group_the_name_of_v1_is_used(
    pops: PopClient, broker: Broker, time: FakeTime, topic: str, joined: str
) -> None:
    await given_back(pops, time)
    assert (written(broker, joined), written(broker, f"%RETRY%G+{topic}")) == (1, 0)
    assert not broker.tables.groups.known(f"G_{topic}")
    assert await peeks(pops.client, topic) == 0
    assert await has_message(pops.client, topic)
    (back,) = await pops.pop()
    assert (await pops.ack(back)).code == 0


async def test_a_waiting_pop_gets_its_own_retries_only(
    pops: PopClient, others: PopClient, broker: Broker, time: FakeTime, topic: str, joined: str
) -> None:
    make_group(broker, topic)
    await fill(pops.client, topic, "")
    (message,) = await pops.pop()
    waiting = asyncio.ensure_future(others.pop(poll_time=15_000))
    await until(lambda: len(broker.components.pops.polling) == 1)
    assert (await pops.client.send(joined, b"failed in the other group")).code == 0
    await passes(time, 1)
    await pops.change(message, 0)
    await passes(time, 1)
    assert [found.body for found in await waiting] == [b"m0"]


async def test_a_waiting_notification_is_about_its_own_retries_only(
    pops: PopClient, others: PopClient, broker: Broker, time: FakeTime, topic: str, joined: str
) -> None:
    make_group(broker, topic)
    await fill(pops.client, topic, "")
    (message,) = await pops.pop()
    waiting = asyncio.ensure_future(has_message(others.client, topic, 15_000))
    await until(lambda: len(broker.components.notifications.polling) == 1)
    assert (await pops.client.send(joined)).code == 0
    await passes(time, 1)
    assert not await has_message(others.client, topic)  # so an answer to the other would be here
    assert not waiting.done()
    await pops.change(message, 0)
    await passes(time, 1)
    assert await waiting


async def popped_before(
    pops: PopClient, broker: Broker, time: FakeTime, topic: str, joined: str
) -> Popped:
    """A retry that G popped from the joined name before there was the group of that name."""
    await given_back(pops, time)
    (message,) = await pops.pop()
    assert message.handle.stored_topic(topic, "G") == joined
    make_group(broker, topic)
    return message


async def test_a_retry_popped_before_can_be_acknowledged(
    pops: PopClient, broker: Broker, time: FakeTime, topic: str, joined: str
) -> None:
    message = await popped_before(pops, broker, time, topic, joined)
    assert (await pops.ack(message)).code == 0
    await passes(time, 120_000)
    assert await pops.pop() == []


async def test_a_retry_popped_before_is_redelivered_in_the_topic_of_v2(
    pops: PopClient, broker: Broker, time: FakeTime, topic: str, joined: str
) -> None:
    await popped_before(pops, broker, time, topic, joined)
    await passes(time, 61_000)
    assert (written(broker, joined), written(broker, f"%RETRY%G+{topic}")) == (1, 1)
    (back,) = await pops.pop()
    assert (back.body, back.record.topic, back.record.reconsume_times) == (b"m0", topic, 2)


async def test_a_made_up_handle_does_not_get_a_retry_of_the_other_group(
    pops: PopClient, broker: Broker, time: FakeTime, topic: str, joined: str
) -> None:
    message = await popped_before(pops, broker, time, topic, joined)
    assert (await pops.client.send(joined, b"failed in the other group")).code == 0
    forged = message._replace(handle=message.handle._replace(queue_offset=1))
    assert (await pops.ask_change(forged, 0)).code == NO_PERMISSION
    theirs = (await pops.client.pulled(joined, 1, consumer_group=f"G_{topic}"))[0]
    back = ConsumerSendMsgBackRequestHeader(
        offset=theirs.physical_offset, group="G", delay_level=-1
    )
    code = RequestCode.CONSUMER_SEND_MSG_BACK
    assert (await pops.client.request(code, back)).code == SYSTEM_ERROR
    await passes(time, 1)
    assert written(broker, f"%RETRY%G+{topic}") == written(broker, "%DLQ%G") == 0
    assert written(broker, joined) == 2
    back.group = f"G_{topic}"  # which may
    assert (await pops.client.request(code, back)).code == 0


async def test_what_is_in_the_topic_of_v2_is_popped_when_the_other_group_is_gone(
    pops: PopClient, broker: Broker, time: FakeTime, topic: str
) -> None:
    make_group(broker, topic)
    await given_back(pops, time)
    header = DeleteSubscriptionGroupRequestHeader(group_name=f"G_{topic}")
    assert (await pops.client.request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)).code == 0
    assert [message.body for message in await pops.pop()] == [b"m0"]


async def test_deleting_the_topic_leaves_the_retries_of_the_other_group(
    pops: PopClient, broker: Broker, time: FakeTime, topic: str, joined: str
) -> None:
    message = await popped_before(pops, broker, time, topic, joined)
    assert (await pops.ack(message)).code == 0
    await passes(time, 20_000)
    assert (await pops.client.send(joined)).code == 0
    header = DeleteTopicRequestHeader(topic=topic)
    assert (await pops.client.request(RequestCode.DELETE_TOPIC_IN_BROKER, header)).code == 0
    assert written(broker, joined) == 2
    assert broker.tables.topics.get(joined) is not None


@pytest.fixture
def second(pops: PopClient, topic: str) -> PopClient:
    """What G_a pops from `topic` would return to where what G pops from `a_topic` does."""
    return PopClient(pops.client, topic, "G_a")


@pytest.fixture
def first(pops: PopClient, topic: str) -> PopClient:
    return PopClient(pops.client, f"a_{topic}", "G")


async def failed(pops: PopClient, time: FakeTime, body: bytes) -> None:
    assert (await pops.client.send(pops.topic, body, queue_id=0)).code == 0
    (message,) = await pops.pop()
    await pops.change(message, 0)
    await passes(time, 1)


async def bodies(pops: PopClient) -> list[bytes]:
    return [message.body for message in await pops.pop()]


async def test_of_two_groups_that_pop_the_first_has_the_joined_name(
    first: PopClient, second: PopClient, broker: Broker, time: FakeTime, topic: str
) -> None:
    await failed(first, time, b"of the first")
    await failed(second, time, b"of the second")
    assert written(broker, f"%RETRY%G_a_{topic}") == written(broker, f"%RETRY%G_a+{topic}") == 1
    assert await bodies(second) == [b"of the second"]
    assert await bodies(first) == [b"of the first"]
    await passes(time, 61_000)  # neither acknowledged it
    assert await bodies(first) == [b"of the first"]
    assert await bodies(second) == [b"of the second"]


async def test_who_has_the_joined_name_is_known_after_a_restart(
    start_broker: StartBroker,
    connect: Connect,
    first: PopClient,
    second: PopClient,
    broker: Broker,
    time: FakeTime,
) -> None:
    await failed(second, time, b"of the second")
    await broker.stop()
    broker = await start_broker(options={"clock": time.clock, "call_later": time.call_later})
    client = await connect(broker)
    first, second = (PopClient(client, pops.topic, pops.group) for pops in (first, second))
    await failed(first, time, b"of the first")
    assert written(broker, f"%RETRY%G+{first.topic}") == 1
    assert await bodies(first) == [b"of the first"]
    assert await bodies(second) == [b"of the second"]


async def test_deleting_a_topic_leaves_the_retries_of_whose_name_is_the_same(
    first: PopClient, second: PopClient, broker: Broker, time: FakeTime, topic: str
) -> None:
    await failed(first, time, b"of the first")
    await failed(second, time, b"of the second")
    await passes(time, 20_000)  # the second one has an offset in its topic
    header = DeleteTopicRequestHeader(topic=topic)
    assert (await second.client.request(RequestCode.DELETE_TOPIC_IN_BROKER, header)).code == 0
    assert broker.tables.topics.get(f"%RETRY%G_a+{topic}") is None
    assert await bodies(first) == [b"of the first"]


async def test_retries_that_both_have_read_so_far_are_still_read_by_both(
    first: PopClient, second: PopClient, broker: Broker, time: FakeTime, topic: str
) -> None:
    await failed(first, time, b"of one of them")
    broker.tables.offsets.commit("G_a", f"%RETRY%G_a_{topic}", 0, 0)
    await fill(second.client, topic, "")
    assert {*await bodies(second), *await bodies(second)} == {b"m0", b"of one of them"}
