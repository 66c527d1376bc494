from __future__ import annotations

import asyncio

import pytest

from pocketmq.client.errors import RemotingTimeout
from pocketmq.client.in_flight import InFlight


async def test_places_are_taken_and_given_back() -> None:
    gate = InFlight(2)
    assert gate.try_enter()
    assert gate.try_enter()
    assert not gate.try_enter()
    gate.leave()
    assert gate.try_enter()
    assert gate.count == 2


async def test_a_freed_place_goes_to_who_waits_longest() -> None:
    gate = InFlight(1)
    await gate.enter(1)
    order: list[int] = []

    async def work(number: int) -> None:
        await gate.enter(5)
        order.append(number)

    tasks = [asyncio.create_task(work(i)) for i in range(3)]
    await asyncio.sleep(0)
    gate.leave()
    # Nobody may take the place from under those who wait.
    assert not gate.try_enter()
    for _ in range(2):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gate.leave()
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2]
    assert gate.count == 1


async def test_waiting_ends_in_time() -> None:
    gate = InFlight(1)
    await gate.enter(1)
    with pytest.raises(RemotingTimeout, match="1 operations are in progress"):
        await gate.enter(0.01)
    with pytest.raises(RemotingTimeout):
        await gate.enter(0)
    gate.leave()
    assert gate.count == 0
    await gate.enter(0.01)


async def test_who_is_cancelled_while_waiting_takes_no_place() -> None:
    gate = InFlight(1)
    await gate.enter(1)
    waiting = asyncio.create_task(gate.enter(5))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.leave()
    assert gate.count == 0


async def test_who_is_cancelled_with_a_place_in_hand_gives_it_on() -> None:
    gate = InFlight(1)
    await gate.enter(1)
    first = asyncio.create_task(gate.enter(5))
    second = asyncio.create_task(gate.enter(5))
    await asyncio.sleep(0)
    gate.leave()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    assert gate.count == 1


async def test_drained() -> None:
    gate = InFlight(5)
    assert await gate.drained(0)
    await gate.enter(1)
    await gate.enter(1)
    assert not await gate.drained(0.01)
    waiting = asyncio.create_task(gate.drained(5))
    await asyncio.sleep(0)
    gate.leave()
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.leave()
    assert await waiting


def test_a_gate_without_places_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        InFlight(0)
