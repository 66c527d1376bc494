"""A client goes on whatever ends one of its background tasks, and says so in its log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq import Admin, ConsumedMessage, Message, Producer, PullConsumer, PushConsumer
from tests.client.real_cluster import RealCluster
from tests.client.waiting import client_tasks, until


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[RealCluster]:
    """Brokers whose first retry, of level 3, does not come after 10 s."""
    servers = RealCluster(tmp_path, "b0", "b1", message_delay_level="1s 1s 1s")
    await servers.start()
    yield servers
    await servers.stop()


@pytest.fixture
async def topic(real: RealCluster) -> AsyncIterator[str]:
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("T", queues=2)
        yield "T"


def cancel(name: str) -> int:
    """Cancel the client tasks of this name, as somebody would who cancels all tasks."""
    tasks = [task for task in asyncio.all_tasks() if task.get_name().endswith(f" {name}")]
    for task in tasks:
        task.cancel()
    return len(tasks)


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
async def test_a_push_consumer_goes_on(real: RealCluster, topic: str, orderly: bool) -> None:
    seen: list[int] = []

    async def handle(message: ConsumedMessage) -> None:
        await asyncio.sleep(0)
        seen.append(int(message.body))

    consumer = PushConsumer(
        "G", {topic: "*"}, handler=handle, namesrv=real.namesrv, start="begin", orderly=orderly
    )
    async with Producer("P", namesrv=real.namesrv) as producer, consumer:
        own = consumer.client_id
        count = 0

        async def goes_on() -> None:
            nonlocal count
            for _ in range(8):
                await producer.send(Message(topic, b"%d" % count))
                count += 1
            await until(lambda: set(seen) == set(range(count)))

        await goes_on()
        names = {
            task.get_name().removeprefix(f"{own} ")
            for task in asyncio.all_tasks()
            if task.get_name().startswith(own)
        }
        assert {"route poll", "heartbeat", "rebalance", "commit", "consume"} <= names
        for name in sorted(names):
            assert cancel(name)
            await goes_on()
        for task in asyncio.all_tasks():
            if task.get_name().startswith(own):
                task.cancel()
        await goes_on()
        assert consumer.running


async def test_a_message_whose_worker_is_cancelled_is_redelivered(
    real: RealCluster, topic: str
) -> None:
    seen: list[int] = []
    entered = asyncio.Event()

    async def handle(message: ConsumedMessage) -> None:
        seen.append(message.reconsume_times)
        if message.reconsume_times == 0:
            entered.set()
            await asyncio.Event().wait()

    async with (
        Producer("P", namesrv=real.namesrv) as producer,
        PushConsumer("G", {topic: "*"}, handler=handle, namesrv=real.namesrv, start="begin"),
    ):
        await producer.send(Message(topic, b"x"))
        await entered.wait()
        assert cancel("consume") == 1
        await until(lambda: seen == [0, 1], timeout=60)


@pytest.mark.parametrize("hooked", [False, True])
async def test_a_message_whose_handler_raises_generator_exit_is_redelivered(
    real: RealCluster, topic: str, hooked: bool
) -> None:
    seen: list[int] = []

    def handle(message: ConsumedMessage) -> None:
        seen.append(message.reconsume_times)
        if message.reconsume_times == 0:
            raise GeneratorExit

    async with (
        Producer("P", namesrv=real.namesrv) as producer,
        PushConsumer(
            "G",
            {topic: "*"},
            handler=handle,
            namesrv=real.namesrv,
            start="begin",
            hooks=[object()] if hooked else (),  # type: ignore[list-item]
        ),
    ):
        await producer.send(Message(topic, b"x"))
        await until(lambda: seen == [0, 1], timeout=60)


async def test_a_pull_consumer_goes_on(real: RealCluster, topic: str) -> None:
    async with (
        Producer("P", namesrv=real.namesrv) as producer,
        PullConsumer("G", namesrv=real.namesrv, start="begin") as consumer,
    ):
        await consumer.subscribe(topic)
        for n in range(3):
            await producer.send_batch([Message(topic, b"%d" % (4 * n + k)) for k in range(4)])
            seen: set[int] = set()
            async with asyncio.timeout(30):
                while not seen >= set(range(4 * n, 4 * n + 4)):
                    seen |= {int(message.body) for message in await consumer.poll()}
            for task in asyncio.all_tasks():
                if task.get_name().startswith(consumer.client_id):
                    task.cancel()
        assert consumer.running


async def test_a_producer_goes_on(real: RealCluster, topic: str) -> None:
    async with Producer("P", namesrv=real.namesrv, trace=True) as producer:
        for _ in range(3):
            await producer.send(Message(topic, b"x"))
            for task in asyncio.all_tasks():
                if task.get_name().startswith(producer.client_id):
                    task.cancel()
        await until(lambda: {"route poll", "heartbeat", "detector", "trace"} <= set(client_tasks()))
