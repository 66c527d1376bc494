"""An OpenTelemetry collector for tests."""

from __future__ import annotations

from concurrent import futures
from typing import Any


class Collector:
    """Takes metrics and spans at `target`.

    Attributes:
        first: the first request with metrics, and its metadata.
        metrics: the newest metric of each name, as the protocol has it. A broker of few series
            sends all of them in one request.
        spans: all that came.
    """

    def __init__(self) -> None:
        import grpc
        from opentelemetry.proto.collector.metrics.v1 import (
            metrics_service_pb2,
            metrics_service_pb2_grpc,
        )
        from opentelemetry.proto.collector.trace.v1 import (
            trace_service_pb2,
            trace_service_pb2_grpc,
        )

        first: futures.Future[tuple[Any, dict[str, str]]] = futures.Future()
        metrics: dict[str, Any] = {}
        spans: list[Any] = []
        self.first, self.metrics, self.spans = first, metrics, spans

        class Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
            def Export(self, request: Any, context: Any) -> Any:
                if not first.done():
                    metadata = {item.key: item.value for item in context.invocation_metadata()}
                    first.set_result((request, metadata))
                for resource in request.resource_metrics:
                    for scope in resource.scope_metrics:
                        metrics.update({metric.name: metric for metric in scope.metrics})
                return metrics_service_pb2.ExportMetricsServiceResponse()

        class Spans(trace_service_pb2_grpc.TraceServiceServicer):
            def Export(self, request: Any, context: Any) -> Any:
                for resource in request.resource_spans:
                    for scope in resource.scope_spans:
                        spans.extend(scope.spans)
                return trace_service_pb2.ExportTraceServiceResponse()

        self._server = grpc.server(futures.ThreadPoolExecutor(1))
        add: Any = metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server
        add(Metrics(), self._server)
        add = trace_service_pb2_grpc.add_TraceServiceServicer_to_server
        add(Spans(), self._server)
        self.target = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()

    def sum(self, name: str, **labels: str) -> float:
        """The sum of the series of a counter or a gauge that have these labels, among others."""
        return sum(self._value(point) for point in self._points(name, labels))

    def observations(self, name: str, **labels: str) -> int:
        """How many values the histogram has in the series that have these labels."""
        return sum(point.count for point in self._points(name, labels))

    def _points(self, name: str, labels: dict[str, str]) -> list[Any]:
        metric = self.metrics.get(name)
        if metric is None:
            return []
        points = getattr(metric, metric.WhichOneof("data")).data_points
        return [point for point in points if labels.items() <= attributes(point).items()]

    @staticmethod
    def _value(point: Any) -> float:
        value: float = getattr(point, point.WhichOneof("value"))
        return value


def attributes(item: Any) -> dict[str, str]:
    """Those of a point or a span that are text."""
    return {each.key: each.value.string_value for each in item.attributes}
