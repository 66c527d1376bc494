"""Waiting for a moment of the broker's clock with one timer of the event loop.

The broker's clock is the wall clock, which may be set while a timer of the loop runs: an alarm
looks at the clock again when its timer ends, and never sleeps longer than a few seconds. Tests
bring a clock and a `call_later` of their own, and advance both without sleeping.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

log = logging.getLogger(__name__)

LONGEST_SLEEP_MS: Final = 5_000
AGAIN_MS: Final = 1_000  # after a failure


class Timer(Protocol):
    """What `CallLater` gives back."""

    def cancel(self) -> None:
        """The callback is no longer wanted."""


#: Seconds from now, callback.
CallLater = Callable[[float, Callable[[], None]], Timer]


def call_later(seconds: float, callback: Callable[[], None]) -> Timer:
    """The running event loop's own."""
    return asyncio.get_running_loop().call_later(seconds, callback)


class Alarm:
    """Calls `action` when `clock` (ms) reaches the time that was set.

    An action that raises is logged and called again in a second.
    """

    def __init__(
        self, clock: Callable[[], int], call_later: CallLater, action: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._call_later = call_later
        self._action = action
        self._at: int | None = None
        self._timer: Timer | None = None

    def set(self, at: int) -> None:
        """Ring at this time (ms), or earlier if that was set before; at a past time very soon, but
        not from within this call."""
        if self._at is None or at < self._at:
            self._at = at
            self._arm(at)

    def cancel(self) -> None:
        """Do not ring."""
        self._at = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, at: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wait = min(max(at - self._clock(), 0), LONGEST_SLEEP_MS)
        self._timer = self._call_later(wait / 1000, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._at is None:
            return
        if self._clock() < self._at:
            self._arm(self._at)
            return
        self._at = None
        try:
            self._action()
        except Exception:
            log.exception("%s failed and is tried again", self._action)
            self.set(self._clock() + AGAIN_MS)
