"""Blocking calls off the event loop, in a thread that does not keep the process alive.

A read from a terminal, or a write to a pager or to a disk that hangs, may block for hours. Python
joins the threads of executors before the process ends, so Ctrl-C would wait for the next line; a
daemon thread is left behind instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_Job = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class BlockingThread:
    """Runs calls one after another; each caller awaits its own. Use inside a running loop."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def call(self, function: Callable[[], T]) -> T:
        """Run `function()` and return its result. If the caller is cancelled, the call
        continues."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((function, future))
        return await future

    def close(self) -> None:
        """End the thread after its pending calls. A blocked thread is abandoned."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, future = job
            try:
                outcome: tuple[Any, BaseException | None] = (function(), None)
            except BaseException as error:  # of any type: the caller handles it
                outcome = (None, error)
            # The loop is closed when the process ends while a call blocks.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_settle, future, *outcome)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
