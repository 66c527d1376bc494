"""The delay levels: `messageDelayLevel` as a table, and when a delayed message is due."""

from __future__ import annotations

from typing import Final

_UNITS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class DelayLevels:
    """Delays by level, counted from 1.

    `text` is the setting, such as `"1s 5s 10s"`. Raises ValueError, naming the part, when it is
    not a blank-separated list of numbers with one of the units s, m, h, d.
    """

    def __init__(self, text: str) -> None:
        self._milliseconds = tuple(_milliseconds(part, text) for part in text.split())
        if not self._milliseconds:
            raise ValueError("messageDelayLevel is empty")

    def __len__(self) -> int:
        """The highest level."""
        return len(self._milliseconds)

    def milliseconds(self, level: int) -> int:
        """Return the delay of `level`; levels above the highest mean the highest.

        Level 1 is the least.
        """
        return self._milliseconds[min(level, len(self._milliseconds)) - 1]

    def deliver_timestamp(self, level: int, store_timestamp: int) -> int:
        """Return when a message of `level` that was stored at `store_timestamp` is due (ms)."""
        return store_timestamp + self.milliseconds(level)


def _milliseconds(part: str, text: str) -> int:
    number, unit = part[:-1], part[-1]
    if not number.isdecimal() or unit not in _UNITS:
        raise ValueError(f"messageDelayLevel {text!r}: {part!r} is not like 10s, 5m, 2h or 1d")
    return int(number) * _UNITS[unit]
