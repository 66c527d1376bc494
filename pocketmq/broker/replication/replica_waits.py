"""Sends that wait until replicas have their records: one queue, ordered by end offset.

A send is done when enough connections have reported an offset at or after its end. The ends
increase, so the first send of the queue is always done first, and a report without effect costs one
comparison. Reference: GroupTransferService.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

log = logging.getLogger(__name__)

ALL_IN_SYNC: Final = -1
"""Stands for the acknowledgements of all members of the SyncStateSet."""

#: Called once: with True when the replicas have the log, with False after the deadline.
ReplicaListener = Callable[[bool], None]


class ReplicaWaits:
    """The waits of one broker. `replicated(end, needed)` tells whether `needed` replicas, including
    the master, have the log up to a physical offset."""

    def __init__(self, replicated: Callable[[int, int], bool]) -> None:
        self._replicated = replicated
        # (end offset, needed acknowledgements, deadline, listener); ends and deadlines increase.
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
        """Check again: a replica has reported, or the set of replicas has changed."""
        waiting = self._waiting
        while waiting and self._replicated(waiting[0][0], waiting[0][1]):
            _call(waiting.popleft()[3], True)

    def expire(self, now: float) -> float | None:
        """Fail the waits whose deadline has passed; return the next deadline, None if there is
        none."""
        waiting = self._waiting
        while waiting and waiting[0][2] <= now:
            _call(waiting.popleft()[3], False)
        return waiting[0][2] if waiting else None

    def fail_all(self) -> None:
        """Fail all waits."""
        while self._waiting:
            _call(self._waiting.popleft()[3], False)


def enough(acks: Iterable[int], end: int, needed: int) -> bool:
    """Tell whether `needed` replicas, including the master, have the log up to `end`; `acks` has
    the acknowledged offset of each slave's connection."""
    return needed <= 1 or sum(ack >= end for ack in acks) >= needed - 1


def _call(listener: ReplicaListener, done: bool) -> None:
    try:
        listener(done)
    except Exception:
        log.exception("a listener of the replicas failed")
