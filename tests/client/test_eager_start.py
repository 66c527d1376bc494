from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from pocketmq.client.consumer.dispatch.eager_start import begun_coroutine, start

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")

Work = Callable[[list[object]], Coroutine[Any, Any, object]]


class Wrong(Exception):
    pass


async def awaited(coroutine: Coroutine[Any, Any, object]) -> None:
    await coroutine


async def started(coroutine: Coroutine[Any, Any, object]) -> None:
    rest = start(coroutine)
    if rest is not None:
        await rest


async def ends(log: list[object]) -> None:
    log.append("ran")


async def fails(log: list[object]) -> None:
    raise Wrong(len(log))


async def turns(log: list[object]) -> None:
    for number in range(3):
        log.append(number)
        await asyncio.sleep(0)


async def waits(log: list[object]) -> None:
    async with asyncio.timeout(60):
        log.append(await asyncio.sleep(0.001, "slept"))
    log.append(await asyncio.sleep(0, "slept again"))


async def fails_late(log: list[object]) -> None:
    await asyncio.sleep(0)
    raise Wrong("late")


async def times_out(log: list[object]) -> None:
    try:
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()
    except TimeoutError as error:
        log.append(type(error))
    await asyncio.sleep(0)
    async with asyncio.timeout(0.001):
        await asyncio.Event().wait()


async def belongs_to_its_task(log: list[object]) -> None:
    variable.set("before")
    task = asyncio.current_task()
    await asyncio.sleep(0)
    log.append((variable.get(), task is asyncio.current_task()))


async def waits_for_a_future_that_fails(log: list[object]) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_exception, Wrong("future"))
    try:
        await future
    except Wrong as error:
        log.append(str(error))
    await asyncio.sleep(0)


WORKS: list[Work] = [
    ends, fails, turns, waits, fails_late, times_out, belongs_to_its_task,
    waits_for_a_future_that_fails,
]  # fmt: skip


async def told(way: Callable[..., Awaitable[object]], work: Work) -> tuple[object, ...]:
    """All that shows of some work, as a task of its own."""
    log: list[object] = []
    outcome: object
    try:
        outcome = await asyncio.create_task(way(work(log)))  # type: ignore[arg-type]
    except Exception as error:
        outcome = type(error), str(error)
    return (*log, outcome)


@pytest.mark.parametrize("work", WORKS)
async def test_nothing_shows_of_the_way_it_was_begun(work: Work) -> None:
    assert await told(started, work) == await told(awaited, work)


async def test_what_does_not_wait_is_over_at_once() -> None:
    log: list[object] = []
    assert start(ends(log)) is None
    assert log == ["ran"]
    with pytest.raises(Wrong):
        start(fails(log))


async def survives(log: asyncio.Queue[int], times: int) -> None:
    for number in range(times):
        try:
            log.put_nowait(number)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
    await asyncio.sleep(0)


@pytest.mark.parametrize("way", [started, awaited])
@pytest.mark.parametrize("times", [0, 1, 3])
async def test_cancellations(way: Callable[..., Coroutine[Any, Any, object]], times: int) -> None:
    log: asyncio.Queue[int] = asyncio.Queue()
    task = asyncio.create_task(way(survives(log, times)))
    for number in range(times):
        assert await log.get() == number
        task.cancel()
    await task
    task = asyncio.create_task(way(asyncio.Event().wait()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_nobody_awaits_is_closed() -> None:
    closed = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    rest = start(work())
    del rest
    assert closed == [True]


async def test_a_stack_can_be_followed_into_it() -> None:
    events = [asyncio.Event(), asyncio.Event()]
    arrived: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    async def work() -> None:
        for event in events:
            arrived.put_nowait(event)
            await event.wait()

    coroutine = work()
    rest = start(coroutine)
    assert rest is not None

    async def wait() -> None:
        await rest

    task = asyncio.create_task(wait())
    for event in events:
        assert await arrived.get() is event
        await asyncio.sleep(0)
        awaited = task.get_coro().cr_await  # type: ignore[union-attr]
        assert begun_coroutine(awaited) is coroutine
        event.set()
    await task
    assert begun_coroutine(rest) is None
    assert begun_coroutine(coroutine) is None
