"""Who is told that members of a consumer group have changed, and how often."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.broker.member_notices import MemberNotices
from pocketmq.broker.tables.consumer_groups import ClientInfo, ConsumerGroups
from pocketmq.remoting.bodies.heartbeat import ConsumerData
from pocketmq.remoting.errors import RemotingClosed
from pocketmq.remoting.monotonic import MonotonicMs

COUNT = 1000


class Timers:
    """Timers that run when the test says so."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def __call__(self, seconds: float, callback: Callable[[], None]) -> Timers:
        self.calls.append((seconds, callback))
        return self

    def cancel(self) -> None:
        self.calls.clear()

    def run(self) -> None:
        calls, self.calls = self.calls, []
        for _, callback in calls:
            callback()


class FakeConnection:
    peer = ("127.0.0.1", 4711)

    def __init__(self, world: World) -> None:
        self.world = world
        self.callbacks: list[Callable[[Any], None]] = []
        self.closed = False

    def add_close_callback(self, callback: Callable[[Any], None]) -> None:
        self.callbacks.append(callback)

    def send_oneway(self, code: int, header: Any) -> None:
        if self.closed:
            raise RemotingClosed("closed", "client")
        self.world.told[header.consumer_group, self] += 1

    def close(self) -> None:
        self.closed = True
        for callback in self.callbacks:
            callback(self)


class World:
    def __init__(self) -> None:
        self.timers = Timers()
        self.wanted = True
        self.told: Counter[tuple[str, FakeConnection]] = Counter()
        self.notices = MemberNotices(lambda: self.wanted, self.timers)
        self.groups = ConsumerGroups(self.notices.changed, lambda: MonotonicMs(0))

    def join(self, group: str = "G") -> FakeConnection:
        connection = FakeConnection(self)
        data = ConsumerData(group_name=group, message_model="CLUSTERING")
        client = ClientInfo(connection, f"c{id(connection)}", "JAVA", 479, MonotonicMs(0))
        self.groups.register(data, client, notify_enabled=True)
        return connection

    async def turns(self) -> int:
        """How many turns of the event loop it takes until nobody is told any more."""
        turns, quiet, before = 0, 0, -1
        while quiet < 3:
            quiet = quiet + 1 if self.told.total() == before else 0
            before = self.told.total()
            await asyncio.sleep(0)
            turns += 1
        return turns


@pytest.fixture
def world() -> World:
    return World()


async def test_a_change_is_told_at_once(world: World) -> None:
    one = world.join()
    await world.turns()
    assert world.told == {("G", one): 1}
    other, alone = world.join(), world.join("H")
    await world.turns()
    world.timers.run()
    await world.turns()
    assert world.told == {("G", one): 2, ("G", other): 1, ("H", alone): 1}


async def test_many_changes_at_one_moment_are_told_twice_at_most(world: World) -> None:
    """Each of them to each member was a million notices."""
    members = [world.join() for _ in range(COUNT)]
    assert await world.turns() > 10  # and others had their turns
    ((pause, _),) = world.timers.calls
    assert pause == pytest.approx(0.4)
    world.timers.run()
    await world.turns()
    assert min(world.told["G", one] for one in members) >= 1
    assert max(world.told.values()) <= 2

    world.told.clear()
    world.timers.run()
    for one in members[1:]:
        one.close()
    await world.turns()
    assert world.told == {("G", members[0]): 1}
    world.timers.run()
    await world.turns()
    assert world.told.total() <= 2


async def test_who_has_left_meanwhile_is_not_told(world: World) -> None:
    members = [world.join() for _ in range(200)]
    await asyncio.sleep(0)
    left = [one for one in members if not world.told["G", one]]
    assert left
    for one in left:
        one.close()
    await world.turns()
    assert not any(world.told["G", one] for one in left)


async def test_nobody_is_told_unless_it_is_wanted(world: World) -> None:
    world.wanted = False
    world.join()
    await world.turns()
    assert not world.told


@pytest.mark.parametrize("turns", [0, 1])
async def test_after_a_stop_nobody_is_told(world: World, turns: int) -> None:
    """Also of a group of which some were told."""
    for _ in range(COUNT):
        world.join()
    for _ in range(turns):
        await asyncio.sleep(0)
    told = world.told.total()
    world.notices.stop()
    await world.turns()
    assert world.told.total() == told
    assert not world.timers.calls
