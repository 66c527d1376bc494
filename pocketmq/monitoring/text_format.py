"""Metrics as Prometheus reads them (text format 0.0.4), by `prometheus_client`.

Names are those of RocketMQ 5.3.3: unit and `_total` behind the name of the instrument. Its TYPE and
HELP lines lack the unit, so that Prometheus does not know the type of such metrics; here they have
it.

The library writes a registry in one go, some 25 µs for each sample. It is given a few series at a
time instead, so that its caller can pause in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from pocketmq.monitoring.families import COUNTER, Distribution, Family

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_SERIES: Final = 32  # of a chunk: about a millisecond
_HEAD_LINES: Final = 2  # HELP and TYPE


class _One(Collector):
    """A registry of one metric."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        yield self._metric


def chunks(families: Iterable[Family], common: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the text, a few series at a time. `common`: labels of all series."""
    for family in families:
        name = exported_name(family).removesuffix("_total")
        for first in range(0, max(len(family.points), 1), _SERIES):
            metric = Metric(name, family.help, family.kind)
            some = family._replace(points=family.points[first : first + _SERIES])
            metric.samples = list(_samples(some, name, common))
            text = generate_latest(_One(metric))
            # The head is written once.
            yield text if first == 0 else text.split(b"\n", _HEAD_LINES)[_HEAD_LINES]


def exported_name(family: Family) -> str:
    """Return the name of the metric as Prometheus has it, with the `_total` of a counter."""
    total = "_total" if family.kind == COUNTER else ""
    unit = f"_{family.unit}" if family.unit else ""
    return f"{family.name.removesuffix(total) if total else family.name}{unit}{total}"


def _samples(family: Family, name: str, common: Mapping[str, str]) -> Iterator[Sample]:
    borders = [f"{float(bound)}" for bound in family.bounds] + ["+Inf"]
    plain = exported_name(family)
    for values, value in family.points:
        labels = {**common, **dict(zip(family.labels, values, strict=True))}
        if isinstance(value, Distribution):
            for border, count in zip(borders, accumulate(value.buckets), strict=True):
                yield Sample(f"{name}_bucket", {**labels, "le": border}, count)
            yield Sample(f"{name}_count", labels, value.observations)
            yield Sample(f"{name}_sum", labels, value.total)
        else:
            yield Sample(plain, labels, value)
