"""A step of a server's stop that hangs does not hold up the ones after it."""

from __future__ import annotations

import asyncio

import pytest

from pocketmq.remoting.serving.stop_steps import StopSteps


async def test_a_step_that_hangs_is_left(caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []

    async def flush() -> None:
        await asyncio.sleep(0.01)  # longer than a step may take
        done.append("flushed")

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            done.append("left")

    async def end(what: str) -> None:
        done.append(what)

    async with StopSteps(0.001) as steps:
        steps.push_async_callback(flush)
        steps.push_step(hang)
        steps.push_step(end, "ended")
        moved = steps.pop_all()
    assert not done
    await moved.aclose()
    assert done == ["ended", "left", "flushed"]
    assert "hang has not ended within 0.001 s; the stop goes on without it" in caplog.text


async def test_a_step_that_ignores_its_cancellation_is_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: list[str] = []
    may_end = asyncio.Event()

    async def flush() -> None:
        done.append("flushed")

    async def ignore() -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                done.append("ignored")
        done.append("ended")
        ended.set()

    ended = asyncio.Event()
    steps = StopSteps(0.001)
    steps.push_async_callback(flush)
    steps.push_step(ignore)
    await steps.aclose()
    assert done == ["ignored", "flushed"]
    assert "ignore has not ended within 0.001 s" in caplog.text
    may_end.set()
    await ended.wait()


async def test_a_stop_that_is_cancelled_takes_its_step_along() -> None:
    hanging, left = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        hanging.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    steps = StopSteps()
    steps.push_step(hang)
    stopping = asyncio.ensure_future(steps.aclose())
    await hanging.wait()
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert left.is_set()


async def test_a_step_that_fails_does_not_hold_up_the_others() -> None:
    done: list[str] = []

    async def flush() -> None:
        done.append("flushed")

    async def fail() -> None:
        raise TimeoutError("of its own")

    steps = StopSteps()
    steps.push_async_callback(flush)
    steps.push_step(fail)
    with pytest.raises(TimeoutError, match="of its own"):
        await steps.aclose()
    assert done == ["flushed"]
