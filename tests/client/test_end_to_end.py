"""Producers and consumers against our own servers, with restarts in every order."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime
from typing import Literal

import pytest

from pocketmq.client.admin import Admin
from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.errors import NoRouteInfo, SendError
from pocketmq.client.producer.producer import Producer
from pocketmq.client.selector.switches import CLIENT_CONFIG_NAMESPACE
from pocketmq.client.send_result import SendResult, SendStatus
from pocketmq.message.message import Message, MessageExt, MessageQueue
from tests.client.fake_cluster import FakeCluster
from tests.client.impatient import impatient
from tests.client.real_cluster import RealCluster
from tests.client.waiting import until


@pytest.fixture
async def topic(real: RealCluster) -> str:
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("orders", queues=2)
    return "orders"


async def receive(consumer: PullConsumer, count: int) -> list[MessageExt]:
    messages: list[MessageExt] = []
    async with asyncio.timeout(30):
        while len(messages) < count:
            messages += await consumer.poll(256)
    return messages


async def test_every_field_arrives(real: RealCluster, topic: str) -> None:
    message = Message(
        topic,
        b"body " * 2000,
        tags="paid",
        keys=["o-1", "o-2"],
        properties={"currency": "€", "n": "1"},
        flag=-7,
        wait_stored=False,
    )
    before = datetime.now(UTC)
    async with (
        Producer("PG", namesrv=real.namesrv) as producer,
        PullConsumer("G", namesrv=real.namesrv) as consumer,
    ):
        await consumer.assign(topic)
        sent = await producer.send(message)
        assert sent.status is SendStatus.SEND_OK
        (got,) = await receive(consumer, 1)
    assert (got.topic, got.body, got.tags, got.keys) == (
        topic,
        message.body,
        "paid",
        ("o-1", "o-2"),
    )
    assert got.properties.items() >= {"currency": "€", "n": "1", "WAIT": "false"}.items()
    assert (got.flag, got.reconsume_times) == (-7, 0)
    assert got.queue == sent.queue
    assert got.queue_offset == sent.queue_offset
    assert got.msg_id == sent.msg_id == sent.transaction_id
    assert got.offset_msg_id == sent.offset_msg_id
    assert got.born_timestamp >= int(before.timestamp() * 1000)
    assert got.born_host.startswith("127.0.0.1:")


async def test_batches_arrive_with_their_ids_and_offsets(real: RealCluster, topic: str) -> None:
    messages = [Message(topic, b"%d" % i, tags="ab"[i % 2], keys=[f"k{i}"]) for i in range(300)]
    async with (
        Producer("PG", namesrv=real.namesrv, batch_bytes=4096) as producer,
        PullConsumer("G", namesrv=real.namesrv, start="begin") as consumer,
    ):
        results = await producer.send_batch(messages)
        await consumer.assign(topic)
        got = {message.msg_id: message for message in await receive(consumer, 300)}
    assert len(got) == 300
    for message, result in zip(messages, results, strict=True):
        arrived = got[result.msg_id]
        assert (arrived.body, arrived.tags, list(arrived.keys)) == (
            message.body,
            message.tags,
            message.keys,
        )
        assert (arrived.queue, arrived.queue_offset) == (result.queue, result.queue_offset)
        assert arrived.offset_msg_id == result.offset_msg_id


async def test_tags_are_filtered(real: RealCluster, topic: str) -> None:
    async with (
        Producer("PG", namesrv=real.namesrv) as producer,
        PullConsumer("G", namesrv=real.namesrv, start="begin") as consumer,
    ):
        for tag in ("Aa", "BB", "C", None) * 5:
            await producer.send(Message(topic, b"x", tags=tag))
        await consumer.assign(topic, tags="Aa || C")
        assert Counter(m.tags for m in await receive(consumer, 10)) == {"Aa": 5, "C": 5}
        assert await consumer.poll(timeout=0.05) == []


async def test_a_held_pull_is_woken_at_once(real: RealCluster, topic: str) -> None:
    async with (
        Producer("PG", namesrv=real.namesrv) as producer,
        PullConsumer("G", namesrv=real.namesrv) as consumer,
    ):
        await consumer.assign(topic)
        for i in range(20):
            await producer.send(Message(topic, b"%d" % i))
            # Otherwise the broker holds it for 15 s.
            assert [m.body for m in await consumer.poll(timeout=10)] == [b"%d" % i]


async def test_a_topic_is_created_by_its_first_message(real: RealCluster) -> None:
    async with (
        Producer("PG", namesrv=real.namesrv) as producer,
        impatient(PullConsumer, Pauses(missing_topic=0.02))("G", namesrv=real.namesrv) as consumer,
    ):
        await consumer.assign("fresh")
        assert consumer.assignment == []
        await producer.send(Message("fresh", b"first"))
        assert [m.body for m in await receive(consumer, 1)] == [b"first"]


async def test_a_topic_that_may_not_be_created(real: RealCluster) -> None:
    async with Producer("PG", namesrv=real.namesrv, template_topic="no_such_template") as producer:
        with pytest.raises(NoRouteInfo):
            await producer.send(Message("fresh", b"x"), timeout=0.5)


async def test_a_group_goes_on_where_it_stopped(real: RealCluster, topic: str) -> None:
    async with Producer("PG", namesrv=real.namesrv) as producer:
        sent = {(await producer.send(Message(topic, b"%d" % i))).msg_id for i in range(40)}
    seen: list[str] = []
    for _ in range(4):
        async with PullConsumer("G", namesrv=real.namesrv, start="begin") as consumer:
            await consumer.assign(topic)
            seen += [(await anext(consumer)).msg_id for _ in range(10)]
    assert set(seen) == sent
    assert len(seen) == 40


async def next_millisecond() -> None:
    """Return when the clock of the stores shows another time."""
    now = time.time_ns() // 1_000_000
    await until(lambda: time.time_ns() // 1_000_000 > now)


async def test_seek_by_time(real: RealCluster, topic: str) -> None:
    async with (
        Producer("PG", namesrv=real.namesrv) as producer,
        PullConsumer("G", namesrv=real.namesrv) as consumer,
    ):
        await producer.send_batch([Message(topic, b"old") for _ in range(8)])
        await next_millisecond()
        middle = datetime.now(UTC)
        await next_millisecond()
        await producer.send_batch([Message(topic, b"new") for _ in range(8)])
        await consumer.assign(topic)
        await consumer.seek(middle)
        assert {m.body for m in await receive(consumer, 8)} == {b"new"}
        assert await consumer.poll(timeout=0.05) == []


@pytest.mark.parametrize(("start", "expected"), [("begin", 8), ("end", 0), (1, 4)])
async def test_where_a_new_group_starts(
    real: RealCluster, topic: str, start: Literal["begin", "end"] | int, expected: int
) -> None:
    # Two in each queue.
    async with Producer("PG", namesrv=real.namesrv, selection="round-robin") as producer:
        for i in range(8):
            await producer.send(Message(topic, b"%d" % i))
    async with PullConsumer("G", namesrv=real.namesrv, start=start) as consumer:
        await consumer.assign(topic)
        assert len(await receive(consumer, expected)) == expected
        assert await consumer.poll(timeout=0.05) == []


async def test_two_consumers_share_a_topic(real: RealCluster, topic: str) -> None:
    async with PullConsumer("G", namesrv=real.namesrv, start="begin") as first:
        await first.subscribe(topic)
        await until(lambda: len(first.assignment) == 4)
        async with PullConsumer("G", namesrv=real.namesrv, start="begin") as second:
            await second.subscribe(topic)
            # The broker tells the first one that it is not alone any more.
            await until(lambda: len(first.assignment) == len(second.assignment) == 2)
            # Each consumer is to get its ten.
            async with Producer("PG", namesrv=real.namesrv, selection="round-robin") as producer:
                sent = {(await producer.send(Message(topic, b"x"))).msg_id for _ in range(20)}
            got = [m.msg_id for c in (first, second) for m in await receive(c, 10)]
            assert sorted(got) == sorted(sent)
        await until(lambda: len(first.assignment) == 4)


async def send_steadily(
    producer: Producer, topic: str, stop: asyncio.Event, stored: list[SendResult]
) -> int:
    """Send until told to stop; returns how many sends failed."""
    failed = 0
    while not stop.is_set():
        try:
            stored.append(await producer.send(Message(topic, b"%d" % len(stored))))
        except SendError:
            failed += 1
        await asyncio.sleep(0.001)
    return failed


async def test_no_send_fails_while_one_of_two_brokers_restarts(
    real: RealCluster, topic: str
) -> None:
    stored: list[SendResult] = []
    stop = asyncio.Event()
    async with Producer("PG", namesrv=real.namesrv) as producer:
        sending = asyncio.create_task(send_steadily(producer, topic, stop, stored))
        await until(lambda: len(stored) > 50)
        await real.stop_broker("b0")
        count = len(stored)
        await until(lambda: len(stored) > count + 50)
        assert {r.queue.broker_name for r in stored[-40:]} == {"b1"}
        await real.start_broker("b0")
        stop.set()
        assert await sending == 0
    async with PullConsumer("G", namesrv=real.namesrv, start="begin") as consumer:
        await consumer.assign(topic)
        got = {message.msg_id: message for message in await receive(consumer, len(stored))}
    for result in stored:
        assert got[result.msg_id].queue_offset == result.queue_offset


@pytest.mark.parametrize(
    "order", [("namesrv", "b0", "b1"), ("b0", "b1", "namesrv"), ("b1", "namesrv", "b0")]
)
async def test_clients_survive_restarts_in_any_order(
    real: RealCluster, topic: str, order: tuple[str, ...]
) -> None:
    async with (
        Producer("PG", namesrv=real.namesrv) as producer,
        PullConsumer("G", namesrv=real.namesrv, start="begin") as consumer,
    ):
        await consumer.assign(topic)
        sent = {(await producer.send(Message(topic, b"x"))).msg_id for _ in range(8)}
        got = {m.msg_id for m in await receive(consumer, 8)}
        for name in order:
            if name == "namesrv":
                await real.name_server.stop()
                await real.start_name_server()
            else:
                await real.stop_broker(name)
                await real.start_broker(name)
            more = {(await producer.send(Message(topic, b"x"))).msg_id for _ in range(8)}
            sent |= more
            async with asyncio.timeout(20):
                while not more <= got:
                    got |= {m.msg_id for m in await consumer.poll(64)}
    assert got == sent


async def test_the_switches_are_read_from_the_name_server(real: RealCluster, topic: str) -> None:
    async with (
        Admin(namesrv=real.namesrv) as admin,
        Producer("PG", namesrv=real.namesrv, route_interval=0.01) as producer,
    ):
        await admin.put_config(CLIENT_CONFIG_NAMESPACE, "sendLatencyEnable", "false")
        await until(lambda: not producer.switches.send_latency_enable)
        await admin.delete_config(CLIENT_CONFIG_NAMESPACE, "sendLatencyEnable")
        await until(lambda: producer.switches.send_latency_enable)


async def test_the_detector_finds_a_broker_that_is_back(real: RealCluster, topic: str) -> None:
    async with Producer("PG", namesrv=real.namesrv, detect_interval_ms=50) as producer:
        await producer.send(Message(topic, b"x"))
        await real.stop_broker("b0")

        def reachable() -> bool:
            return all(broker.reachable for broker in producer.brokers)

        async with asyncio.timeout(10):
            while reachable():
                await producer.send(Message(topic, b"x"))
        await real.start_broker("b0")
        await until(reachable)
        # It is tried at once, and one answer is enough.
        async with asyncio.timeout(10):
            while (await producer.send(Message(topic, b"x"))).queue.broker_name != "b0":
                pass
        assert all(broker.available for broker in producer.brokers)


async def test_a_queue_of_ones_own_choice(real: RealCluster, topic: str) -> None:
    queue = MessageQueue(topic, "b1", 1)
    async with (
        Producer("PG", namesrv=real.namesrv) as producer,
        PullConsumer("G", namesrv=real.namesrv, start="begin") as consumer,
    ):
        for i in range(10):
            await producer.send(Message(topic, b"%d" % i), queue=queue)
        await consumer.assign([queue])
        assert [m.body for m in await receive(consumer, 10)] == [b"%d" % i for i in range(10)]


async def test_shutdown_closes_every_connection(cluster: FakeCluster) -> None:
    servers = [cluster.name_server, *cluster.brokers.values()]
    async with (
        Producer("PG", namesrv=cluster.namesrv) as producer,
        PullConsumer("G", namesrv=cluster.namesrv) as consumer,
    ):
        await consumer.assign("T")
        await producer.send(Message("T", b"x"))
        await producer.send_oneway(Message("T", b"x"))
        assert all(server.connections for server in servers)
    await until(lambda: not any(server.connections for server in servers))
