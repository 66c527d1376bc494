"""Sends that wait until replicas have their records: one ordered queue, keyed by end offset.

A send is done when so many connections have reported an offset at or behind its end. All ends
grow, so the first of the queue is always the next to be done: a report costs one comparison and
what it completes. Reference: GroupTransferService.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

log = logging.getLogger(__name__)

ALL_IN_SYNC: Final = -1
"""In place of a number of acknowledgements: those of every member of the SyncStateSet."""

#: Called once: True when the replicas have it, False when that took too long.
ReplicaListener = Callable[[bool], None]


class ReplicaWaits:
    """The waits of one broker. `replicated(end, needed)` tells whether enough replicas have the log
    up to a physical offset; `needed` counts the master."""

    def __init__(self, replicated: Callable[[int, int], bool]) -> None:
        self._replicated = replicated
        # (end offset, acknowledgements that are needed, deadline, listener), ends and deadlines
        # rising.
        self._waiting: deque[tuple[int, int, float, ReplicaListener]] = deque()
        # What lies before the first file of a slave that came empty must hold up nothing else.
        self._passed: deque[tuple[int, int, float, ReplicaListener]] = deque()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._passed)

    def add(self, end: int, needed: int, deadline: float, listener: ReplicaListener) -> None:
        """Call `listener` when the log is replicated up to `end`: at once if it is."""
        if not self._waiting and self._replicated(end, needed):
            listener(True)
        else:
            self._waiting.append((end, needed, deadline, listener))

    def acked(self, begin: int = 0) -> None:
        """Look again: a replica has reported, or the replicas that count have changed. Some replica
        has nothing from before the physical offset `begin`."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= begin:
            self._passed.append(waiting.popleft())
        for waits in (self._passed, waiting):
            while waits and self._replicated(waits[0][0], waits[0][1]):
                _call(waits.popleft()[3], True)

    def expire(self, now: float) -> float | None:
        """Give up the waits whose deadline is over; return the next deadline, None without one."""
        for waits in (self._passed, self._waiting):
            while waits and waits[0][2] <= now:
                _call(waits.popleft()[3], False)
        return min((waits[0][2] for waits in (self._passed, self._waiting) if waits), default=None)

    def fail_all(self) -> None:
        """Give up every wait."""
        for waits in (self._passed, self._waiting):
            while waits:
                _call(waits.popleft()[3], False)


def enough(copies: Iterable[tuple[int, int]], end: int, needed: int) -> bool:
    """Return whether `needed` replicas, the master among them, have the message that ends at the
    physical offset `end`; `copies` is what each slave has, from which offset on and up to which:
    one that came empty lacks what was stored before its first file, also what still waits."""
    return needed <= 1 or sum(begin < end <= ack for begin, ack in copies) >= needed - 1


def _call(listener: ReplicaListener, done: bool) -> None:
    try:
        listener(done)
    except Exception:
        log.exception("a listener of the replicas failed")
