"""Popping from a broker: what comes, what is acknowledged, what comes back."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody, bit_set_of
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers import (
    DeleteSubscriptionGroupRequestHeader,
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PopMessageResponseHeader,
    ResetOffsetRequestHeader,
)
from tests.broker.conftest import Client, Connect, StartBroker, fill
from tests.broker.pop.consuming import (
    FOUND,
    POLLING_FULL,
    POLLING_TIMEOUT,
    PopClient,
    Popped,
    passes,
)
from tests.fake_time import FakeTime

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


def bodies(messages: list[Popped]) -> list[bytes]:
    return sorted(message.body for message in messages)


async def until(condition: Callable[[], object]) -> None:
    """Let the broker work until it is so; pytest's limit of time ends what never is."""
    for _ in itertools.count():
        if condition():
            return
        await asyncio.sleep(0)


def written(broker: Broker, topic: str = "rmq_sys_wheel_timer") -> int:
    return broker.store.max_offset(topic, 0)


async def waits(pops: PopClient, broker: Broker, **fields: object) -> asyncio.Future[list[Popped]]:
    """A pop that the broker holds."""
    before = len(broker.components.pops.polling)
    waiting = asyncio.ensure_future(pops.pop(**{"poll_time": 15_000, **fields}))
    await until(lambda: len(broker.components.pops.polling) > before)
    return waiting


async def test_acknowledged_messages_leave_no_trace_but_the_offset(
    client: Client, pops: PopClient, broker: Broker, time: FakeTime, topic: str
) -> None:
    await fill(client, topic, "", "", "")
    got = await pops.pop()
    assert bodies(got) == [b"m0", b"m1", b"m2"]
    offsets = broker.tables.offsets
    assert offsets.query("G", topic, 0) == 0
    assert await pops.pop() == []
    for message in got:
        assert (await pops.ack(message)).code == 0
    assert offsets.query("G", topic, 0) == 3
    await passes(time, 120_000)
    assert await pops.pop() == []
    assert written(broker) == 0
    assert len(broker.components.pop.deliveries.buffer) == 0


async def test_acknowledgements_with_another_request_behind_them(
    client: Client, pops: PopClient, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They come in one read, in which the first request is executed alone."""
    await fill(client, topic, "", "", "")
    first, *others = await pops.pop()
    answers = await asyncio.gather(
        pops.ack(first), *map(pops.ack, others), client.send(topic), client.send(topic)
    )
    assert {answer.code for answer in answers} == {0}
    assert "together" not in caplog.text


async def test_the_answer(client: Client, pops: PopClient, topic: str, time: FakeTime) -> None:
    await fill(client, topic, "", "", "")
    await fill(client, topic, "", queue_id=2)
    answer = await pops.request(max_msg_nums=2, queue_id=0)
    header = PopMessageResponseHeader.from_ext(answer.ext_fields)
    assert (answer.code, answer.remark) == (FOUND, "FOUND")
    assert (header.pop_time, header.invisible_time, header.revive_qid) == (time.now, 60_000, 0)
    assert header.start_offset_info == "0 0 0"
    assert header.msg_offset_info == "0 0 0,1"
    assert (header.rest_num, header.order_count_info) == (1, None)
    rest = PopMessageResponseHeader.from_ext((await pops.request()).ext_fields)
    assert rest.revive_qid == 1
    assert sorted((rest.msg_offset_info or "").split(";")) == ["0 0 2", "0 2 0"]
    nothing = await pops.request()
    assert (nothing.code, nothing.remark) == (POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")


async def test_what_is_not_acknowledged_comes_back_from_the_retry_topic(
    client: Client, pops: PopClient, broker: Broker, time: FakeTime, topic: str
) -> None:
    await fill(client, topic, "A", "B", "C")
    first, second, third = await pops.pop()
    assert (await pops.ack(second)).code == 0
    await passes(time, 61_000)
    back = await pops.pop()
    assert bodies(back) == [b"m0", b"m2"]
    for message in back:
        assert message.record.topic == topic
        assert message.record.reconsume_times == 1
        assert message.record.properties["1ST_POP_TIME"] == str(first.handle.pop_time)
        assert message.handle.stored_topic(topic, "G") == f"%RETRY%G_{topic}"
        assert message.record.properties["TAGS"] in "AC"
        assert (await pops.ack(message)).code == 0
    await passes(time, 120_000)
    assert await pops.pop() == []
    offsets = broker.tables.offsets
    assert offsets.query("G", topic, 0) == 3
    assert offsets.query("G", f"%RETRY%G_{topic}", 0) == 2
    assert broker.tables.offsets.query("CID_RMQ_SYS_REVIVE_GROUP", REVIVE, 0) >= 0
    assert third.body == b"m2"


async def test_a_message_with_the_most_attempts_comes_back_like_the_others(
    client: Client, pops: PopClient, time: FakeTime, topic: str
) -> None:
    most = (1 << 31) - 1
    assert (await client.send(topic, b"most", reconsume_times=most)).code == 0
    await fill(client, topic, "")
    assert len(await pops.pop()) == 2
    await passes(time, 61_000)
    back = {message.body: message.record.reconsume_times for message in await pops.pop()}
    assert back == {b"most": most, b"m0": 1}


async def test_a_message_given_back_for_a_second_comes_back_after_one(
    client: Client, pops: PopClient, others: PopClient, broker: Broker, time: FakeTime, topic: str
) -> None:
    await fill(client, topic, "")
    (message,) = await pops.pop()
    time.advance(1)
    await pops.change(message, 1_000)
    waiting = await waits(others, broker)
    time.advance(999)
    assert len(broker.components.pops.polling) == 1
    time.advance(1)
    (back,) = await waiting
    assert (back.body, back.record.reconsume_times) == (b"m0", 1)
    assert (await others.ack(back)).code == 0
    await passes(time, 70_000)
    assert await pops.pop() == []


async def test_the_new_handle_of_a_changed_message_ends_it(
    client: Client, pops: PopClient, broker: Broker, time: FakeTime, topic: str
) -> None:
    await fill(client, topic, "", "")
    (first, second) = await pops.pop()
    changed = await pops.change(await pops.change(second, 30_000), 90_000)
    assert (await pops.ack(changed)).code == 0
    assert (await pops.ack(first)).code == 0
    await passes(time, 130_000)
    assert await pops.pop() == []


async def test_a_batch_of_acknowledgements(
    client: Client, pops: PopClient, broker: Broker, time: FakeTime, topic: str
) -> None:
    await fill(client, topic, *[""] * 5)
    await fill(client, topic, "", queue_id=1)
    got = await pops.pop()
    acks = []
    for queue_id, wanted in ((0, (0, 2, 4)), (1, (0,))):
        handle = next(m.handle for m in got if m.handle.queue_id == queue_id)
        acks.append(
            BatchAck(
                consumer_group="G",
                topic=topic,
                retry="0",
                start_offset=handle.start_offset,
                queue_id=queue_id,
                revive_queue_id=handle.revive_queue_id,
                pop_time=handle.pop_time,
                invisible_time=handle.invisible_time,
                bit_set=bit_set_of(handle.start_offset, wanted),
            )
        )
    body = BatchAckMessageRequestBody(acks=acks, broker_name="b0").encode()
    assert (await client.request(RequestCode.BATCH_ACK_MESSAGE, None, body)).code == 0
    await passes(time, 61_000)
    assert bodies(await pops.pop()) == [b"m1", b"m3"]
    assert (await client.request(RequestCode.BATCH_ACK_MESSAGE)).code == 208


async def test_late_acknowledgements_are_written_and_count(
    client: Client, pops: PopClient, broker: Broker, time: FakeTime, topic: str
) -> None:
    await fill(client, topic, "", "", "")
    got = await pops.pop()
    await pops.ack(got[0])
    await passes(time, 11_000)  # the checkpoint is written by now
    assert written(broker) == 2
    assert broker.tables.offsets.query("G", topic, 0) == 3
    assert (await pops.ack(got[1])).code == 0
    assert written(broker) == 3
    await passes(time, 60_000)
    assert bodies(await pops.pop()) == [b"m2"]


async def test_a_written_acknowledgement_counts_before_it_can_be_read(
    client: Client, pops: PopClient, broker: Broker, time: FakeTime, topic: str
) -> None:
    """It may wait for the disk or for other replicas, after the timer has delivered it."""
    broker.config.enable_pop_buffer_merge = False
    await fill(client, topic, "")
    (message,) = await pops.pop(invisible_time=20_000)
    assert (await pops.ack(message)).code == 0
    queue_id = message.handle.revive_queue_id
    while broker.store.max_offset(REVIVE, queue_id) == 0:
        time.step()
    await passes(time, 100)  # the checkpoint is read
    broker.store.confirm(broker.store.commit_log.end)
    revived = broker.store.queues[REVIVE][queue_id]
    while revived.next_offset == 1:
        time.step()
    assert revived.max_offset == 1
    await passes(time, 5_000)
    broker.store.confirm(1 << 60)
    await passes(time, 5_000)
    assert revived.max_offset == 2
    assert await pops.pop() == []


async def test_tags_and_properties(
    client: Client, pops: PopClient, others: PopClient, broker: Broker, topic: str
) -> None:
    for n, tag in enumerate("ABAB"):
        properties = {"TAGS": tag, "n": str(n)}
        await client.send(topic, b"%s%d" % (tag.encode(), n), properties=properties)
    got = await pops.pop(exp="A", exp_type="TAG")
    assert bodies(got) == [b"A0", b"A2"]
    assert [message.handle.start_offset for message in got] == [0, 0]
    for message in got:
        await pops.ack(message)
    assert broker.tables.offsets.query("G", topic, 0) == 4
    sql = PopClient(client, topic, "G2")
    assert bodies(await sql.pop(exp="n >= 2", exp_type="SQL92")) == [b"A2", b"B3"]
    for exp, kind in (("n >=", "SQL92"), ("a", "JAVA"), ("||", "TAG")):
        assert (await pops.request(exp=exp, exp_type=kind)).code == 23
    waiting = await waits(others, broker, exp="A", exp_type="TAG")
    await client.send(topic, b"B4", properties={"TAGS": "B"})
    await client.send(topic, b"A5", properties={"TAGS": "A"})
    assert bodies(await waiting) == [b"A5"]


async def test_messages_that_nobody_wants_move_the_offset(
    client: Client, pops: PopClient, broker: Broker, topic: str
) -> None:
    await fill(client, topic, *"BBB")
    assert await pops.pop(exp="A", exp_type="TAG") == []
    assert broker.tables.offsets.query("G", topic, 0) == 3


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "NoSuchTopic"}, 17),
        ({"queue_id": 4}, 29),
        ({"queue_id": -2}, 29),
        ({"max_msg_nums": 33}, 29),
        ({"max_msg_nums": 0}, 29),
        ({"invisible_time": -1}, 29),
        ({"invisible_time": 10**12}, 29),
        ({"consumer_group": "G" * 250}, 29),  # as its retry topic would be too long
        ({"consumer_group": "G" * 249}, 26),
    ],
)
async def test_pops_that_are_refused(
    client: Client,
    pops: PopClient,
    broker: Broker,
    topic: str,
    fields: dict[str, object],
    code: int,
) -> None:
    await fill(client, topic, "")
    broker.tables.groups.update([SubscriptionGroupConfig(group_name="G" * 250)])
    answer = await pops.request(**fields)
    assert answer.code == code
    assert answer.remark


async def test_acknowledgements_that_are_refused(
    client: Client, pops: PopClient, topic: str
) -> None:
    await fill(client, topic, "")
    (message,) = await pops.pop()
    handle = message.handle
    unknown = message._replace(handle=handle._replace(pop_time=1, queue_offset=9))
    assert (await pops.ack(unknown)).code == 208
    other_queue = message._replace(handle=handle._replace(pop_time=1, queue_id=9))
    assert (await pops.ack(other_queue)).code == 13
    no_such_log = message._replace(handle=handle._replace(pop_time=1, revive_queue_id=98))
    assert (await pops.ack(no_such_log)).code == 29
    assert (await pops.ack(message)).code == 0
    assert (await pops.ack(message)).code == 0  # twice: there is nothing left to do


async def test_handles_that_were_made_up_make_no_groups_and_topics(
    start_broker: StartBroker, connect: Connect, time: FakeTime, topic: str
) -> None:
    """A redelivery makes a retry topic, which is on the disk and in the routes for ever."""
    broker = await start_broker(
        options={"clock": time.clock, "call_later": time.call_later},
        auto_create_subscription_group=False,
    )
    await fill(client := await connect(broker), topic, "")
    broker.tables.groups.update([SubscriptionGroupConfig(group_name="G")])
    (message,) = await PopClient(client, topic).pop()
    topics = set(broker.tables.topics.table)
    forged = PopClient(client, topic, group="made-up")
    handle = message.handle._replace(start_offset=7)
    assert (await forged.ask_change(message._replace(handle=handle), 0)).code == 26
    assert (await forged.ack(message._replace(handle=handle))).code == 26
    for name, group, code in ((topic, "made-up", 26), ("no-such-topic", "G", 0)):
        ack = {"c": group, "t": name, "r": "0", "rq": 0, "pt": time.now, "it": 1, "b": "AQ=="}
        body = json.dumps({"acks": [ack]}).encode()
        assert (await client.request(RequestCode.BATCH_ACK_MESSAGE, None, body)).code == code
    await passes(time, 3_000)
    assert set(broker.tables.topics.table) == topics
    pops = broker.tables.statistics.pops
    assert {key[:2] for key in (*pops.written, *pops.read)} <= {(topic, "G")}


@pytest.mark.parametrize(
    ("late", "long"), [(1 << 60, 0), (0, 1 << 60), (-1 << 62, 1 << 60), (0, -1 << 60)]
)
async def test_handles_whose_times_were_made_up_are_refused_without_an_alarm(
    client: Client,
    pops: PopClient,
    topic: str,
    caplog: pytest.LogCaptureFixture,
    late: int,
    long: int,
) -> None:
    await fill(client, topic, "")
    (message,) = await pops.pop()
    handle = message.handle
    forged = handle._replace(
        start_offset=7,
        pop_time=handle.pop_time + late,
        invisible_time=handle.invisible_time + long,
    )
    for answer in (
        await pops.ack(message._replace(handle=forged)),
        await pops.ask_change(message._replace(handle=forged), 1),
    ):
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "are not those of a pop" in (answer.remark or "")
    ack = {
        "c": "G",
        "t": topic,
        "r": "0",
        "so": 0,
        "rq": 0,
        "pt": forged.pop_time,
        "it": forged.invisible_time,
        "b": "AQ==",
    }
    body = json.dumps({"acks": [ack]}).encode()
    answer = await client.request(RequestCode.BATCH_ACK_MESSAGE, None, body)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert (await pops.ack(message)).code == 0


async def test_handles_with_a_long_broker_name_write_nothing(
    client: Client, pops: PopClient, topic: str, broker: Broker
) -> None:
    """Each of 600 acknowledgements in a request would repeat it twice in the log."""
    await fill(client, topic, "")
    (message,) = await pops.pop()
    forged = message.handle._replace(start_offset=7, broker_name="b" * 256)
    end = broker.store.commit_log.end
    ack = {"c": "G", "t": topic, "pt": forged.pop_time, "it": 1000, "b": "AQ=="}
    body = json.dumps({"brokerName": forged.broker_name, "acks": [ack]}).encode()
    for answer in (
        await pops.ack(message._replace(handle=forged)),
        await pops.ask_change(message._replace(handle=forged), 1),
        await client.request(RequestCode.BATCH_ACK_MESSAGE, None, body),
    ):
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "256 characters" in (answer.remark or "")
    assert broker.store.commit_log.end == end


async def test_the_other_acknowledgements_of_a_batch_count_beside_a_refused_one(
    start_broker: StartBroker, connect: Connect, time: FakeTime, topic: str
) -> None:
    broker = await start_broker(
        options={"clock": time.clock, "call_later": time.call_later},
        auto_create_subscription_group=False,
    )
    await fill(client := await connect(broker), topic, "")
    broker.tables.groups.update([SubscriptionGroupConfig(group_name="G")])
    pops = PopClient(client, topic)
    (message,) = await pops.pop()
    acks = [
        BatchAck(
            consumer_group=group,
            topic=topic,
            retry="0",
            start_offset=message.handle.start_offset,
            queue_id=0,
            revive_queue_id=message.handle.revive_queue_id,
            pop_time=message.handle.pop_time,
            invisible_time=message.handle.invisible_time,
            bit_set=bit_set_of(message.handle.start_offset, (0,)),
        )
        for group in ("made-up", "G")
    ]
    body = BatchAckMessageRequestBody(acks=acks, broker_name="b0").encode()
    assert (await client.request(RequestCode.BATCH_ACK_MESSAGE, None, body)).code == 26
    await passes(time, 61_000)
    assert await pops.pop() == []


async def test_a_late_acknowledgement_does_not_bring_back_a_deleted_group(
    client: Client, pops: PopClient, broker: Broker, topic: str, time: FakeTime
) -> None:
    await fill(client, topic, "")
    (message,) = await pops.pop()
    await passes(time, 1)
    deleted = await client.request(
        RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequestHeader(group_name="G")
    )
    assert deleted.code == 0
    assert (await pops.ack(message)).code == 26
    assert (await pops.ask_change(message, 0)).code == 26
    assert not broker.tables.groups.known("G")


async def test_a_waiting_pop_gets_the_next_message_of_its_queue(
    client: Client, pops: PopClient, others: PopClient, broker: Broker, topic: str
) -> None:
    await fill(client, topic, "")
    await pops.pop()
    any_queue = await waits(pops, broker)
    third_queue = await waits(others, broker, queue_id=3)
    header = PollingInfoRequestHeader(consumer_group="G", topic=topic, queue_id=-1)
    info = await client.request(RequestCode.POLLING_INFO, header)
    assert info.ext_fields == {"pollingNum": "1"}
    await fill(client, topic, "", queue_id=2)
    assert [message.handle.queue_id for message in await any_queue] == [2]
    await fill(client, topic, "", queue_id=3)
    assert [message.handle.queue_id for message in await third_queue] == [3]


async def test_a_message_wakes_one_pop_of_each_group(
    client: Client, pops: PopClient, others: PopClient, broker: Broker, topic: str
) -> None:
    await fill(client, topic, "")
    await pops.pop()
    first, second = await waits(pops, broker), await waits(others, broker)
    another_group = PopClient(client, topic, "G2")
    await another_group.pop()
    another = await waits(another_group, broker)
    await fill(client, topic, "")
    assert len(await first) == 1
    assert await another
    assert len(broker.components.pops.polling) == 1
    await fill(client, topic, "")
    assert len(await second) == 1


async def test_a_waiting_pop_ends_in_time(
    client: Client, pops: PopClient, broker: Broker, time: FakeTime, topic: str
) -> None:
    await fill(client, topic, "")
    await pops.pop()
    waiting = asyncio.ensure_future(pops.request(poll_time=5_000))
    await until(lambda: len(broker.components.pops.polling) == 1)
    time.advance(4_949)
    assert len(broker.components.pops.polling) == 1
    time.advance(1)
    assert (await waiting).code == POLLING_TIMEOUT
    assert (await pops.request(poll_time=5_000, born_time=time.now - 6_000)).code == POLLING_TIMEOUT


async def test_too_many_waiting_pops(
    start_broker: StartBroker, connect: Connect, time: FakeTime, topic: str
) -> None:
    broker = await start_broker(
        options={"clock": time.clock, "call_later": time.call_later}, max_pop_polling_size=1
    )
    client = await connect(broker)
    pops = PopClient(client, topic)
    await fill(client, topic, "")
    await pops.pop()
    waiting = await waits(pops, broker)
    assert (await pops.request(poll_time=5_000)).code == POLLING_FULL
    await fill(client, topic, "")
    assert bodies(await waiting) == [b"m0"]


async def test_pops_of_one_connection_and_address_leave_room_for_others(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    broker = await start_broker(max_pop_polling_size=20)
    greedy, other = [PopClient(await connect(broker), topic) for _ in range(2)]
    await fill(greedy.client, topic, "")
    await greedy.pop()
    waiting = [await waits(greedy, broker) for _ in range(2)]
    assert (await greedy.request(poll_time=15_000)).code == POLLING_FULL
    waiting.append(await waits(other, broker))
    # All of them come from one address, which has half of the limit.
    while len(waiting) < 10:
        waiting.append(await waits(PopClient(await connect(broker), topic), broker))
    late = PopClient(await connect(broker), topic)
    assert (await late.request(poll_time=15_000)).code == POLLING_FULL
    for _ in waiting:
        await fill(greedy.client, topic, "")
    assert [bodies(got) for got in await asyncio.gather(*waiting)] == [[b"m0"]] * 10


async def test_messages_do_not_go_to_a_client_that_is_gone(
    client: Client, pops: PopClient, others: PopClient, broker: Broker, topic: str
) -> None:
    await fill(client, topic, "")
    await pops.pop()
    waiting = await waits(others, broker)
    await others.client.close()
    await until(lambda: len(broker.components.pops.polling) == 0)
    await asyncio.gather(waiting, return_exceptions=True)
    await fill(client, topic, "")
    assert len(await pops.pop()) == 1


async def test_a_deleted_topic_ends_its_pops(
    client: Client, pops: PopClient, others: PopClient, broker: Broker, topic: str
) -> None:
    await fill(client, topic, "")
    (message,) = await pops.pop()
    waiting = asyncio.ensure_future(others.request(poll_time=15_000))
    await until(lambda: len(broker.components.pops.polling) == 1)
    await client.request(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields={"topic": topic})
    assert (await waiting).code == 17
    assert (await pops.ack(message)).code == 17
    assert broker.tables.offsets.query("G", topic, 0) == -1


async def test_where_a_new_group_begins(
    start_broker: StartBroker, connect: Connect, time: FakeTime, topic: str
) -> None:
    broker = await start_broker(
        options={"clock": time.clock, "call_later": time.call_later},
        access_message_in_memory_max_ratio=0,
    )
    client = await connect(broker)
    await fill(client, topic, *[""] * 5)
    assert len(await PopClient(client, topic, "begin").pop(init_mode=0)) == 5
    end = PopClient(client, topic, "end")
    assert bodies(await end.pop(init_mode=1)) == [b"m4"]
    assert broker.tables.offsets.query("end", topic, 0) == 4
    broker.config.access_message_in_memory_max_ratio = 40
    # A new topic: its messages were sent before its first consumer came.
    assert len(await PopClient(client, topic, "new").pop(init_mode=1)) == 5


async def test_an_offset_that_an_admin_sets_counts(
    client: Client, pops: PopClient, broker: Broker, time: FakeTime, topic: str
) -> None:
    await fill(client, topic, "", "", "")
    first = await pops.pop()
    header = ResetOffsetRequestHeader(
        topic=topic, group="G", timestamp=-1, is_force=True, queue_id=0, offset=1
    )
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    assert (await client.request(code, header)).code == 0
    time.advance(1)
    assert bodies(await pops.pop()) == [b"m1", b"m2"]
    for message in first:
        await pops.ack(message)
    assert broker.tables.offsets.query("G", topic, 0) == 1


async def test_peek_and_notification(
    client: Client, pops: PopClient, broker: Broker, time: FakeTime, topic: str
) -> None:
    def notification(poll_time: int) -> NotificationRequestHeader:
        return NotificationRequestHeader(
            consumer_group="G", topic=topic, queue_id=-1, poll_time=poll_time
        )

    async def has_message(poll_time: int = 0) -> bool:
        answer = await client.request(RequestCode.NOTIFICATION, notification(poll_time))
        assert answer.code == 0
        return NotificationResponseHeader.from_ext(answer.ext_fields).has_msg

    await fill(client, topic, "", "")
    peek = PeekMessageRequestHeader(consumer_group="G", topic=topic, queue_id=-1, max_msg_nums=32)
    for _ in range(2):
        answer = await client.request(RequestCode.PEEK_MESSAGE, peek)
        assert (answer.code, answer.ext_fields["restNum"]) == (0, "2")
        assert answer.body.count(b"m0") == answer.body.count(b"m1") == 1
    assert await has_message()
    await pops.pop()
    assert (await client.request(RequestCode.PEEK_MESSAGE, peek)).code == 19
    assert not await has_message()
    waiting = asyncio.ensure_future(has_message(15_000))
    await until(lambda: len(broker.components.notifications.polling) == 1)
    await fill(client, topic, "")
    assert await waiting
    assert len(await pops.pop()) == 1


async def notified(client: Client, topic: str, exp: str, **fields: Any) -> bool:
    """Whether a notification with a filter says that there is a message."""
    values: dict[str, Any] = {"exp_type": "TAG", "poll_time": 0} | fields
    header = NotificationRequestHeader(
        consumer_group="G", topic=topic, queue_id=-1, exp=exp, **values
    )
    answer = await client.request(RequestCode.NOTIFICATION, header)
    assert answer.code == 0, answer.remark
    return NotificationResponseHeader.from_ext(answer.ext_fields).has_msg


async def test_notifications_of_tags(client: Client, broker: Broker, topic: str) -> None:
    await fill(client, topic, "a", "", "b")
    for exp, wanted in (("a", True), ("x || b", True), ("x", False), ("*", True), ("", True)):
        assert await notified(client, topic, exp) == wanted
    # As before 5.4 without a type.
    assert await notified(client, topic, "x", exp_type=None)
    waiting = asyncio.ensure_future(notified(client, topic, "x", poll_time=15_000))
    await until(lambda: len(broker.components.notifications.polling) == 1)
    await fill(client, topic, "a")
    assert len(broker.components.notifications.polling) == 1
    await fill(client, topic, "x")
    assert await waiting


@pytest.mark.parametrize(("setting", "found"), [("most", True), ("off", True), ("", False)])
async def test_not_all_notifications_are_filtered(
    start_broker: StartBroker, connect: Connect, topic: str, setting: str, found: bool
) -> None:
    settings: dict[str, dict[str, Any]] = {
        "most": {"max_message_filter_num_for_notification": 40},
        "off": {"use_message_filter_for_notification": False},
    }
    client = await connect(await start_broker(**settings.get(setting, {})))
    await fill(client, topic, *["a"] * 40)
    assert await notified(client, topic, "x") == found
    await fill(client, topic, *["a"] * 24)  # 64 behind
    assert await notified(client, topic, "x")


@pytest.mark.parametrize("more", ["", " or " + " or ".join(f"n = {n}" for n in range(50, 300))])
async def test_notifications_of_properties(
    client: Client, broker: Broker, topic: str, more: str
) -> None:
    """A waiting one looks at them; of what is there already, any message counts. A long expression
    is compiled first."""
    exp = "n = 1" + more
    await client.send(topic)
    assert await notified(client, topic, exp, exp_type="SQL92")
    pops = PopClient(client, topic)
    assert len(await pops.pop()) == 1
    waiting = asyncio.ensure_future(
        notified(client, topic, exp, exp_type="SQL92", poll_time=15_000)
    )
    await until(lambda: len(broker.components.notifications.polling) == 1)
    await client.send(topic, properties={"n": "2"})
    assert len(broker.components.notifications.polling) == 1
    await client.send(topic, properties={"n": "1"})
    assert await waiting


@pytest.mark.parametrize(("kind", "exp"), [("SQL92", "n >"), ("TAG", "||"), ("ODD", "a")])
async def test_notifications_whose_filter_is_wrong(
    client: Client, topic: str, kind: str, exp: str
) -> None:
    await client.send(topic)
    header = NotificationRequestHeader(
        consumer_group="G", topic=topic, queue_id=-1, poll_time=0, exp_type=kind, exp=exp
    )
    answer = await client.request(RequestCode.NOTIFICATION, header)
    assert answer.code == 23
    assert "parse the consumer's subscription failed" in (answer.remark or "")


async def test_a_group_with_too_much_in_flight_waits(
    start_broker: StartBroker, connect: Connect, time: FakeTime, topic: str
) -> None:
    broker = await start_broker(
        options={"clock": time.clock, "call_later": time.call_later},
        enable_pop_message_threshold=True,
        pop_inflight_message_threshold=2,
    )
    client, other = await connect(broker), await connect(broker)
    pops, others = PopClient(client, topic), PopClient(other, topic)
    await fill(client, topic, *[""] * 5)
    got = await pops.pop(max_msg_nums=3)
    assert len(got) == 3
    waiting = await waits(others, broker)
    await pops.ack(got[0])
    assert len(await waiting) == 2


async def test_large_messages_are_taken_back_a_few_at_a_time(
    start_broker: StartBroker, connect: Connect, time: FakeTime, topic: str
) -> None:
    """A handle of 100 bytes makes the broker store a message of 4 MB; others wait meanwhile."""
    broker = await start_broker(
        options={"clock": time.clock, "call_later": time.call_later},
        mapped_file_size_commit_log=16 << 20,
    )
    client = await connect(broker)
    pops = PopClient(client, topic)
    await client.send(topic, bytes(1 << 20))
    (message,) = await pops.pop()
    handle = message.handle
    for n in range(16):
        other = handle._replace(start_offset=n, pop_time=handle.pop_time + n)
        await pops.change(message._replace(handle=other), 0)
    time.now += 100  # all of them are due
    most, before = 0, 0
    while before < 16:
        await asyncio.sleep(0)
        if time.sleeping:
            time.step()
        now = written(broker, f"%RETRY%G_{topic}")
        most, before = max(most, now - before), now
    assert most <= 5


@pytest.mark.parametrize("v2", [False, True])
async def test_both_names_of_retry_topics_are_read(
    start_broker: StartBroker, connect: Connect, time: FakeTime, topic: str, v2: bool
) -> None:
    broker = await start_broker(
        options={"clock": time.clock, "call_later": time.call_later}, enable_retry_topic_v2=v2
    )
    client = await connect(broker)
    pops = PopClient(client, topic)
    await fill(client, topic, "", "")
    first, second = await pops.pop()
    await pops.change(first, 0)
    await passes(time, 1)
    assert written(broker, f"%RETRY%G{'+' if v2 else '_'}{topic}") == 1
    broker.config.enable_retry_topic_v2 = True
    await pops.change(second, 0)
    await passes(time, 1)
    assert written(broker, f"%RETRY%G+{topic}") == (2 if v2 else 1)
    back = await pops.pop()
    back += await pops.pop()
    assert bodies(back) == [b"m0", b"m1"]
    for message in back:
        assert (await pops.ack(message)).code == 0


async def test_a_restart_goes_on(
    start_broker: StartBroker, connect: Connect, time: FakeTime, topic: str
) -> None:
    options = {"clock": time.clock, "call_later": time.call_later}
    broker = await start_broker(options=options)
    pops = PopClient(await connect(broker), topic)
    await fill(pops.client, topic, *[""] * 4)
    got = await pops.pop(max_msg_nums=3)
    await pops.ack(got[1])
    await broker.stop()

    broker = await start_broker(options=options)
    again = PopClient(await connect(broker), topic)
    assert bodies(await again.pop()) == [b"m3"]  # the others are out
    assert (await again.ack(got[2])).code == 0
    await passes(time, 62_000)
    assert bodies(await again.pop()) == [b"m0", b"m3"]


async def test_a_full_disk_hands_out_nothing_that_must_be_written(
    client: Client, pops: PopClient, broker: Broker, topic: str
) -> None:
    await fill(client, topic, "")
    broker.store.refuse("no room on the disk")
    assert await pops.pop(invisible_time=2_000) == []
    broker.store.accept()
    (message,) = await pops.pop(invisible_time=2_000)
    broker.store.refuse("no room on the disk")
    answer = await pops.ack(message)
    assert answer.code == 14
    broker.store.accept()
    assert (await pops.ack(message)).code == 0


async def test_many_acknowledgements_at_once(
    client: Client, pops: PopClient, broker: Broker, time: FakeTime, topic: str
) -> None:
    await fill(client, topic, *[""] * 40)
    got = [*await pops.pop(), *await pops.pop()]
    unknown = got[7]._replace(handle=got[7].handle._replace(queue_offset=999, pop_time=1))
    answers = await asyncio.gather(*map(pops.ack, [*got[:20], unknown, *got[20:]]))
    codes = [answer.code for answer in answers]
    assert codes.pop(20) == 208
    assert codes == [0] * 40
    assert broker.tables.offsets.query("G", topic, 0) == 40
    assert written(broker) == 0


async def test_a_pop_with_a_costly_filter_goes_on_until_it_finds_something(
    client: Client, pops: PopClient, broker: Broker, topic: str
) -> None:
    for n in range(60):
        await client.send(topic, b"m%d" % n, properties={"n": str(n)})
    terms = " OR ".join(f"n = {n}" for n in range(59, 559))
    got = await pops.pop(exp=f"n > 1000 OR {terms}", exp_type="SQL92", poll_time=15_000)
    assert bodies(got) == [b"m59"]
    assert broker.tables.offsets.query("G", topic, 0) <= 59
