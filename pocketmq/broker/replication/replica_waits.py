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

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, end: int, needed: int, deadline: float, listener: ReplicaListener) -> None:
        """Call `listener` when the log is replicated up to `end`: at once if it is."""
        if not self._waiting and self._replicated(end, needed):
            listener(True)
        else:
            self._waiting.append((end, needed, deadline, listener))

    def acked(self) -> None:
        """Look again: a replica has reported, or the replicas that count have changed."""
        waiting = self._waiting
        while waiting and self._replicated(waiting[0][0], waiting[0][1]):
            _call(waiting.popleft()[3], True)

    def expire(self, now: float) -> float | None:
        """Give up the waits whose deadline is over; return the next deadline, None without one."""
        waiting = self._waiting
        while waiting and waiting[0][2] <= now:
            _call(waiting.popleft()[3], False)
        return waiting[0][2] if waiting else None

    def fail_all(self) -> None:
        """Give up every wait."""
        while self._waiting:
            _call(self._waiting.popleft()[3], False)


def enough(acks: Iterable[int], end: int, needed: int) -> bool:
    """Return whether `needed` replicas, the master among them, have the log up to `end`; `acks` has
    what each slave's connection has acknowledged."""
    return needed <= 1 or sum(ack >= end for ack in acks) >= needed - 1


def _call(listener: ReplicaListener, done: bool) -> None:
    try:
        listener(done)
    except Exception:
        log.exception("a listener of the replicas failed")
