"""A clock that goes when it is told to, and the waiting that belongs to it."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Final

from pocketmq.remoting.monotonic import MonotonicMs

START: Final = 1_700_000_000_000
#: At one time.
MOST_CALLS: Final = 10_000


class FakeTimer:
    """One callback that waits."""

    def __init__(self, at: int, number: int, callback: Callable[[], None]) -> None:
        self.at = at
        self.order = (at, number)
        self.callback = callback
        self.cancelled = False

    def __lt__(self, other: FakeTimer) -> bool:
        return self.order < other.order

    def cancel(self) -> None:
        self.cancelled = True


class FakeTime:
    """Milliseconds; `clock`, `monotonic` and `call_later` are what a broker takes.

    A clock never stands still between two looks for real; here it does.
    """

    def __init__(self, now: int = START) -> None:
        self.now = now
        self._set_back = 0
        self._timers: list[FakeTimer] = []
        self._numbers = itertools.count()
        self.woken = 0

    def clock(self) -> int:
        return self.now

    def monotonic(self) -> MonotonicMs:
        """The time that passed, whatever the clock was set to."""
        return MonotonicMs(self.now + self._set_back)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(self.now + round(seconds * 1000), next(self._numbers), callback)
        heapq.heappush(self._timers, timer)
        return timer

    def advance(self, milliseconds: int = 0) -> None:
        """Let time pass and call what becomes due on the way, in order."""
        end = self.now + milliseconds
        before, calls = self.now, 0
        while self._timers and self._timers[0].at <= end:
            self.step()
            calls = calls + 1 if self.now == before else 0
            before = self.now
            assert calls < MOST_CALLS, "time stands still: a callback asks for itself at once"
        self.now = end

    def set_back(self, milliseconds: int) -> None:
        """Set the clock back, or ahead if negative; what waits goes on waiting as long as it would
        have."""
        self.now -= milliseconds
        self._set_back += milliseconds
        for timer in self._timers:
            timer.at -= milliseconds
            timer.order = (timer.at, timer.order[1])

    def step(self) -> None:
        """Let the time of the next callback come, and call it alone."""
        timer = heapq.heappop(self._timers)
        self.now = max(self.now, timer.at)
        if not timer.cancelled:
            self.woken += 1
            timer.callback()

    @property
    def sleeping(self) -> int:
        """How many callbacks wait."""
        return sum(not timer.cancelled for timer in self._timers)
