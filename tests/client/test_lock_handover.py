"""The locks of an orderly consumer whose connection ends."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.consumer_event import ConsumerEvent, ConsumerEventKind
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message
from pocketmq.testing import RocketMQ
from tests.client.fake_cluster import FakeCluster
from tests.client.impatient import impatient
from tests.client.test_lock_faults import HASTY, consumer
from tests.client.waiting import until

OWNER = """
import asyncio, sys
from pocketmq import PushConsumer

async def handle(message):
    print("handling", flush=True)
    await asyncio.Event().wait()

async def main():
    async with PushConsumer(
        "G", {"T": "*"}, handler=handle, namesrv=sys.argv[1], start="begin", orderly=True
    ):
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_the_queues_of_a_killed_consumer_are_taken_over(rocketmq: RocketMQ) -> None:
    """Its locks would last for a minute, which is longer than this waits."""
    await rocketmq.create_topic("T", queues=1)
    async with Producer("P", namesrv=rocketmq.namesrv) as producer:
        for body in (b"1", b"2"):
            await producer.send(Message("T", body))
    owner = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        OWNER,
        rocketmq.namesrv,
        cwd=Path(__file__).parents[2],
        stdout=asyncio.subprocess.PIPE,
    )
    assert owner.stdout is not None
    try:
        assert await owner.stdout.readline() == b"handling\n"
        seen: list[bytes] = []
        async with PushConsumer(
            "G",
            {"T": "*"},
            handler=lambda message: seen.append(message.body),
            namesrv=rocketmq.namesrv,
            start="begin",
            orderly=True,
        ):
            owner.kill()
            await until(lambda: len(seen) == 2, timeout=40)
        assert seen == [b"1", b"2"]
    finally:
        with suppress(ProcessLookupError):
            owner.kill()
        await owner.wait()


async def test_nothing_is_handed_out_until_lost_connections_locks_are_confirmed(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = cluster["a"]
    seen: list[bytes] = []
    events: list[ConsumerEventKind] = []
    going_on = asyncio.Event()

    async def handle(message: ConsumedMessage) -> None:
        seen.append(message.body)
        await going_on.wait()

    def note(event: ConsumerEvent) -> None:
        events.append(event.kind)

    async with impatient(PushConsumer, HASTY)(
        "G", {"T": "*"}, handler=handle, namesrv=cluster.namesrv, start="begin", orderly=True,
        on_event=note,
    ) as c:  # fmt: skip
        await until(lambda: len(c.assignment) == 4)
        for body in (b"1", b"2"):
            broker.store("T", 0, body)
        await until(lambda: seen)
        lock, asked = broker.lock, asyncio.Event()
        monkeypatch.setattr(broker, "lock", lambda request: asked.set())
        broker.drop_connections()
        await asked.wait()
        going_on.set()
        await asyncio.sleep(0)
        assert seen == [b"1"]

        monkeypatch.setattr(broker, "lock", lock)
        await until(lambda: len(seen) == 2)
        assert ConsumerEventKind.LOCK_LOST not in events


async def test_a_queue_that_another_has_taken_meanwhile_is_dropped(cluster: FakeCluster) -> None:
    broker = cluster["a"]
    async with consumer(cluster, "1") as c:
        await until(lambda: len(c.assignment) == 4)
        for queue in list(broker.locks):
            broker.locks[queue] = "another"
        broker.drop_connections()
        await until(lambda: {queue.broker_name for queue in c.assignment} == {"b"})
