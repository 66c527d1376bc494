"""Pauses between attempts."""

from __future__ import annotations

__all__ = ["backoff"]


def backoff(first: float, longest: float, failures: int) -> float:
    """The pause after so many failures in a row, at least 1: `first`, twice as long each time, and
    `longest` at most. Seconds."""
    return min(first * 2.0 ** min(failures - 1, 20), longest)
