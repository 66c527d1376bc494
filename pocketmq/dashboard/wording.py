"""Formats figures for people: times, sizes, numbers."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Callable
from typing import Final

#: Seconds of each unit, the largest first.
_UNITS: Final = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_AGO: Final = re.compile(r"-(\d{1,9})(s|m|h|d)")


def short_time(seconds: int | None) -> str | None:
    """Format 7501 as "2h 5m": the two largest units."""
    if seconds is None:
        return None
    told = []
    for unit, length in _UNITS.items():
        number, seconds = divmod(seconds, length)
        if number:
            told.append(f"{number}{unit}")
    return " ".join(told[:2]) or "0s"


def short_size(count: float) -> str:
    """Format 1536 as "1.5 KiB"."""
    unit = 0
    while count >= 1024 and unit < len(_SIZES) - 1:
        count /= 1024
        unit += 1
    return f"{count:.0f} B" if unit == 0 else f"{count:.1f} {_SIZES[unit]}"


def grouped(number: float) -> str:
    """Format 1234567 as "1,234,567"; with one decimal if it is not an integer."""
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.1f}"


def moment(milliseconds: int) -> dt.datetime:
    """Convert Unix milliseconds to a time in UTC; out of range, to the nearest valid one."""
    try:
        return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    except (OverflowError, OSError, ValueError):
        return dt.datetime.max.replace(tzinfo=dt.UTC)


def time_of(text: str, clock: Callable[[], float] = time.time) -> dt.datetime:
    """Parse a typed time: -10m, or ISO 8601, which is UTC without a zone.

    Raises ValueError that says what is allowed.
    """
    text = text.strip()
    try:
        ago = _AGO.fullmatch(text)
        if ago:
            seconds = int(ago[1]) * _UNITS[ago[2]]
            return dt.datetime.fromtimestamp(clock() - seconds, dt.UTC)
        given = dt.datetime.fromisoformat(text)
    except (OverflowError, OSError, ValueError):
        raise ValueError(f"{text!r} is not a time such as -10m or 2026-11-25T08:30 (UTC)") from None
    return given if given.tzinfo else given.replace(tzinfo=dt.UTC)
