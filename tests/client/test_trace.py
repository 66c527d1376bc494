from __future__ import annotations

import asyncio

import pytest

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.errors import RemotingTimeout
from pocketmq.client.observation import trace
from pocketmq.client.observation.consume_hooks import ConsumeContext
from pocketmq.client.observation.trace import ConsumeTrace, TraceDispatcher
from pocketmq.client.observation.trace_record import (
    EndTransactionRecord,
    RecallRecord,
    SubAfterRecord,
    decode,
)
from pocketmq.client.producer.prepared_message import prepare
from pocketmq.client.producer.producer import Producer
from pocketmq.client.producer.transaction import TransactionProducer, TransactionState
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.message.limits import TRACE_TOPIC
from pocketmq.message.message import Message, MessageExt, MessageQueue
from pocketmq.message.record import decode as decode_record
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.transaction import EndTransactionRequestHeader
from tests.client.fake_cluster import FakeCluster
from tests.client.waiting import until


def traced(cluster: FakeCluster, topic: str = TRACE_TOPIC) -> list[MessageExt]:
    return [
        MessageExt.from_record(decode_record(record))
        for broker in cluster.brokers.values()
        for (name, _), records in broker.records.items()
        if name == topic
        for record in records
    ]


async def test_sends_are_recorded(cluster: FakeCluster) -> None:
    cluster.put(TRACE_TOPIC, "a")
    async with Producer("PG", namesrv=cluster.namesrv, trace=True) as p:
        result = await p.send(Message("T", b"four", tags="t", keys=["k1", "k2"]))
        batch = await p.send_batch([Message("T", b"x"), Message("T", b"y")])
        delayed = await (await p.post(Message("T", b"x", delay_level=2)))
    # By the end of the producer at the latest, in one message that is found by every id and key.
    [message] = traced(cluster)
    ids = [result.msg_id, *(each.msg_id for each in batch), delayed.msg_id]
    assert set(message.keys) == {*ids, "k1", "k2"}
    records = list(decode(message.body.decode()))
    assert [record[5] for record in records] == ids
    kind, time, region, group, topic, _, tags, keys, host, length, cost, number, offset_id, ok = (
        records[0]
    )
    assert (kind, region, group, topic, tags, keys) == (
        "Pub", "DefaultRegion", "PG", "T", "t", "k1 k2",
    )  # fmt: skip
    assert (host, length, number, ok) == ("127.0.0.1:10911", "4", "0", "true")
    assert offset_id == result.offset_msg_id
    assert int(time) > 1_700_000_000_000
    assert 0 <= int(cost) < 10_000
    assert records[1][6:8] == ("null", "null")
    assert records[3][11] == "3"


async def test_what_the_broker_says_of_its_region_and_of_tracing(cluster: FakeCluster) -> None:
    cluster.put(TRACE_TOPIC, "a")
    cluster.put("T", "b")
    broker = cluster["b"]
    broker.region = "here"
    async with Producer("PG", namesrv=cluster.namesrv, trace=True) as p:
        wanted = [await p.send(Message("T", b"x")), *await p.send_batch([Message("T", b"x")] * 2)]
        broker.trace_on = False
        other = [await p.send(Message("T", b"x")), *await p.send_batch([Message("T", b"x")] * 2)]
    assert {(result.region_id, result.trace_on) for result in wanted} == {("here", True)}
    assert {(result.region_id, result.trace_on) for result in other} == {("here", False)}
    [message] = traced(cluster)
    records = list(decode(message.body.decode()))
    assert [(r[2], r[5]) for r in records] == [("here", result.msg_id) for result in wanted]


async def test_a_topic_of_ones_own(cluster: FakeCluster) -> None:
    cluster.put("traces", "a")
    async with Producer("PG", namesrv=cluster.namesrv, trace="traces") as p:
        await p.send(Message("T", b"x"))
    assert len(traced(cluster, "traces")) == 1


async def test_the_end_of_a_transaction_is_recorded(cluster: FakeCluster) -> None:
    cluster.put(TRACE_TOPIC, "a")
    cluster.put("T", "b")
    cluster["b"].on(RequestCode.END_TRANSACTION, lambda request: None, EndTransactionRequestHeader)
    async with (
        TransactionProducer(
            "PG",
            check=lambda message: TransactionState.UNKNOWN,
            namesrv=cluster.namesrv,
            trace=True,
        ) as p,
        p.transaction(Message("T", b"x", keys=["k"])) as begun,
    ):
        pass
    [message] = traced(cluster)
    half, end = decode(message.body.decode())
    assert (half[0], half[11]) == ("Pub", "1")
    assert (end[0], end[5], end[7]) == ("EndTransaction", begun.half.msg_id, "k")
    assert end[9:] == ("2", "ID", "COMMIT_MESSAGE", "false")


async def test_consuming_is_recorded(cluster: FakeCluster) -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    cluster["a"].store("T", 0, b"x", "UNIQ_KEY\x01ID\x02KEYS\x01k\x02MSG_REGION\x01here\x02")
    cluster["a"].store("T", 0, b"x", "UNIQ_KEY\x01OFF\x02TRACE_ON\x01false\x02")
    messages = [
        ConsumedMessage.from_record(decode_record(record))
        for record in cluster["a"].records["T", 0]
    ]
    dispatcher = TraceDispatcher(send)
    recorder = ConsumeTrace(dispatcher)
    context = ConsumeContext("CG", "id", messages)
    recorder.before_consume(context)
    context.ended(ReconsumeLater())
    recorder.after_consume(context)
    await dispatcher.flush()
    [message] = sent
    assert (message.topic, list(message.keys)) == (TRACE_TOPIC, ["ID", "k"])
    before, after = decode(message.body.decode())
    assert before[0] == "SubBefore"
    assert before[2:] == ("here", "CG", after[1], "ID", "0", "k")
    assert (after[0], after[2], after[4:7], after[8]) == (
        "SubAfter", "ID", ("false", "k", "4"), "CG",
    )  # fmt: skip


def test_the_texts_are_javas() -> None:
    assert (
        SubAfterRecord(time=9, msg_id="M", group="G", request_id="R", cost=3, success=True).encode()
        == "SubAfter\x01R\x01M\x013\x01true\x01null\x010\x019\x01G\x02"
    )
    assert (
        RecallRecord(time=9, msg_id="M", group="G", topic="T", success=False).encode()
        == "Recall\x019\x01DefaultRegion\x01G\x01T\x01M\x01false\x02"
    )
    assert EndTransactionRecord(
        time=9, msg_id="M", group="G", topic="T", store_host="h:1", transaction_id="X",
        state="ROLLBACK_MESSAGE", from_check=True, keys="k",
    ).encode() == (
        "EndTransaction\x019\x01DefaultRegion\x01G\x01T\x01M\x01null\x01k\x01h:1\x012\x01X\x01"
        "ROLLBACK_MESSAGE\x01true\x02"
    )  # fmt: skip


def record(number: int, keys: str = "") -> RecallRecord:
    return RecallRecord(time=1, msg_id=f"M{number}", group="G", topic="T", success=True, keys=keys)


async def test_records_that_can_not_be_kept_or_sent_are_counted() -> None:

    async def send(message: Message) -> None:
        raise RemotingTimeout("no answer")

    dispatcher = TraceDispatcher(send, limit=3)
    for number in range(5):
        dispatcher.append(record(number))
    assert dispatcher.dropped == 2
    await dispatcher.flush()
    assert dispatcher.dropped == 5


class SlowSend:
    """Sends that last until they are let go."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.release = asyncio.Event()
        self.sent: list[Message] = []

    async def __call__(self, message: Message) -> None:
        self.begun.set()
        await self.release.wait()
        self.sent.append(message)


async def test_the_last_flush_waits_for_what_is_under_way() -> None:
    send = SlowSend()
    dispatcher = TraceDispatcher(send, period=0.001)
    running = asyncio.create_task(dispatcher.run())
    dispatcher.append(record(1))
    await send.begun.wait()
    last = asyncio.create_task(dispatcher.flush())
    await asyncio.sleep(0)
    assert not last.done()
    send.release.set()
    await last
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert len(send.sent) == 1
    assert dispatcher.dropped == 0


async def test_what_the_end_leaves_unsent_is_counted() -> None:
    send = SlowSend()
    dispatcher = TraceDispatcher(send, period=0.001)
    running = asyncio.create_task(dispatcher.run())
    dispatcher.append(record(1))
    await send.begun.wait()
    for number in (2, 3):
        dispatcher.append(record(number))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await dispatcher.flush()
    assert dispatcher.dropped == 0
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert send.sent == []
    assert dispatcher.dropped == 3


def traced_in(messages: list[Message]) -> int:
    """How many records the messages hold."""
    return sum(len(list(decode(message.body.decode()))) for message in messages)


async def test_many_records_leave_at_once_in_messages_of_bounded_size() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    dispatcher = TraceDispatcher(send, period=3600.0)
    running = asyncio.create_task(dispatcher.run())
    for number in range(trace.READY):
        dispatcher.append(record(number, keys="k" * 100))
    await until(lambda: traced_in(sent) == trace.READY)
    running.cancel()
    assert len(sent) > 1
    assert all(len(" ".join(message.keys)) < 20_000 for message in sent)


async def test_keys_of_any_script_fit_in_their_message() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        prepare(message, "ID")
        sent.append(message)

    dispatcher = TraceDispatcher(send)
    for number in range(400):
        dispatcher.append(record(number, keys="订" * 100 + str(number)))
    dispatcher.append(record(400, keys="k" * 30_000))
    await dispatcher.flush()
    assert dispatcher.dropped == 0
    assert traced_in(sent) == 401


async def test_a_filter_that_does_not_know_the_trace_topic(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.put(TRACE_TOPIC, "a")
    brokers = {"T": "a"}

    def preferred(queue: MessageQueue) -> bool:
        return queue.broker_name == brokers[queue.topic]

    async with Producer("PG", namesrv=cluster.namesrv, trace=True, filters=[preferred]) as p:
        await p.send(Message("T", b"lost"))
        await until(lambda: "1 trace records are lost" in caplog.text)
        brokers[TRACE_TOPIC] = "a"
        await p.send(Message("T", b"kept"))
    [message] = traced(cluster)
    assert len(list(decode(message.body.decode()))) == 1


async def test_a_push_consumer_records_its_work(cluster: FakeCluster) -> None:
    cluster.put(TRACE_TOPIC, "a")
    cluster["a"].store("T", 0, b"good", "UNIQ_KEY\x01GOOD\x02KEYS\x01k\x02")
    cluster["a"].store("T", 0, b"bad", "UNIQ_KEY\x01BAD\x02")
    cluster["a"].store("T", 0, b"later", "UNIQ_KEY\x01LATER\x02")
    c = PushConsumer("CG", namesrv=cluster.namesrv, start="begin", trace=True)

    @c.on("T")
    async def handle(message: ConsumedMessage) -> None:
        if message.body == b"bad":
            raise RuntimeError("bad")
        if message.body == b"later":
            raise ReconsumeLater

    async with c:
        await until(lambda: len(cluster["a"].sent_back) == 2)
    # By the end of the consumer at the latest.
    records = [r for message in traced(cluster) for r in decode(message.body.decode())]
    before = {record[5]: record for record in records if record[0] == "SubBefore"}
    after = {record[2]: record for record in records if record[0] == "SubAfter"}
    assert set(before) == set(after) == {"GOOD", "BAD", "LATER"}
    assert {record[3] for record in before.values()} == {"CG"}
    assert {id: (r[4], r[6]) for id, r in after.items()} == {
        "GOOD": ("true", "0"), "BAD": ("false", "2"), "LATER": ("false", "4"),
    }  # fmt: skip
    for msg_id, record in after.items():
        assert record[1] == before[msg_id][4]
    assert {key for message in traced(cluster) for key in message.keys} == {
        "GOOD", "BAD", "LATER", "k",
    }  # fmt: skip
    groups = {header.producer_group for header in cluster["a"].sent}
    assert groups == {"_INNER_TRACE_PRODUCER-CG-CONSUME"}


async def test_the_trace_of_a_namespace_has_the_groups_plain_name(cluster: FakeCluster) -> None:
    cluster.put("traces", "a")
    cluster.put("ns%T", "a")
    cluster["a"].store("ns%T", 0, b"x", "UNIQ_KEY\x01ID\x02")
    async with (
        PushConsumer(
            "CG", {"T": "*"}, namesrv=cluster.namesrv, start="begin", trace="traces", namespace="ns"
        ) as c,
        await anext(c) as message,
    ):
        assert message.queue == MessageQueue("T", "a", 0)
    [message_] = traced(cluster, "traces")
    assert [record[3] for record in decode(message_.body.decode()) if record[0] == "SubBefore"] == [
        "CG"
    ]


async def test_a_pull_consumer_records_what_it_hands_out(cluster: FakeCluster) -> None:
    cluster.put(TRACE_TOPIC, "a")
    cluster["a"].store("T", 0, b"x", "UNIQ_KEY\x01ID\x02")
    async with PullConsumer("CG", namesrv=cluster.namesrv, start="begin", trace=True) as c:
        await c.assign("T")
        assert await c.poll(timeout=10)
    [message] = traced(cluster)
    before, after = decode(message.body.decode())
    assert (before[0], before[3], before[5]) == ("SubBefore", "CG", "ID")
    assert (after[0], after[2], after[4]) == ("SubAfter", "ID", "true")
