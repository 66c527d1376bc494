"""What the settings of a member change, over real connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq.remoting.codes import ResponseCode
from tests.broker.replication.pair import client_of
from tests.client.waiting import until
from tests.interop.harness.ha_proxy import HaProxy

from .group import FILE, PATIENCE, Group, running
from .test_group import read, send, stored

LARGE = b"x" * 100_000  # two in a file of the log


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    async with running(tmp_path) as group:
        yield group


async def test_a_learner_has_everything_and_never_a_say(group: Group) -> None:
    """asyncLearner: sends do not wait for it, and it does not become the master."""
    a = await group.start("a")
    assert await send(a, b"before") == [0]
    learner = await group.start("b", async_learner=True)
    await until(lambda: a.components.replication.figures()["haSlaves"] == 1, PATIENCE)
    await group.copied()
    assert await send(a, b"after") == [0]
    await group.copied()
    assert stored(learner) == [b"before", b"after"]
    assert group.controller.decides.members == {1}
    async with client_of(learner) as client:
        assert await read(client) == [b"before", b"after"]
    await group.stop("a")
    group.elect()
    assert group.controller.decides.master == 0
    assert await send(learner, b"no") == [ResponseCode.SYSTEM_BUSY]


async def test_an_empty_member_may_begin_with_the_newest_file(group: Group) -> None:
    """syncFromLastFile; it becomes a member as the others do, and leads."""
    a = await group.start("a")
    assert await send(a, *[LARGE] * 7) == [0] * 7
    newest = a.store.commit_log.end // FILE * FILE
    assert newest == 3 * FILE
    b = await group.start("b", sync_from_last_file=True)
    c = await group.start("c")
    await group.in_sync(3)
    await group.copied()
    assert (b.store.commit_log.min_offset, c.store.commit_log.min_offset) == (newest, 0)
    assert stored(b) == [LARGE]
    await group.stop("a")
    group.elect("b")
    assert await group.leads("b") is b
    await group.in_sync(2)
    assert await send(b, b"last") == [0]
    await group.copied()
    assert stored(c) == [*[LARGE] * 7, b"last"]
    async with client_of(b) as client:
        answer = await client.pull("T", 0)
        assert (answer.ext_fields["minOffset"], answer.ext_fields["maxOffset"]) == ("6", "8")
        assert [record.body for record in await client.pulled("T", 6)] == [LARGE, b"last"]


async def test_a_member_that_begins_with_the_newest_file_confirms_nothing_from_before(
    group: Group,
) -> None:
    """Of the sends that wait when it comes; nor when it connects again."""
    a = await group.start(
        "a", all_ack_in_sync_state_set=False, in_sync_replicas=2, slave_timeout=3_600_000
    )
    async with client_of(a) as client:
        before, between, after = [asyncio.ensure_future(client.send("T", LARGE)) for _ in range(3)]
        figures = a.components.replication.figures
        await until(lambda: figures()["haSendsWaiting"] == 3, PATIENCE)
        await group.start("b", sync_from_last_file=True)
        assert (await after).code == 0
        await group.stop("b")
        await group.start("b", sync_from_last_file=True)
        assert (await client.send("T", b"last")).code == 0
        assert not before.done()
        assert not between.done()


async def test_what_is_not_confirmed_can_be_read_if_that_is_wanted(group: Group) -> None:
    """readUnCommitted, beside a send that the member that is away would have to confirm."""
    a = await group.start("a", slave_timeout=50, read_un_committed=True)
    await group.start("b")
    await group.in_sync(2)
    assert await send(a, b"seen") == [0]
    group.controller.keeps_set = True
    await group.stop("b")
    assert await send(a, b"uncertain") == [ResponseCode.FLUSH_SLAVE_TIMEOUT]
    confirmed = a.components.replication.figures()["confirmOffset"]
    assert isinstance(confirmed, int)
    assert confirmed < a.store.commit_log.end
    async with client_of(a) as client:
        assert await read(client) == [b"seen", b"uncertain"]


@pytest.mark.parametrize("quiet", ["master", "slave"])
async def test_a_silent_peer_is_left(
    quiet: str, group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    """haHousekeepingInterval, of a connection that stays open, as when a cable is pulled."""
    short, long = 3_000, 600_000
    a = await group.start("a", ha_housekeeping_interval=short if quiet == "slave" else long)
    proxy = HaProxy(a.components.replication.ha_address)
    a.components.replication.ha_address = proxy.address  # what its slaves are told
    try:
        b = await group.start("b", ha_housekeeping_interval=short if quiet == "master" else long)
        await group.in_sync(2)
        assert await send(a, b"1") == [0]
        proxy.let_pass(0, by_slave=quiet == "slave")
        await group.in_sync(1)
        if quiet == "master":
            silence = f"no connection to the master's HA port {proxy.address}: silence"
            await until(lambda: silence in caplog.text, PATIENCE)
        proxy.cut()
        await group.in_sync(2)
        assert await send(a, b"2") == [0]
        await group.copied()
        assert stored(b) == [b"1", b"2"]
    finally:
        proxy.close()


async def test_the_priority_is_told_with_every_heartbeat(group: Group) -> None:
    """brokerElectionPriority; which member an official controller chooses by it:
    tests/interop/test_group_settings.py."""
    await group.start("a", broker_election_priority=7)
    await group.start("b")
    await group.in_sync(2)
    told = {beat.broker_id: beat.election_priority for beat in group.controller.heartbeats}
    assert told == {1: 7, 2: 2**31 - 1}
