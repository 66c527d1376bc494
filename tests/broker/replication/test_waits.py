"""Sends that wait for replicas, beside what else decides: the disk, the other children of a parent,
and whether there are enough replicas."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq.broker.replication.replica_waits import ReplicaWaits, enough
from pocketmq.remoting.codes import ResponseCode
from pocketmq.store.config import FlushDiskType
from pocketmq.store.files import Files
from tests.broker.batch.batches import Child, batch, send
from tests.broker.conftest import Client
from tests.broker.replication.pair import Pair, classic, client_of, reporter, running
from tests.client.waiting import until

TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
HOUR_MS = 3_600_000
UNCONFIRMED = {"WAIT": "false"}


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with running(tmp_path) as pair:
        yield pair


def children(count: int) -> list[Child]:
    """Sends, every fifth of which does not wait."""
    return [
        send("T", b"%d" % n, properties={} if n % 5 else UNCONFIRMED, queue_id=n % 4)
        for n in range(count)
    ]


async def make_topic(client: Client) -> None:
    """The first parent makes the topic and its queues, the second one finds them: from then on
    children are stored together."""
    for _ in range(2):
        await batch(client, [send("T", properties=UNCONFIRMED, queue_id=n) for n in range(4)])


def test_what_a_new_copy_lacks_holds_up_nothing_that_is_added_later() -> None:
    heard: list[tuple[int, bool]] = []
    copies = [(100, 300)]
    waits = ReplicaWaits(lambda end, needed: enough(copies, end, needed))
    waits.acked(100)
    for end in (50, 80, 150, 400):
        waits.add(end, 2, 1.0, lambda done, end=end: heard.append((end, done)))  # type: ignore[misc]
    assert heard == [(150, True)]
    copies[0] = (0, 400)
    waits.acked()
    assert sorted(heard) == [(end, True) for end in (50, 80, 150, 400)]


# --- children of a parent ---------------------------------------------------------------------


async def test_a_parent_waits_once_until_the_replica_has_all(pair: Pair) -> None:
    master = await pair.start(0, in_sync_replicas=2, slave_timeout=HOUR_MS)
    waits = classic(master).service
    async with client_of(master) as client, reporter(master) as slave:
        await make_topic(client)
        answered = asyncio.create_task(batch(client, children(50)))
        await until(lambda: len(waits) > 0)
        assert len(waits) == 1, "one wait for all children"
        end = master.store.commit_log.written
        await slave.report(end - 1)
        assert len(waits) == 1
        await slave.report(end)
        assert [answer.code for answer in await answered] == [0] * 50


async def test_a_parent_that_the_replica_does_not_confirm(pair: Pair) -> None:
    master = await pair.start(0, in_sync_replicas=2, slave_timeout=50)
    async with client_of(master) as client:
        await make_topic(client)
        before = master.store.counters.messages_put
        codes = [answer.code for answer in await batch(client, children(20))]
    assert codes == [TIMEOUT if n % 5 else 0 for n in range(20)]
    assert master.store.counters.messages_put == before + 20


async def test_a_parent_for_which_there_are_too_few_replicas(pair: Pair) -> None:
    master = await pair.start(0, in_sync_replicas=2, enable_slave_acting_master=True)
    async with client_of(master) as client:
        await make_topic(client)
        before = master.store.counters.messages_put
        answers = await batch(client, children(20))
    assert [answer.code for answer in answers] == [1 if n % 5 else 0 for n in range(20)]
    assert {answer.remark for answer in answers if answer.code} == {"in-sync replicas not enough"}
    assert master.store.counters.messages_put == before + 4


async def test_a_send_whose_replica_leaves_is_stored_though_the_next_is_refused(pair: Pair) -> None:
    master = await pair.start(
        0, in_sync_replicas=2, enable_slave_acting_master=True, slave_timeout=200
    )
    async with client_of(master) as client:
        async with reporter(master) as slave:
            await slave.report(master.store.commit_log.written)
            sending = asyncio.create_task(client.send("T"))
            await until(lambda: len(classic(master).service) == 1)
        await until(lambda: bool(master.store.refusal))
        assert (await sending).code == TIMEOUT
        assert (await client.send("T")).code == 1


# --- the disk ---------------------------------------------------------------------------------


async def test_a_send_waits_for_the_disk_and_for_the_replica(pair: Pair) -> None:
    master = await pair.start(
        0, in_sync_replicas=2, slave_timeout=HOUR_MS, flush_disk_type=FlushDiskType.SYNC_FLUSH
    )
    store = master.store
    async with client_of(master) as client, reporter(master) as slave:
        sending = asyncio.create_task(client.send("T"))
        await until(lambda: store.commit_log.written and len(classic(master).service) == 1)
        end = store.commit_log.written
        await until(lambda: store.flushed_offset >= end)
        assert len(classic(master).service) == 1
        await slave.report(end)
        assert (await sending).code == 0


async def test_a_slave_gets_only_what_is_on_the_disk(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut takes nothing from the master that the slave has: it could not continue."""
    may_flush = threading.Event()
    fdatasync = Files.fdatasync

    def slow(files: Files, fd: int) -> None:
        may_flush.wait()
        fdatasync(files, fd)

    master = await pair.start(
        0, in_sync_replicas=2, slave_timeout=HOUR_MS, flush_disk_type=FlushDiskType.SYNC_FLUSH
    )
    slave = await pair.start(1, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    await pair.connected()
    async with client_of(master) as client:
        assert (await client.send("T")).code == 0
        await pair.copied()
        before = slave.store.commit_log.end
        monkeypatch.setattr(Files, "fdatasync", slow)
        try:
            sending = asyncio.create_task(client.send("T"))
            await until(lambda: master.store.commit_log.written > before)
            (connection,) = classic(master).service.server.connections
            connection.tick()
            await asyncio.sleep(0)  # the turn of the sender
            assert connection.feed.next == before
        finally:
            may_flush.set()
        assert (await sending).code == 0
        await pair.copied()
