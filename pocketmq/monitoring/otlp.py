"""Metrics for an OpenTelemetry collector, through the SDK's exporter (extra `otlp`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from pocketmq.monitoring.families import (
    COUNTER,
    GAUGE,
    Distribution,
    Family,
    Labels,
    Value,
)
from pocketmq.monitoring.pace import paced

_MOST_POINTS: Final = 1_000
"""Series of one request. The collector accepts 4 MiB by default, and encoding holds the interpreter
lock."""


class OtlpExporter:
    """Sends families to one collector.

    Args:
        target: `http://host:port`; https encrypts the connection.
        headers: sent with each request.
        timeout: seconds.
        common: attributes of all series.
        scope: the name of the meter.
        delta: send the differences since the last export, not sums.
        began: the start time of sums, Unix ns.
    """

    def __init__(
        self,
        target: str,
        *,
        headers: Mapping[str, str],
        timeout: float,
        common: Mapping[str, str],
        scope: str,
        delta: bool,
        began: int,
    ) -> None:
        self._exporter: Any = OTLPMetricExporter(
            endpoint=target,
            insecure=not target.startswith("https:"),
            headers=dict(headers),
            timeout=timeout,
        )
        self._common = dict(common)
        self._scope = InstrumentationScope(scope)
        self._delta = delta
        self._began = began
        self._sent: dict[tuple[str, Labels], Value] = {}

    def export(self, families: Sequence[Family], now: int) -> bool:
        """Send the values of a time (Unix ns); return whether the collector accepted them.
        Blocks."""
        for part in paced(_parts(families)):
            if (
                self._exporter.export(self.metrics_data(part, now))
                is not MetricExportResult.SUCCESS
            ):
                return False
        if self._delta:
            self._began = now
        return True

    def close(self) -> None:
        """Close the connection."""
        self._exporter.shutdown()

    def metrics_data(self, families: Sequence[Family], now: int) -> MetricsData:
        """Return the families in the SDK's form."""
        metrics = [self._metric(family, now) for family in families if family.points]
        scoped = ScopeMetrics(self._scope, metrics, "")
        return MetricsData([ResourceMetrics(Resource.create({}), [scoped], "")])

    def _metric(self, family: Family, now: int) -> Metric:
        points = [
            self._point(family, labels, self._since(family, labels, value), now)
            for labels, value in family.points
        ]
        temporality = (
            AggregationTemporality.DELTA if self._delta else AggregationTemporality.CUMULATIVE
        )
        data: Any
        if family.kind == GAUGE:
            data = Gauge(points)
        elif family.kind == COUNTER:
            data = Sum(points, temporality, is_monotonic=True)
        else:
            data = HistogramData(points, temporality)
        return Metric(family.name, family.help, family.unit, data)

    def _point(self, family: Family, labels: Labels, value: Value, now: int) -> Any:
        attributes = {**self._common, **dict(zip(family.labels, labels, strict=True))}
        if isinstance(value, Distribution):
            # The minimum and maximum are unknown; the exporter omits them.
            return HistogramDataPoint(
                attributes, self._began, now, value.observations, value.total, value.buckets,
                family.bounds, None, None,  # type: ignore[arg-type]
            )  # fmt: skip
        return NumberDataPoint(attributes, self._began, now, value)

    def _since(self, family: Family, labels: Labels, value: Value) -> Value:
        """Return the differences since the last export, if configured."""
        if not self._delta or family.kind == GAUGE:
            return value
        key = family.name, labels
        before = self._sent.get(key)
        self._sent[key] = value
        if before is None:
            return value
        if isinstance(value, Distribution) and isinstance(before, Distribution):
            pairs = zip(value.buckets, before.buckets, strict=True)
            return Distribution(tuple(new - old for new, old in pairs), value.total - before.total)
        assert not isinstance(value, Distribution)
        assert not isinstance(before, Distribution)
        return value - before


def _parts(families: Sequence[Family]) -> Iterator[list[Family]]:
    part: list[Family] = []
    size = 0
    for family in families:
        for first in range(0, len(family.points), _MOST_POINTS):
            points = family.points[first : first + _MOST_POINTS]
            if part and size + len(points) > _MOST_POINTS:
                yield part
                part, size = [], 0
            part.append(family._replace(points=points))
            size += len(points)
    if part:
        yield part
