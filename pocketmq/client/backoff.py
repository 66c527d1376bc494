"""Pauses between attempts."""

from __future__ import annotations

import random

__all__ = ["backoff", "jittered"]


def backoff(first: float, longest: float, failures: int) -> float:
    """The pause after so many failures in a row, at least 1: `first`, twice as long each time, and
    `longest` at most. Seconds."""
    return min(first * 2.0 ** min(failures - 1, 20), longest)


def jittered(pause: float) -> float:
    """Between half of the pause and all of it, so that clients that failed together do not come
    back together."""
    return pause * random.uniform(0.5, 1.0)
