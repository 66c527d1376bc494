"""A curve: rates and latencies against one size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from bench.full.campaign import Row
from bench.full.workload import Session

__all__ = ["Curve", "Points"]


class Points:
    """The figures of one curve while they are gathered: by size and by whoever was measured."""

    def __init__(self) -> None:
        self._rates: dict[tuple[int, str], list[float]] = {}
        self._tails: dict[tuple[int, str], list[float]] = {}

    def add(self, size: int, name: str, per_second: float, p99_us: float | None = None) -> None:
        """Add a run."""
        self._rates.setdefault((size, name), []).append(per_second)
        if p99_us is not None:
            self._tails.setdefault((size, name), []).append(p99_us)

    def rows(self) -> list[Row]:
        """The medians, with the single rates."""
        return [
            {
                "size": size,
                "name": name,
                "per_second": median(rates),
                "p99_us": median(self._tails[size, name]) if (size, name) in self._tails else None,
                "rates": rates,
            }
            for (size, name), rates in self._rates.items()
        ]


class Curve(NamedTuple):
    """What is measured at each of `sizes`: `measure` adds the points.

    `unit` is that of the rate, `axis` names the sizes.
    """

    name: str
    title: str
    axis: str
    unit: str
    sizes: Sequence[int]
    measure: Callable[[Session, Sequence[int], Points], None]

    def rows(self, session: Session) -> list[Row]:
        """Measure it; each row has what a chart needs."""
        points = Points()
        # At a small scale the ends are enough to see that it works.
        sizes = self.sizes if session.scale >= SPARSE else (self.sizes[0], self.sizes[2])
        self.measure(session, sizes, points)
        heads = {"curve": self.name, "title": self.title, "axis": self.axis, "unit": self.unit}
        return [{**heads, **row} for row in points.rows()]


#: From this scale on, all sizes are measured.
SPARSE = 0.05
