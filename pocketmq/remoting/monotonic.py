"""The clock of leases: locks, memberships, liveness, and all else that ends some time from now.

The wall clock may be set while a server runs, by an operator or by NTP. A lease measured by it
goes to a second holder when the clock is set ahead, and stays with a dead one when it is set back.
So this clock measures durations, and the wall clock gives only what is stored, sent, or shown as a
date. The types differ: mypy rejects a wall clock where this one is needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NewType, TypeAlias

MonotonicMs = NewType("MonotonicMs", int)
"""Milliseconds since some moment in the past: good for differences only."""

MonotonicClock: TypeAlias = Callable[[], MonotonicMs]


def monotonic_ms() -> MonotonicMs:
    """Return the time of a clock that cannot be set."""
    return MonotonicMs(time.monotonic_ns() // 1_000_000)
