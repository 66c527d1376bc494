"""A step of a broker's stop that hangs does not hold up the ones after it."""

from __future__ import annotations

import asyncio

import pytest

from pocketmq.broker.stop_steps import StopSteps


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
        steps.push_unbounded(flush)
        steps.push_async_callback(hang)
        steps.push_async_callback(end, "ended")
        moved = steps.pop_all()
    assert not done
    await moved.aclose()
    assert done == ["ended", "left", "flushed"]
    assert "hang has not ended within 0.001 s; the broker stops without it" in caplog.text


async def test_a_step_that_fails_does_not_hold_up_the_others() -> None:
    done: list[str] = []

    async def flush() -> None:
        done.append("flushed")

    async def fail() -> None:
        raise TimeoutError("of its own")

    steps = StopSteps()
    steps.push_unbounded(flush)
    steps.push_async_callback(fail)
    with pytest.raises(TimeoutError, match="of its own"):
        await steps.aclose()
    assert done == ["flushed"]
