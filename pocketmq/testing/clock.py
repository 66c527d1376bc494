"""A broker's clock that follows the wall clock and can be moved ahead."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable


class MovableClock:
    """Milliseconds since the epoch; `call_later` makes timers that a move ahead does not miss."""

    def __init__(self) -> None:
        self._moved = 0
        self._timers: set[_Timer] = set()

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self._moved

    def call_later(self, seconds: float, callback: Callable[[], None]) -> _Timer:
        """Call `callback` when this clock has advanced by `seconds`."""
        return _Timer(self._timers, seconds, callback)

    def until_next(self) -> float | None:
        """Seconds until the next timer is due, in whole milliseconds; None without timers."""
        first = min((timer.at for timer in self._timers), default=None)
        if first is None:
            return None
        return max(math.ceil((first - asyncio.get_running_loop().time()) * 1000) / 1000, 0.0)

    async def advance(self, seconds: float) -> None:
        """Move ahead; return when all timers due by then have been called, including timers that
        these created.

        Raises ValueError for a negative time: a broker's clock never goes back.
        """
        if seconds < 0:
            raise ValueError(f"seconds is {seconds}; the clock cannot go back")
        self._moved += round(seconds * 1000)
        for timer in list(self._timers):
            timer.advance(seconds)
        loop = asyncio.get_running_loop()
        while due := [timer for timer in self._timers if timer.at <= loop.time()]:
            await due[0].over.wait()


class _Timer:
    def __init__(self, timers: set[_Timer], seconds: float, callback: Callable[[], None]) -> None:
        self._timers = timers
        self._callback = callback
        self.over = asyncio.Event()  # rung, or cancelled
        loop = asyncio.get_running_loop()
        self.at = loop.time() + seconds
        self._handle = loop.call_at(self.at, self._ring)
        timers.add(self)

    def advance(self, seconds: float) -> None:
        self._handle.cancel()
        self.at -= seconds
        self._handle = asyncio.get_running_loop().call_at(self.at, self._ring)

    def cancel(self) -> None:
        self._handle.cancel()
        self._timers.discard(self)
        self.over.set()

    def _ring(self) -> None:
        self._timers.discard(self)
        self.over.set()
        self._callback()
