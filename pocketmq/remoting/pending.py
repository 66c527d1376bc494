"""Requests that wait for an answer: opaque to future, with coarse deadlines.

One table per connection and direction. Adding, answering and forgetting a request are O(1)
for any number pending, and no timer is made per request: deadlines are rounded up to ticks of
50 ms, each tick that has requests keeps its own set, and one timer waits for the earliest tick. An
answered or cancelled request leaves the set of its tick at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

TICK = 0.05
"""Seconds; a request times out at most this late, and never early."""

MAX_OPAQUE = 0x7FFFFFFF
"""A request id is a positive i32."""


class PendingRequests(Generic[T]):
    """The requests of one connection that have no answer yet.

    Args:
        loop: whose clock and timer are used.
        timed_out: makes the exception of a request that got no answer within its timeout
            (argument: that timeout in seconds).
        max_opaque: the highest request id; the next one is 1 again.
    """

    __slots__ = (
        "_entries",
        "_last_opaque",
        "_loop",
        "_max_opaque",
        "_ticks",
        "_timed_out",
        "_timer",
        "_timer_tick",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timed_out: Callable[[float], Exception],
        *,
        max_opaque: int = MAX_OPAQUE,
    ) -> None:
        self._loop = loop
        self._timed_out = timed_out
        self._entries: dict[int, tuple[asyncio.Future[T], set[int], float]] = {}
        self._ticks: dict[int, set[int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_tick = 0
        self._last_opaque = 0
        self._max_opaque = max_opaque

    def __len__(self) -> int:
        return len(self._entries)

    def next_opaque(self) -> int:
        """Return a request id that is not pending: it counts up from 1 and wraps."""
        opaque = self._last_opaque + 1
        while opaque > self._max_opaque or opaque in self._entries:
            opaque = opaque + 1 if opaque < self._max_opaque else 1
        self._last_opaque = opaque
        return opaque

    def add(self, timeout: float) -> tuple[int, asyncio.Future[T]]:
        """Register a request: its opaque, and the future of its answer.

        The future ends with the answer, with `timed_out(timeout)` after `timeout` seconds, or
        with the error that `fail_all` gets. A caller that stops waiting earlier calls `discard`.
        """
        opaque = self.next_opaque()
        future: asyncio.Future[T] = self._loop.create_future()
        tick = int((self._loop.time() + timeout) / TICK) + 1
        waiting = self._ticks.get(tick)
        if waiting is None:
            waiting = self._ticks[tick] = set()
            if self._timer is None or tick < self._timer_tick:
                self._arm(tick)
        waiting.add(opaque)
        self._entries[opaque] = (future, waiting, timeout)
        return opaque, future

    def _take(self, opaque: int) -> asyncio.Future[T] | None:
        entry = self._entries.pop(opaque, None)
        if entry is None:
            return None
        future, waiting, _ = entry
        waiting.discard(opaque)
        return future

    def resolve(self, opaque: int, answer: T) -> bool:
        """Hand the answer to its request; return False if the request is not pending."""
        # As `_take` does, without its call.
        entry = self._entries.pop(opaque, None)
        if entry is None:
            return False
        future, waiting, _ = entry
        waiting.discard(opaque)
        if future.done():
            return False
        future.set_result(answer)
        return True

    def fail(self, opaque: int, error: Exception) -> bool:
        """End one request with an error; return False if it is not pending."""
        future = self._take(opaque)
        if future is None or future.done():
            return False
        future.set_exception(error)
        return True

    def discard(self, opaque: int) -> None:
        """Forget a request, if it is known; a late answer to it is ignored."""
        self._take(opaque)

    def fail_all(self, make_error: Callable[[], Exception]) -> None:
        """End every request with an error of its own (the connection is gone)."""
        entries, self._entries = self._entries, {}
        self._ticks.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for future, _, _ in entries.values():
            if not future.done():
                future.set_exception(make_error())

    def _arm(self, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_tick = tick
        self._timer = self._loop.call_at(tick * TICK, self._expire)

    def _expire(self) -> None:
        self._timer = None
        # The timer may fire a clock resolution early: its own tick is due in any case.
        now = max(int(self._loop.time() / TICK), self._timer_tick)
        for tick in [tick for tick in self._ticks if tick <= now]:
            for opaque in self._ticks.pop(tick):
                future, _, timeout = self._entries.pop(opaque)
                if not future.done():
                    future.set_exception(self._timed_out(timeout))
        if not self._entries:
            self._ticks.clear()
        elif self._ticks:
            self._arm(min(self._ticks))
