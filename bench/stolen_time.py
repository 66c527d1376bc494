"""How much of a virtual machine's time its host gave to others, which no benchmark can see in its
own figures: with a tenth of it gone, a figure tells more of the host than of what is measured."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

__all__ = ["StolenTime"]

#: From this share on, percent, the figures are said to be doubtful.
MUCH = 5.0


class _Ticks(NamedTuple):
    """Of all processors together, since the machine came up."""

    all: int
    stolen: int


class StolenTime:
    """Counts from when it is made; `stat` is Linux's /proc/stat."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._begin = self._read()

    @property
    def percent(self) -> float | None:
        """The share of the processors' time; None where the system does not tell."""
        begin, end = self._begin, self._read()
        if begin is None or end is None or end.all <= begin.all:
            return None
        return 100 * (end.stolen - begin.stolen) / (end.all - begin.all)

    def warning(self) -> str | None:
        """What is to be said of the figures; None where nothing is."""
        percent = self.percent
        if percent is None or percent < MUCH:
            return None
        return (
            f"the host of this virtual machine took {percent:.0f} % of the processors' time for "
            "others meanwhile: measure again in a quieter hour"
        )

    def _read(self) -> _Ticks | None:
        try:
            words = self._stat.read_text().split("\n", 1)[0].split()
            # user, nice, system, idle, iowait, irq, softirq, steal; guests count as user.
            ticks = [int(word) for word in words[1:9]]
            return _Ticks(sum(ticks), ticks[7])
        except (OSError, ValueError, IndexError):
            return None
