"""Metrics as plain values, in a form for every exporter. No I/O.

Names are those of OpenTelemetry instruments. Exporters to Prometheus add the unit and, to counters,
`_total`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from typing import Final, NamedTuple, TypeAlias

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"

#: The label of the series that sums up all series above the limit.
OVERFLOW: Final = "otel_metric_overflow"

Labels: TypeAlias = tuple[str, ...]


class Distribution(NamedTuple):
    """The values of a histogram: the count of each bucket (the last one has no bound), and the
    sum."""

    buckets: tuple[int, ...]
    total: float

    @property
    def observations(self) -> int:
        """The number of values."""
        return sum(self.buckets)


Value: TypeAlias = float | Distribution


class Family(NamedTuple):
    """One metric.

    Attributes:
        labels: the names of its labels.
        points: the label values and the value of each series. Must not change once passed on.
        bounds: the bucket bounds of a histogram.
        dropped: the number of further series that `points` lacks.
        rest: the sum of these, unless they are gauges.
    """

    name: str
    kind: str
    help: str
    labels: Labels
    points: Sequence[tuple[Labels, Value]]
    unit: str = ""
    bounds: tuple[float, ...] = ()
    dropped: int = 0
    rest: Value = 0


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
        """Return the counts so far."""
        return [
            (labels, Distribution(tuple(map(int, cell[:-1])), cell[-1]))
            for labels, cell in list(self._cells.items())
        ]


def limited(families: Iterable[Family], most: int) -> Iterator[Family]:
    """Limit the series of each metric, as metricsOtelCardinalityLimit does, and count the omitted
    ones in `dropped`.

    Gauges keep the series with the largest values. Counters and histograms keep the first series,
    so that a series does not come and go; the others become one series, their sum, with the label
    `otel_metric_overflow="true"`.
    """
    for family in families:
        over = len(family.points) - most
        if family.kind == GAUGE:
            if over > 0:
                points: list[tuple[Labels, Value]] = nlargest(most, family.points, key=_level)
                family = family._replace(points=points, dropped=family.dropped + over)
            yield family
        elif over <= 0 and not family.dropped:
            yield family
        else:
            kept, above = family.points[: most - 1], family.points[most - 1 :]
            rest = [value for _, value in above]
            if family.dropped:
                rest.append(family.rest)
            points = [((*values, ""), value) for values, value in kept]
            points.append((("",) * len(family.labels) + ("true",), _sum(rest)))
            yield family._replace(
                labels=(*family.labels, OVERFLOW),
                points=points,
                dropped=family.dropped + len(above),
                rest=0,
            )


def dropped_series(families: Iterable[Family]) -> Family:
    """Return a metric with the number of omitted series of the other metrics."""
    return Family(
        "pocketmq_metrics_dropped_series",
        GAUGE,
        "Series above metricsOtelCardinalityLimit",
        ("metric",),
        [((family.name,), family.dropped) for family in families if family.dropped],
    )


def certificate_expiry(expires_at: float | None) -> Family:
    """Return when the certificate of a server expires, in Unix seconds; None if it has none."""
    return Family(
        "pocketmq_certificate_expiry",
        GAUGE,
        "Unix time at which the TLS certificate expires",
        (),
        [] if expires_at is None else [((), expires_at)],
        "seconds",
    )


def _level(point: tuple[Labels, Value]) -> float:
    value = point[1]
    assert not isinstance(value, Distribution)
    return value


def _sum(values: Sequence[Value]) -> Value:
    distributions = [value for value in values if isinstance(value, Distribution)]
    if not distributions:
        return sum(value for value in values if not isinstance(value, Distribution))
    buckets = zip(*(each.buckets for each in distributions), strict=True)
    return Distribution(tuple(map(sum, buckets)), sum(each.total for each in distributions))
