"""OpenTelemetry for sends and for the work on messages: `pip install 'pocketmq[otel]'`.

producer = Producer("orders", hooks=[OpenTelemetryHook(), OpenTelemetryMetrics()])
consumer = PushConsumer("billing", hooks=[OpenTelemetryHook(), OpenTelemetryMetrics()])

The first makes spans, the second histograms.
"""

from __future__ import annotations

from pocketmq._extras import require

try:
    from pocketmq.client.observation.client_metrics import OpenTelemetryMetrics
    from pocketmq.client.observation.telemetry import OpenTelemetryHook, consumer_span
except ModuleNotFoundError:
    require("otel", __name__)
    raise

__all__ = ["OpenTelemetryHook", "OpenTelemetryMetrics", "consumer_span"]
