"""What is saved again and again, and once more at the end."""

from __future__ import annotations

import asyncio

from pocketmq.broker.background import PeriodicSave


async def test_a_stop_also_saves_what_changed_during_a_save() -> None:
    value, saved = 1, 0
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def save() -> None:
        nonlocal saved
        taken = value
        begun.set()
        await go_on.wait()
        saved = taken

    periodic = PeriodicSave(0.001, save)
    periodic.start()
    await begun.wait()
    value = 2
    stopping = asyncio.create_task(periodic.stop())
    await asyncio.sleep(0)
    go_on.set()
    await stopping
    assert saved == 2


async def test_a_save_that_fails_is_repeated() -> None:
    calls = 0
    repeated = asyncio.Event()

    async def save() -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            repeated.set()
        raise OSError("the disk is full")

    periodic = PeriodicSave(0.001, save)
    periodic.start()
    await repeated.wait()
    await periodic.stop()
