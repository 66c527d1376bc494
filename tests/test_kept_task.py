"""Background work that ends unexpectedly is logged and started again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.kept_task import KeptTask


class Loop:
    """Work that never ends by itself, and counts its beginnings."""

    def __init__(self) -> None:
        self.begun = 0
        self.began = asyncio.Event()
        self.end: asyncio.Future[None]

    async def run(self) -> None:
        self.begun += 1
        self.end = asyncio.get_running_loop().create_future()
        self.began.set()
        await self.end

    async def next(self) -> None:
        async with asyncio.timeout(60):
            await self.began.wait()
        self.began.clear()


def cancelled(work: Loop, task: asyncio.Task[Any]) -> None:
    task.cancel()


def returned(work: Loop, task: asyncio.Task[Any]) -> None:
    work.end.set_result(None)


def raising(error: BaseException) -> Callable[[Loop, asyncio.Task[Any]], None]:
    def end(work: Loop, task: asyncio.Task[Any]) -> None:
        work.end.set_exception(error)

    return end


ENDS = {
    "was cancelled; restarted it after": cancelled,
    "ended; restarting it in": returned,
    "ended with KeyError('k'); restarting it in": raising(KeyError("k")),
    "ended with MemoryError(); restarting it in": raising(MemoryError()),
    "ended with GeneratorExit(); restarting it in": raising(GeneratorExit()),
}


def task_of(name: str) -> asyncio.Task[Any]:
    [task] = [task for task in asyncio.all_tasks() if task.get_name() == name]
    return task


@pytest.mark.parametrize(("text", "end"), ENDS.items(), ids=ENDS)
async def test_whatever_ends_the_work_it_begins_again(
    text: str, end: Callable[[Loop, asyncio.Task[Any]], None], caplog: pytest.LogCaptureFixture
) -> None:
    work = Loop()
    kept = KeptTask(work.run, "polls")
    await work.next()
    end(work, task_of("polls"))
    await work.next()
    assert work.begun == 2
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == f"polls {text} 0.1 s"
    await asyncio.wait([kept.cancel()])


def test_a_loop_that_ends_says_nothing_of_what_it_cancels(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def program() -> None:
        work = Loop()
        KeptTask(work.run, "polls")
        await work.next()

    asyncio.run(program())
    assert not caplog.records


async def test_its_owner_ends_it_for_good(caplog: pytest.LogCaptureFixture) -> None:
    work = Loop()
    kept = KeptTask(work.run, "polls")
    await work.next()
    task = kept.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert not caplog.records


async def test_an_end_that_is_meant(caplog: pytest.LogCaptureFixture) -> None:
    work = Loop()
    KeptTask(work.run, "search", ends=True)
    await work.next()
    task = task_of("search")
    work.end.set_result(None)
    await asyncio.wait([task])
    assert not caplog.records


async def test_work_that_waits_to_be_started_again_finishes_first() -> None:
    done: list[int] = []
    finishing = False

    async def work() -> None:
        if not finishing:
            raise KeyError
        done.append(1)

    kept = KeptTask(work, "writes")
    await asyncio.wait([task_of("writes")])
    finishing = True
    await kept.finish()
    assert done == [1]


async def test_an_owner_that_does_not_run_has_nothing_started_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    work = Loop()
    running = True
    KeptTask(work.run, "polls", wanted=lambda: running)
    await work.next()
    running = False
    task = task_of("polls")
    task.cancel()
    await asyncio.wait([task])
    assert not caplog.records
