"""Background work that is restarted, and logged, if it ends unexpectedly."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)

Spawn = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]

#: Seconds before work that ended is restarted: the first pause, and the longest. The pauses start
#: over for work that ran longer than the longest pause.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0


class KeptTask:
    """Runs `work`, which must not end by itself, until `cancel`.

    Any other end (an exception, a cancellation from elsewhere, a return) is logged with its cause,
    and the work restarts after a pause that doubles each time. With `ends`, a return is the
    intended end. `spawn` creates the tasks; None creates them in the running loop. `wanted` returns
    whether the owner is still running.
    """

    def __init__(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        name: str,
        spawn: Spawn | None = None,
        wanted: Callable[[], bool] = lambda: True,
        *,
        ends: bool = False,
    ) -> None:
        self._work = work
        self._name = name
        self._spawn: Spawn = spawn or _in_running_loop
        self._wanted = wanted
        self._ends = ends
        self._loop = asyncio.get_running_loop()
        self._cancelled = False
        self._pause = FIRST_PAUSE
        self._again: asyncio.TimerHandle | None = None
        self._began = 0.0
        self._task: asyncio.Task[None]
        self._start()

    def cancel(self) -> asyncio.Task[None]:
        """End the work for good; return the task to wait for."""
        self._cancelled = True
        if self._again is not None:
            self._again.cancel()
        self._task.cancel()
        return self._task

    async def stop(self) -> None:
        """End the work for good, and wait until it has ended."""
        await asyncio.wait([self.cancel()])

    async def finish(self) -> None:
        """Wait for the work, which is about to return."""
        self._ends = True
        if self._again is not None:
            self._again.cancel()
            self._start()
        await asyncio.wait([self._task])

    def _start(self) -> None:
        self._again = None
        if self._cancelled or not self._wanted():
            return
        self._began = self._loop.time()
        self._task = self._spawn(self._work(), self._name)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if self._cancelled or not self._wanted():
            return
        if self._ends and error is None and not task.cancelled():
            return
        if self._loop.time() - self._began > LONGEST_PAUSE:
            self._pause = FIRST_PAUSE
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        if task.cancelled():
            # Logged at once: an event loop that is closing cancels everything that was not shut
            # down, and nothing restarts.
            self._again = self._loop.call_later(pause, self._restart, task.get_name(), pause)
            return
        how = f"ended with {error!r}" if error else "ended"
        log.error("%s %s; restarting it in %.1f s", task.get_name(), how, pause, exc_info=error)
        self._again = self._loop.call_later(pause, self._start)

    def _restart(self, name: str, pause: float) -> None:
        if self._wanted():
            log.error("%s was cancelled; restarted it after %.1f s", name, pause)
        self._start()


def _in_running_loop(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(work, name=name)
