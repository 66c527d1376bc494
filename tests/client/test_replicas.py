"""Clients of a broker group whose master is lost: they read from the slave, and follow a new
master, without being restarted."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pocketmq import Message, MessageExt, Producer, PullConsumer, PushConsumer
from pocketmq.broker.config import BrokerRole
from pocketmq.broker.replication.replication import Replication
from pocketmq.types import SendStatus
from tests.broker.controller import group
from tests.broker.replication.pair import running
from tests.client.waiting import until


async def receive(consumer: PullConsumer, count: int) -> list[bytes]:
    bodies: list[bytes] = []
    async with asyncio.timeout(60):
        while len(bodies) < count:
            bodies += [message.body for message in await consumer.poll(32)]
    return bodies


async def test_clients_read_from_the_slave_and_follow_the_new_master(tmp_path: Path) -> None:
    pushed: list[bytes] = []

    async def handle(message: MessageExt) -> None:
        pushed.append(message.body)

    async with running(tmp_path) as pair:
        await pair.start(0, in_sync_replicas=2)
        await pair.start(1)
        await pair.connected()
        replication = pair.slave.components.replication
        assert isinstance(replication, Replication)
        metadata = replication.metadata
        assert metadata is not None
        async with (
            Producer("PG", namesrv=pair.namesrv, timeout=60.0) as producer,
            PullConsumer("G", namesrv=pair.namesrv, start="begin") as consumer,
            PushConsumer("P", namesrv=pair.namesrv, start="begin") as push,
        ):
            for number in range(10):
                await producer.send(Message("T", b"%d" % number))
            await push.subscribe("T", handler=handle)
            await consumer.assign("T")
            assert sorted(await receive(consumer, 5))
            await until(lambda: len(pushed) >= 5, 30)
            await pair.copied()
            await metadata.copy_all()
            more = asyncio.create_task(producer.send(Message("T", b"during")))
            assert (await more).status is SendStatus.SEND_OK
            await pair.copied()
            await pair.stop(0)
            # What was not read yet comes from the slave.
            await until(lambda: {b"during"} <= set(pushed), 60)
            # The slave becomes the master.
            await pair.stop(1)
            waiting = asyncio.create_task(producer.send(Message("T", b"after")))
            await pair.start(
                0, broker_role=BrokerRole.ASYNC_MASTER, store_path_root_dir=str(tmp_path / "1")
            )
            assert (await waiting).status is SendStatus.SEND_OK
            await until(lambda: b"after" in pushed, 60)
            got = set(await receive(consumer, 1))
            while b"after" not in got:
                got |= set(await receive(consumer, 1))
    assert set(pushed) == {b"%d" % number for number in range(10)} | {b"during", b"after"}


async def test_clients_follow_another_master_while_the_old_one_lives(tmp_path: Path) -> None:
    """It is a slave now, answers as one, and the next poll of routes is half a minute away."""
    async with group.running(tmp_path) as members:
        old = await members.start("a")
        new = await members.start("b")
        await members.in_sync(2)
        async with (
            Producer("PG", namesrv=members.namesrv, timeout=60.0) as producer,
            PullConsumer("G", namesrv=members.namesrv, start="begin") as consumer,
        ):
            await producer.send(Message("T", b"before"))
            await consumer.assign("T")
            assert await receive(consumer, 1) == [b"before"]
            # A topic that it has not copied would come back with the queues that have messages.
            topics, copied = old.tables.topics.table, new.tables.topics.table
            await until(lambda: copied.get("T") == topics["T"], 60)
            members.elect("b")
            await until(lambda: old.config.broker_role is BrokerRole.SLAVE, 60)
            async with asyncio.timeout(20):
                sent = await producer.send(Message("T", b"after"))
                assert sent.status is SendStatus.SEND_OK
                assert await receive(consumer, 1) == [b"after"]
