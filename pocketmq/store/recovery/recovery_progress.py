"""How far a recovery is that takes long, and why it is needed: in the log, and for `/ready`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

INTERVAL: Final = 3.0
"""Seconds between two lines, and before the first one."""
SAVE_INTERVAL: Final = 5.0
"""Seconds after which it is worthwhile to flush the progress, ..."""
SAVE_SHARE: Final = 0.1
"""... unless that takes more than this share of the time. Ten thousand queues may take minutes."""
_QUEUE_SECONDS: Final = 0.001  # that the sync of a queue takes, until one was measured

_LOOKS: Final = 256  # calls of `log` to one look at the clock


class RecoveryProgress:
    """Writes a line every few seconds; nothing while the recovery is quick.

    `clock` gives seconds. Any thread may ask for `text`.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running = False
        self._why = ""
        self._calls = 0
        self._start = self._end = self._position = 0  # physical offsets
        self.begin()
        self._running = False

    @property
    def text(self) -> str:
        """The text for waiting operators, such as "recovering: 41 %"; empty unless the store is
        being recovered."""
        if not self._running:
            return ""
        total = self._end - self._start
        percent = min(100 * (self._position - self._start) // total, 100) if total > 0 else 0
        return f"recovering: {percent} %"

    def begin(self) -> None:
        """Note that the recovery begins."""
        self._running = True
        self._next = self._clock() + INTERVAL
        self._saved_at = self._clock()
        self._queue_seconds = _QUEUE_SECONDS

    def end(self) -> None:
        """Note that the recovery is over."""
        self._running = False

    def because(self, why: str) -> None:
        """Note why there is something to do, as the lines say it."""
        self._why = why

    def queues(self, done: int, count: int) -> None:
        """Note that `done` of `count` queues were looked at."""
        if self._clock() >= self._next:
            self._say(f"{done} of {count} queues are looked at")

    def reads(self, start: int, end: int) -> None:
        """Note that the commit log is read from `start` on, and that its data end at `end`:
        physical offsets."""
        self._start = self._position = start
        self._end = end

    def log(self, position: int) -> None:
        """Note that the commit log is read up to the physical offset `position`. Costs next to
        nothing; call it for each record."""
        self._calls += 1
        if self._calls % _LOOKS == 0:
            self.log_many(position)

    def log_many(self, position: int) -> None:
        """Note the same, after many records."""
        self._position = position
        if self._clock() >= self._next:
            done, total = position - self._start, self._end - self._start
            self._say(
                f"{_gigabytes(done)} of {_gigabytes(max(done, total))} GB of the commit log are "
                f"read, from physical offset {self._start} on"
            )

    def is_save_due(self, queues: int) -> bool:
        """Return whether it is time to save the progress, of this many queues. The caller then does
        so, and calls `saved`."""
        self._save_began = self._clock()
        worth = queues * self._queue_seconds / SAVE_SHARE
        return self._save_began - self._saved_at >= max(SAVE_INTERVAL, worth)

    def saved(self, queues: int) -> None:
        """Note that this many queues are saved."""
        self._saved_at = self._clock()
        self._queue_seconds = (self._saved_at - self._save_began) / max(1, queues)

    def _say(self, what: str) -> None:
        # A warning, since an operator waits, and the usual level shows nothing less.
        log.warning("recovering the store: %s (%s)", what, self._why)
        self._next = self._clock() + INTERVAL


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f}"
