"""Limits how much one trigger of a stream reads.

The rules are those of Spark's Kafka source: a limit is divided among the queues in proportion to
their lags, so that all catch up at the same time, and a trigger with too little to read can be
delayed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import TypeVar

Queue = TypeVar("Queue")


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """The limits from the options.

    Attributes:
        most: the most offsets that a trigger reads (maxOffsetsPerTrigger); None for no limit.
        least: the offsets that a trigger waits for (minOffsetsPerTrigger) ...
        delay: ... unless the last trigger was this many seconds ago (maxTriggerDelay).
    """

    most: int | None = None
    least: int | None = None
    delay: float = 900.0


class Admission:
    """Decides for each trigger of one query. `clock` returns monotonic seconds."""

    def __init__(self, limits: TriggerLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._last: float | None = None

    def waits(self, available: int) -> bool:
        """Return whether to delay a trigger with this many offsets. The first is never delayed."""
        least, now = self._limits.least, self._clock()
        if least is None or available == 0:
            return False
        is_late = self._last is None or now - self._last >= self._limits.delay
        if available < least and not is_late:
            return True
        self._last = now
        return False

    def share(self, lags: Mapping[Queue, int]) -> dict[Queue, int]:
        """Return how many offsets of each queue the next trigger reads; see `divide`."""
        return dict(lags) if self._limits.most is None else divide(lags, self._limits.most)


def divide(lags: Mapping[Queue, int], most: int) -> dict[Queue, int]:
    """Divide `most` offsets among queues in proportion to their lags.

    A queue with a lag gets at least one offset, so that large queues do not starve small ones.
    If there are more such queues than `most`, the sum is their number; otherwise it is `most`, or
    the total lag if that is less. Ties are decided by the order of `lags`.
    """
    total = sum(lags.values())
    if total <= most:
        return dict(lags)
    claims = {queue: divmod(most * lag, total) for queue, lag in lags.items() if lag}
    shares = {queue: max(whole, 1) for queue, (whole, _) in claims.items()}
    missing = most - sum(shares.values())
    if missing > 0:
        rounded_down = [queue for queue, (whole, _) in claims.items() if whole]
        for queue in sorted(rounded_down, key=lambda queue: -claims[queue][1])[:missing]:
            shares[queue] += 1
    # Take the excess given to the small queues from the largest.
    heap = [(-share, lags[queue], at, queue) for at, (queue, share) in enumerate(shares.items())]
    heapify(heap)
    for _ in range(-missing):
        share, lag, at, queue = heap[0]
        if share == -1:
            break  # one for each queue exceeds `most`
        shares[queue] -= 1
        heapreplace(heap, (share + 1, lag, at, queue))
    return {queue: shares.get(queue, 0) for queue in lags}
