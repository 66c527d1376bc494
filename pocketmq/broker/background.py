"""Background work of a broker on its event loop: alarms, repeated actions, saving tables.

- `Alarm` calls an action at a time on the broker's clock;
- `every` repeats a small action until the broker stops;
- `PeriodicSave` awaits a save every few seconds and once more at the end.

The broker's clock is the wall clock, which can be changed while a timer of the loop is running. So
an alarm reads the clock again when its timer ends, and never sleeps longer than a few seconds.
Tests pass their own clock and `call_later`, and advance both without sleeping.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from pocketmq.kept_task import KeptTask

log = logging.getLogger(__name__)

LONGEST_SLEEP_MS: Final = 5_000
RETRY_MS: Final = 1_000  # after an alarm's action failed


class Timer(Protocol):
    """The result of `CallLater`."""

    def cancel(self) -> None:
        """Cancel the call."""


#: Seconds from now, callback.
CallLater = Callable[[float, Callable[[], None]], Timer]


def call_later(seconds: float, callback: Callable[[], None]) -> Timer:
    """Call `callback` from a timer of the running event loop."""
    return asyncio.get_running_loop().call_later(seconds, callback)


class Alarm:
    """Calls `action` when `clock` (ms) reaches the time that was set.

    If the clock is set back, it calls `action` early, within LONGEST_SLEEP_MS, because the due time
    may have changed.

    If the action raises, the error is logged and the action is called again after a second.
    """

    def __init__(
        self, clock: Callable[[], int], call_later: CallLater, action: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._call_later = call_later
        self._action = action
        self._at: int | None = None
        self._armed = 0  # the clock when the timer was started
        self._timer: Timer | None = None

    def set(self, at: int) -> None:
        """Ring at `at` (ms), unless an earlier time is set already.

        For a time in the past, the alarm rings in the next turn of the event loop, not within this
        call.
        """
        if self._at is None or at < self._at:
            self._at = at
            self._arm(at)

    def cancel(self) -> None:
        """Clear the time that was set."""
        self._at = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, at: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed = self._clock()
        wait = min(max(at - self._armed, 0), LONGEST_SLEEP_MS)
        self._timer = self._call_later(wait / 1000, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._at is None:
            return
        if self._armed <= self._clock() < self._at:
            self._arm(self._at)
            return
        self._at = None
        try:
            self._action()
        except Exception:
            log.exception("%s failed; trying again in %d ms", self._action, RETRY_MS)
            self.set(self._clock() + RETRY_MS)


def every(
    stack: contextlib.AsyncExitStack,
    seconds: float,
    action: Callable[[], Awaitable[None] | None],
) -> None:
    """Call `action` every `seconds`, and await its result if it has one, until `stack` is closed;
    it must not block."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                waits = action()
                if waits is not None:
                    await waits
            except Exception:
                # For example, the disk is full: the next round may succeed.
                log.exception("%s failed; trying again in %g s", action, seconds)

    stack.callback(KeptTask(repeat, getattr(action, "__qualname__", "repeated action")).cancel)


class PeriodicSave:
    """Awaits `save()` every `seconds` until it is stopped; a failed save is retried next time."""

    def __init__(self, seconds: float, save: Callable[[], Awaitable[None]]) -> None:
        self._seconds = seconds
        self._save = save
        self._stopping = asyncio.Event()
        self._task: KeptTask | None = None

    def start(self) -> None:
        """Start; call this on the event loop."""
        self._task = KeptTask(self._repeat, "periodic save", ends=True)

    async def stop(self) -> None:
        """Save once more, and stop. A save that is already running may lack the last changes."""
        self._stopping.set()
        if self._task is not None:
            await self._task.finish()

    async def _repeat(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._seconds):
                    await self._stopping.wait()
                break
            await self._save_once()
        await self._save_once()

    async def _save_once(self) -> None:
        try:
            await self._save()
        except Exception:
            log.exception("%s failed", self._save)
