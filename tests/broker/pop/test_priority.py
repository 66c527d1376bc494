"""The order of pops from a topic of priority messages."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Sized

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.message import properties as names
from pocketmq.message.record import iter_records
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers import (
    CreateTopicRequestHeader,
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
)
from tests.broker.conftest import Client, Connect, StartBroker
from tests.broker.pop.consuming import PopClient, passes
from tests.fake_time import FakeTime

QUEUES = 8
ASCENDING = [*range(QUEUES)]
DESCENDING = ASCENDING[::-1]
RETRIES_FIRST = {"pop_from_retry_probability_for_priority": 100}
SEPARATE = {"use_separate_retry_queue": True}


class Bench:
    """A broker with a topic of priority messages."""

    def __init__(self, broker: Broker, client: Client, time: FakeTime, topic: str) -> None:
        self.broker = broker
        self.client = client
        self.time = time
        self.topic = topic
        self.pops = PopClient(client, topic)

    async def create(self, kind: str) -> None:
        header = CreateTopicRequestHeader(
            topic=self.topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES,
            perm=6, default_topic="TBW102", topic_filter_type="SINGLE_TAG",
            attributes=f"+message.type={kind}",
        )  # fmt: skip
        assert (await self.client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)).code == 0

    async def set_factor(self, factor: int) -> None:
        body = SubscriptionGroupConfig(
            group_name="G", attributes={"+priority.factor": str(factor)}
        ).encode()
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert (await self.client.request(code, None, body)).code == 0

    async def send(self, *priorities: int) -> None:
        for priority in priorities:
            properties = {names.PRIORITY: str(priority)}
            answer = await self.client.send(self.topic, b"%d" % priority, properties=properties)
            assert answer.code == 0, answer.remark

    async def popped(self, count: int) -> list[int]:
        """The priorities of so many messages, each popped alone."""
        found = []
        for _ in range(count):
            [message] = await self.pops.pop(max_msg_nums=1)
            found.append(int(message.body))
        return found


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def settings() -> dict[str, object]:
    return {}


@pytest.fixture
async def bench(
    start_broker: StartBroker,
    connect: Connect,
    time: FakeTime,
    topic: str,
    settings: dict[str, object],
) -> Bench:
    options = {"clock": time.clock, "call_later": time.call_later}
    broker = await start_broker(options=options, **settings)
    bench = Bench(broker, await connect(broker), time, topic)
    await bench.create("PRIORITY")
    return bench


async def test_urgent_messages_are_popped_first(bench: Bench) -> None:
    await bench.send(*ASCENDING, *ASCENDING)
    assert await bench.popped(16) == sorted(ASCENDING * 2, reverse=True)


async def test_one_pop_takes_the_urgent_messages_first(bench: Bench) -> None:
    await bench.send(*ASCENDING)
    assert [int(message.body) for message in await bench.pops.pop()] == DESCENDING


async def test_an_urgent_message_overtakes_those_that_wait(bench: Bench) -> None:
    await bench.send(0, 0, 0)
    assert await bench.popped(1) == [0]
    await bench.send(5)
    assert await bench.popped(3) == [5, 0, 0]


@pytest.mark.parametrize("settings", [{"priority_order_asc": False}])
async def test_the_first_queue_may_be_the_most_urgent(bench: Bench) -> None:
    await bench.send(*DESCENDING)
    assert await bench.popped(QUEUES) == ASCENDING


async def test_the_queue_that_a_pop_names(bench: Bench) -> None:
    await bench.send(*ASCENDING)
    [message] = await bench.pops.pop(queue_id=2)
    assert message.body == b"2"


async def test_a_group_without_priority_pops_all_queues_alike(bench: Bench) -> None:
    """One that begins at a random queue gets no more than half of its messages from the last."""
    await bench.set_factor(0)
    await bench.send(*ASCENDING * 50)
    found = Counter(await bench.popped(200))
    assert len(found) == QUEUES
    assert found[7] < 100


async def test_a_share_of_the_pops_by_priority(bench: Bench) -> None:
    await bench.set_factor(50)
    await bench.send(*ASCENDING * 200)
    found = Counter(await bench.popped(200))
    # About 112, of which half of the pops account for 100.
    assert 70 < found[7] < 160
    assert len(found) == QUEUES


async def test_no_level_starves_with_a_factor_below_a_hundred(bench: Bench) -> None:
    """Each begins an eighth of the pops that are not by priority."""
    await bench.set_factor(99)
    await bench.send(*ASCENDING)
    for number in range(20_000):
        if number % 100 == 0:
            await bench.send(*[7] * 100)
        [message] = await bench.pops.pop(max_msg_nums=1)
        if message.body == b"0":
            return
    raise AssertionError("the lowest level was never popped")


@pytest.mark.parametrize("kind", ["NORMAL", "LITE"])
async def test_other_topics_are_read_as_before(bench: Bench, kind: str) -> None:
    await bench.create(kind)
    await bench.send(*ASCENDING * 50)
    found = Counter(await bench.popped(200))
    assert len(found) == QUEUES
    assert found[7] < 100


async def test_the_most_urgent_queue_first_is_for_pops_without_order(bench: Bench) -> None:
    await bench.send(*ASCENDING * 5)
    first = set()
    for _ in range(60):
        [message] = await bench.pops.pop(max_msg_nums=1, order=True)
        first.add(message.body)
        assert (await bench.pops.ack(message)).code == 0
        await bench.send(int(message.body))
    assert len(first) > 2


async def with_a_retry(bench: Bench) -> None:
    """A message of priority 7 in the retry topic, and each of the others in its queue."""
    await bench.send(7)
    [message] = await bench.pops.pop(max_msg_nums=1, invisible_time=1_000)
    assert message.body == b"7"
    await passes(bench.time, 10_000)
    await bench.send(*ASCENDING[:-1])


async def test_retries_are_popped_last(bench: Bench) -> None:
    await with_a_retry(bench)
    assert await bench.popped(QUEUES) == [*DESCENDING[1:], 7]


@pytest.mark.parametrize("settings", [RETRIES_FIRST])
async def test_retries_may_be_popped_first(bench: Bench) -> None:
    await with_a_retry(bench)
    assert await bench.popped(QUEUES) == DESCENDING


async def waits(polling: Sized) -> None:
    """Until a request waits; pytest's limit of time ends what never is."""
    for _ in itertools.count():
        if polling:
            return
        await asyncio.sleep(0)


async def has_message(client: Client, topic: str, poll_time: int = 0) -> bool:
    header = NotificationRequestHeader(
        consumer_group="G", topic=topic, queue_id=-1, poll_time=poll_time
    )
    answer = await client.request(RequestCode.NOTIFICATION, header)
    assert answer.code == 0, answer.remark
    return NotificationResponseHeader.from_ext(answer.ext_fields).has_msg


async def fail(bench: Bench, *priorities: int) -> None:
    """Messages of these priorities come back in the order of the list, which is not theirs."""
    await bench.send(*priorities)
    failed = await bench.pops.pop()
    assert len(failed) == len(priorities)
    for priority in priorities:
        message = next(each for each in failed if int(each.body) == priority)
        await bench.pops.change(message, 0)
        await passes(bench.time, 1)


def queues_of(bench: Bench, topic: str) -> list[int]:
    """How many messages each of its queues has got."""
    count = bench.broker.tables.topics.table[topic].read_queue_nums
    return [bench.broker.store.max_offset(topic, queue_id) for queue_id in range(count)]


async def test_retries_lose_their_level(bench: Bench) -> None:
    await fail(bench, 1, 6, 3)
    assert queues_of(bench, f"%RETRY%G_{bench.topic}") == [3]
    assert await bench.popped(3) == [1, 6, 3]


@pytest.mark.parametrize("settings", [SEPARATE])
async def test_retries_keep_their_level_in_separate_queues(bench: Bench) -> None:
    await fail(bench, 1, 6, 3)
    assert queues_of(bench, f"%RETRY%G_{bench.topic}") == [0, 1, 0, 1, 0, 0, 1, 0]
    # A retry of a retry, too.
    [again] = await bench.pops.pop(max_msg_nums=1)
    assert again.body == b"6"
    await bench.pops.change(again, 0)
    await passes(bench.time, 1)
    assert await bench.popped(3) == [6, 3, 1]


@pytest.mark.parametrize("settings", [SEPARATE | {"enable_retry_topic_v2": True}])
async def test_retry_topics_of_both_names_may_have_separate_queues(bench: Bench) -> None:
    await fail(bench, 1, 6)
    assert queues_of(bench, f"%RETRY%G+{bench.topic}") == [0, 1, 0, 0, 0, 0, 1, 0]
    assert await bench.popped(2) == [6, 1]


async def test_a_retry_topic_gets_the_queues_that_it_lacks(bench: Bench) -> None:
    retries = f"%RETRY%G_{bench.topic}"
    await fail(bench, 1, 6)
    assert queues_of(bench, retries) == [2]
    bench.broker.config.use_separate_retry_queue = True
    assert await bench.popped(2) == [1, 6]
    await fail(bench, 4)
    assert queues_of(bench, retries) == [2, 0, 0, 0, 1, 0, 0, 0]
    assert await bench.popped(1) == [4]
    # It keeps them when the topic loses some, so what lies there is not lost.
    await fail(bench, 7, 1)
    header = CreateTopicRequestHeader(
        topic=bench.topic, read_queue_nums=4, write_queue_nums=4, perm=6, default_topic="TBW102",
        topic_filter_type="SINGLE_TAG", attributes="",
    )  # fmt: skip
    assert (await bench.client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)).code == 0
    [message] = await bench.pops.pop(max_msg_nums=1)
    assert message.body == b"7"
    await bench.pops.change(message, 0)
    await passes(bench.time, 1)
    # The first queue has its retry: the topic no longer has the eighth one.
    assert queues_of(bench, retries) == [3, 1, 0, 0, 1, 0, 0, 1]
    assert await bench.popped(2) == [1, 7]


@pytest.mark.parametrize("settings", [SEPARATE])
async def test_a_new_group_gets_retries_of_every_queue(bench: Bench) -> None:
    """Whatever it asks for at its first pop: a retry queue begins at its first message."""
    await bench.send(5)
    [message] = await bench.pops.pop(init_mode=1)
    await bench.pops.change(message, 0)
    await passes(bench.time, 1)
    [back] = await bench.pops.pop(init_mode=1)
    assert (back.body, back.record.reconsume_times) == (b"5", 1)
    assert (await bench.pops.ack(back)).code == 0
    await passes(bench.time, 120_000)
    assert await bench.pops.pop() == []


@pytest.mark.parametrize("settings", [SEPARATE])
async def test_a_waiting_pop_gets_a_retry_of_any_queue(bench: Bench, connect: Connect) -> None:
    await bench.send(5)
    [message] = await bench.pops.pop()
    other = PopClient(await connect(bench.broker), bench.topic)
    waiting = asyncio.ensure_future(other.pop(poll_time=60_000))
    await waits(bench.broker.components.pops.polling)
    await bench.pops.change(message, 0)
    await passes(bench.time, 1)
    [back] = await waiting
    assert back.body == b"5"


@pytest.mark.parametrize("settings", [SEPARATE])
async def test_a_waiting_notification_tells_of_a_retry_of_any_queue(
    bench: Bench, connect: Connect
) -> None:
    await bench.send(5)
    [message] = await bench.pops.pop()
    other = await connect(bench.broker)
    waiting = asyncio.ensure_future(has_message(other, bench.topic, poll_time=60_000))
    await waits(bench.broker.components.notifications.polling)
    await bench.pops.change(message, 0)
    await passes(bench.time, 1)
    assert await waiting


@pytest.mark.parametrize("settings", [SEPARATE])
async def test_other_requests_see_retries_of_every_queue(bench: Bench) -> None:
    await fail(bench, 5)
    assert await has_message(bench.client, bench.topic)
    header = PeekMessageRequestHeader(
        consumer_group="G", topic=bench.topic, queue_id=-1, max_msg_nums=32
    )
    answer = await bench.client.request(RequestCode.PEEK_MESSAGE, header)
    assert [record.body for record in iter_records(answer.body)] == [b"5"]
