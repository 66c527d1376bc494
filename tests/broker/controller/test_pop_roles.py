"""POP in a group whose master changes: what the old master knew, and what the next one goes by."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers import NotificationRequestHeader, NotificationResponseHeader
from tests.broker.conftest import Client
from tests.broker.pop.consuming import POLLING_TIMEOUT, PopClient
from tests.broker.replication.pair import client_of
from tests.client.waiting import until

from .group import NAME, PATIENCE, Group, running


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    async with running(tmp_path) as group:
        yield group


@contextlib.asynccontextmanager
async def popping(broker: Broker) -> AsyncIterator[tuple[Client, PopClient]]:
    """A connection, and a consumer of T on it."""
    async with client_of(broker) as client:
        yield client, PopClient(client, "T", broker_name=NAME)


async def fill(client: Client, *bodies: bytes) -> None:
    for body in bodies:
        assert (await client.send("T", body)).code == 0


async def hand_over(group: Group, name: str) -> Broker:
    """Make another member the master; the old one goes on as its slave."""
    await group.in_sync(2)
    await group.copied()
    group.elect(name)
    leader = await group.leads(name)
    await until(lambda: len(group.slaves) == 1, PATIENCE)
    return leader


async def test_a_former_master_does_not_go_on_with_what_it_had_in_memory(group: Group) -> None:
    a = await group.start("a")
    await group.start("b")
    async with popping(a) as (client, pops):
        await fill(client, b"m0", b"m1", b"m2")
        old = await pops.pop()
        assert len(old) == 3
        assert (await pops.ack(old[0])).code == 0
        deliveries = a.components.pop.deliveries
        assert len(deliveries.buffer) == 1
        b = await hand_over(group, "b")
        await until(lambda: not deliveries.buffer.unfinished, PATIENCE)
        assert len(deliveries.buffer) == 0
        assert a.components.pop.in_flight.count(("T", "G", 0)) == 0
        async with popping(b) as (other, others):
            # As after a kill.
            got = await others.pop()
            assert [message.body for message in got] == [b"m0", b"m1", b"m2"]
            for message in got:
                assert (await others.ack(message)).code == 0
            await fill(other, b"m3")
            (last,) = await others.pop()
            assert (await others.ack(last)).code == 0
        assert b.tables.offsets.query("G", "T", 0) == 4
        member = a.components.group
        assert member is not None
        await group.copied()
        await member.metadata.copy_all()
        assert a.tables.offsets.query("G", "T", 0) == 4
        await hand_over(group, "a")
        for message in old[1:]:
            await pops.ack(message)
        assert a.tables.offsets.query("G", "T", 0) == 4
        assert await pops.pop() == []
        assert len(deliveries.buffer) == 0


async def test_who_waits_at_a_former_master_gets_nothing_from_it(group: Group) -> None:
    a = await group.start("a")
    await group.start("b")
    notification = NotificationRequestHeader(
        consumer_group="G", topic="T", queue_id=-1, poll_time=600_000, born_time=0
    )
    async with popping(a) as (client, pops), client_of(a) as asking:
        await fill(client, b"m0")
        (first,) = await pops.pop()
        assert (await pops.ack(first)).code == 0
        parked = asyncio.ensure_future(pops.request(poll_time=600_000))
        asked = asyncio.ensure_future(asking.request(RequestCode.NOTIFICATION, notification))
        components = a.components
        await until(lambda: len(components.pops.polling) == 1, PATIENCE)
        await until(lambda: len(components.notifications.polling) == 1, PATIENCE)
        b = await hand_over(group, "b")
        assert (await parked).code == POLLING_TIMEOUT
        answer = NotificationResponseHeader.from_ext((await asked).ext_fields)
        assert not answer.has_msg
        async with popping(b) as (other, _):
            await fill(other, b"m1")
        await group.copied()
        assert len(components.pop.deliveries.buffer) == 0


async def test_the_next_master_goes_on_with_what_was_written(group: Group) -> None:
    a = await group.start("a", enable_pop_buffer_merge=False)
    async with popping(a) as (client, pops):
        await fill(client, b"m0", b"m1", b"m2")
        got = await pops.pop(invisible_time=300_000)
        assert len(got) == 3
        # Only the second one comes back, however long the change of masters takes.
        await pops.change(got[1], 10_000)
        got[2] = await pops.change(got[2], 200_000)
    # It copies the consumer offsets when it connects.
    b = await group.start("b", enable_pop_buffer_merge=False)
    await until(lambda: b.tables.offsets.query("G", "T", 0) == 3, PATIENCE)
    await hand_over(group, "b")
    async with popping(b) as (_, others):
        assert (await others.ack(got[0])).code == 0
        (back,) = await others.pop(poll_time=60_000)
        assert (back.body, back.record.reconsume_times) == (b"m1", 1)
        assert (await others.ack(back)).code == 0
        assert (await others.ack(got[2])).code == 0
        retry_topic = "%RETRY%G_T"
        assert b.store.max_offset(retry_topic, 0) == 1
        assert await others.pop() == []


async def test_a_reset_that_was_not_told_ends_with_the_reign(group: Group) -> None:
    a = await group.start("a")
    await group.start("b")
    async with popping(a) as (client, _):
        await fill(client, b"m0", b"m1")
    a.tables.groups.find("G")
    a.tables.offsets.reset("G", "T", {0: 0})
    await hand_over(group, "b")
    await until(lambda: not a.tables.offsets.has_reset("G", "T", 0), PATIENCE)
