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
        # Waits for messages from before the start of some copy: they must not hold up the others.
        self._passed: deque[tuple[int, int, float, ReplicaListener]] = deque()
        self._begin = 0  # the last of these starts

    def __len__(self) -> int:
        return len(self._waiting) + len(self._passed)

    def add(self, end: int, needed: int, deadline: float, listener: ReplicaListener) -> None:
        """Call `listener` when the log is replicated up to `end`: at once if it is."""
        waits = self._passed if end <= self._begin else self._waiting
        if not waits and self._replicated(end, needed):
            listener(True)
        else:
            waits.append((end, needed, deadline, listener))

    def acked(self, begin: int = 0) -> None:
        """Check again: a replica has reported, or the set of replicas has changed. Some replica is
        not known to have anything before the physical offset `begin`."""
        waiting = self._waiting
        self._begin = max(self._begin, begin)
        while waiting and waiting[0][0] <= begin:
            self._passed.append(waiting.popleft())
        for waits in (self._passed, waiting):
            while waits and self._replicated(waits[0][0], waits[0][1]):
                _call(waits.popleft()[3], True)

    def expire(self, now: float) -> float | None:
        """Fail the waits whose deadline has passed; return the next deadline, None if there is
        none."""
        for waits in (self._passed, self._waiting):
            while waits and waits[0][2] <= now:
                _call(waits.popleft()[3], False)
        return min((waits[0][2] for waits in (self._passed, self._waiting) if waits), default=None)

    def fail_all(self) -> None:
        """Fail all waits."""
        for waits in (self._passed, self._waiting):
            while waits:
                _call(waits.popleft()[3], False)


class CopyStarts:
    """Where the copies of a master's slaves begin.

    A slave reports only where its log ends. One that came empty lacks what was stored before its
    first file. When it connects again, it cannot be told from one that has everything, and sends
    from before may still wait. So no slave that could be that one counts as a copy of them.
    """

    def __init__(self) -> None:
        self._starts: set[int] = set()  # of files of the log, so there are few

    def of_empty(self, start: int) -> int:
        """Return where the copy of an empty slave begins, which is sent the log from the physical
        offset `start` on."""
        self._starts.add(start)
        return start

    def of_other(self, end: int) -> int:
        """Return from which physical offset on a slave is known to have the log, whose copy ended
        at `end` when it connected."""
        return max((start for start in self._starts if start <= end), default=0)


def enough(copies: Iterable[tuple[int, int]], end: int, needed: int) -> bool:
    """Tell whether `needed` replicas, including the master, have the message that ends at the
    physical offset `end`. `copies`: what each slave has, as physical offsets from and to."""
    return needed <= 1 or sum(begin < end <= ack for begin, ack in copies) >= needed - 1


def _call(listener: ReplicaListener, done: bool) -> None:
    try:
        listener(done)
    except Exception:
        log.exception("a listener of the replicas failed")
