"""What a health check asks of producers and consumers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq import Message, NotRunning, Producer, PullConsumer, PushConsumer, Unavailable, sync
from pocketmq.message.message import MessageQueue
from pocketmq.testing import RocketMQ
from tests.client.fake_cluster import FakeCluster
from tests.client.waiting import until

MAKE: list[Callable[[str], Any]] = [
    lambda namesrv: Producer("P", namesrv=namesrv),
    lambda namesrv: PullConsumer("G", namesrv=namesrv),
    lambda namesrv: PushConsumer("G", {"T": "*"}, namesrv=namesrv),
]


@pytest.mark.parametrize("make", MAKE)
async def test_a_client_that_does_not_run_is_not_healthy(
    rocketmq: RocketMQ, make: Callable[[str], Any]
) -> None:
    await rocketmq.create_topic("T")
    client = make(rocketmq.namesrv)
    assert not client.healthy
    assert client.last_success is None
    with pytest.raises(NotRunning):
        await client.ping()
    async with client:
        assert client.healthy
        await client.ping()
    assert not client.healthy


async def test_a_producer_while_its_brokers_are_away(cluster: FakeCluster) -> None:
    cluster.put("T")
    began = time.time()
    async with Producer("P", namesrv=cluster.namesrv, timeout=0.5) as producer:
        assert producer.last_success is None
        await producer.send(Message("T", b"x"))
        await producer.ping()
        assert producer.healthy
        assert producer.last_success is not None
        assert began <= producer.last_success + 0.1
        assert producer.last_success <= time.time()
        for broker in cluster.brokers.values():
            await broker.stop()
        with pytest.raises(Unavailable):
            await producer.ping(timeout=5)
        with pytest.raises(Unavailable):
            await producer.send(Message("T", b"x"))
        await until(lambda: not producer.healthy)
        for broker in cluster.brokers.values():
            await broker.start()
        await producer.ping(timeout=5)
        await until(lambda: producer.healthy)  # the detector has asked


async def test_a_producer_is_healthy_while_one_of_its_brokers_answers(cluster: FakeCluster) -> None:
    cluster.put("T")
    async with Producer("P", namesrv=cluster.namesrv) as producer:
        await producer.queues("T")
        await cluster["a"].stop()
        for _ in range(4):
            await producer.send(Message("T", b"x"))
        await producer.ping(timeout=5)
        assert producer.healthy


async def test_a_producer_before_its_first_send_while_no_name_server_is_there(
    cluster: FakeCluster,
) -> None:
    async with Producer("P", namesrv=cluster.namesrv) as producer:
        await producer.ping()
        await cluster.name_server.stop()
        with pytest.raises(Unavailable):
            await producer.ping()
        assert not producer.healthy


async def test_a_broker_that_comes_back_while_another_hangs_answers_a_ping(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()
    async with Producer("P", namesrv=cluster.namesrv) as producer:
        await producer.queues("T")
        await cluster["a"].stop()
        monkeypatch.setattr(cluster["b"], "heartbeat", lambda _: asked.set())
        ping = asyncio.create_task(producer.ping(timeout=10))
        await asked.wait()
        await cluster["a"].start()
        await ping


async def test_a_name_server_that_comes_back_while_another_hangs_answers_a_ping(
    cluster: FakeCluster,
) -> None:
    asked = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1") as hanging:
        port = hanging.sockets[0].getsockname()[1]
        namesrv = [cluster.namesrv, f"127.0.0.1:{port}"]
        async with Producer("P", namesrv=namesrv) as producer:
            await cluster.name_server.stop()
            ping = asyncio.create_task(producer.ping(timeout=10))
            await asked.wait()
            await cluster.name_server.start()
            await ping
            assert producer.healthy


@pytest.mark.parametrize("push", [False, True])
async def test_the_lag_of_a_consumer(rocketmq: RocketMQ, push: bool) -> None:
    await rocketmq.create_topic("T", queues=1)
    async with Producer("P", namesrv=rocketmq.namesrv) as producer:
        [queue] = await producer.queues("T")
        for _ in range(5):
            await producer.send(Message("T", b"x"))
    gate = asyncio.Event()

    async def handle(message: Any) -> None:
        await gate.wait()

    consumer: Any
    if push:
        consumer = PushConsumer(
            "G", {"T": "*"}, handler=handle, namesrv=rocketmq.namesrv, start="begin"
        )
    else:
        consumer = PullConsumer("G", namesrv=rocketmq.namesrv, start="begin")
    async with consumer:
        if not push:
            await consumer.assign("T")
        await until(lambda: consumer.lag.get(queue) == 5)
        assert consumer.last_success <= time.time()
        gate.set()
        if not push:
            await consumer.poll(5, timeout=10)
            assert consumer.lag == {MessageQueue("T", queue.broker_name, 0): 5}
            await consumer.poll(timeout=0)  # the others are done
        await until(lambda: consumer.lag == {queue: 0})


async def test_a_consumer_while_its_brokers_are_away(cluster: FakeCluster) -> None:
    cluster.put("T")
    async with PullConsumer("G", namesrv=cluster.namesrv, start="begin") as consumer:
        await consumer.assign("T")
        assert consumer.healthy
        for broker in cluster.brokers.values():
            await broker.stop()
        await until(lambda: not consumer.healthy)
        with pytest.raises(Unavailable):
            await consumer.ping(timeout=5)


def test_the_health_of_a_sync_client(rocketmq: RocketMQ) -> None:
    with sync.Producer("P", namesrv=rocketmq.namesrv) as producer:
        producer.ping()
        assert producer.healthy
