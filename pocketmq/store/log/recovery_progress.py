"""Says in the log how far a recovery is that takes long, and why it is needed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

INTERVAL: Final = 3.0
"""Seconds between two lines, and before the first one."""

_LOOKS: Final = 256  # calls of `at` to one look at the clock


class RecoveryProgress:
    """Writes a line every few seconds; nothing while the recovery is quick.

    `clock` gives seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = clock() + INTERVAL
        self._why = ""
        self._line = ""
        self._calls = 0

    def because(self, why: str) -> None:
        """Note why there is something to do, as the lines say it."""
        self._why = why

    def queues(self, done: int, count: int) -> None:
        """Note that `done` of `count` queues were looked at."""
        if self._clock() >= self._next:
            self._say(f"{done} of {count} queues are looked at")

    def log(self, start: int, position: int, end: Callable[[], int]) -> None:
        """Note that the commit log is read from `start` up to `position`, physical offsets; `end`
        gives where its data end. Costs next to nothing; call it for each record."""
        self._calls += 1
        if self._calls % _LOOKS == 0 and self._clock() >= self._next:
            done, total = position - start, end() - start
            self._say(
                f"{_gigabytes(done)} of {_gigabytes(max(done, total))} GB of the commit log are "
                f"read, from physical offset {start} on"
            )

    def _say(self, what: str) -> None:
        # A warning, since an operator waits, and the usual level shows nothing less.
        log.warning("recovering the store: %s (%s)", what, self._why)
        self._next = self._clock() + INTERVAL


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f}"
