"""OpenTelemetry spans for sends and for the work on messages: `pip install 'pocketmq[otel]'`.

producer = Producer("orders", hooks=[OpenTelemetryHook()])
consumer = PushConsumer("billing", hooks=[OpenTelemetryHook()])
"""

from pocketmq._extras import require

try:
    from pocketmq.client.telemetry import OpenTelemetryHook, consumer_span
except ModuleNotFoundError:
    require("otel", __name__)
    raise

__all__ = ["OpenTelemetryHook", "consumer_span"]
