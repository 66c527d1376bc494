"""Latencies counted in buckets of 5 %, so that any number of them takes the same memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import exp, log

__all__ = ["bucket", "percentile"]

_STEP = log(1.05)
#: The smallest latency told from others, seconds.
LEAST = 1e-5


def bucket(seconds: float) -> int:
    """The bucket that a latency belongs to."""
    return int(log(max(seconds, LEAST) / LEAST) / _STEP)


def percentile(counts: Mapping[int, int], share: float) -> float | None:
    """The latency that `share` (0…1) of all do not exceed, seconds; None when there are none."""
    left = share * Counter(counts).total()
    for index in sorted(counts):
        left -= counts[index]
        if left <= 0:
            return LEAST * exp((index + 1) * _STEP)
    return None
