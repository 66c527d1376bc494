"""Metrics as plain values: what a server counts, in the form that every exporter takes. No I/O.

Names are those of OpenTelemetry instruments. Exporters to Prometheus add the unit and, to counters,
`_total`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"

#: The value of this label names the series of everything above the limit.
OVERFLOW: Final = "otel_metric_overflow"

Labels: TypeAlias = tuple[str, ...]


class Distribution(NamedTuple):
    """The values of a histogram: how many in each bucket (the last one has no border), and their
    sum."""

    buckets: tuple[int, ...]
    total: float

    @property
    def observations(self) -> int:
        """How many values there are."""
        return sum(self.buckets)


Value: TypeAlias = float | Distribution


class Family(NamedTuple):
    """One metric.

    Attributes:
        labels: the names of its labels.
        points: the values of these labels, and the value of each series. Its owner gives it away:
            nobody changes it afterwards.
        bounds: the borders of a histogram.
    """

    name: str
    kind: str
    help: str
    labels: Labels
    points: Sequence[tuple[Labels, Value]]
    unit: str = ""
    bounds: tuple[float, ...] = ()


class Histogram:
    """Values by their labels, counted in buckets."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self._cells: dict[Labels, list[float]] = {}

    def add(self, labels: Labels, value: float) -> None:
        """Count one value."""
        cell = self._cells.get(labels)
        if cell is None:
            cell = self._cells[labels] = [0] * (len(self.bounds) + 2)
        cell[bisect_left(self.bounds, value)] += 1
        cell[-1] += value

    def forget(self, labels: Labels) -> None:
        """Remove the values of these labels."""
        self._cells.pop(labels, None)

    def points(self) -> list[tuple[Labels, Value]]:
        """Return what was counted so far."""
        return [
            (labels, Distribution(tuple(map(int, cell[:-1])), cell[-1]))
            for labels, cell in list(self._cells.items())
        ]


def limited(families: Iterable[Family], most: int) -> Iterator[Family]:
    """Bound the series of each metric, as metricsOtelCardinalityLimit does.

    What is above it becomes one series with the label `otel_metric_overflow="true"` and no other:
    the sum of counters and histograms. Further gauges are left out.
    """
    for family in families:
        if len(family.points) <= most:
            yield family
            continue
        kept = family.points[: most - 1]
        labels = (*family.labels, OVERFLOW)
        points: list[tuple[Labels, Value]] = [((*values, ""), value) for values, value in kept]
        if family.kind != GAUGE:
            rest = [value for _, value in family.points[most - 1 :]]
            points.append((("",) * len(family.labels) + ("true",), _sum(rest)))
        yield family._replace(labels=labels, points=points)


def _sum(values: Sequence[Value]) -> Value:
    distributions = [value for value in values if isinstance(value, Distribution)]
    if not distributions:
        return sum(value for value in values if not isinstance(value, Distribution))
    buckets = zip(*(each.buckets for each in distributions), strict=True)
    return Distribution(tuple(map(sum, buckets)), sum(each.total for each in distributions))
