"""OpenTelemetry: times of sends and of the work on messages, under the names of RocketMQ's own
clients (pip install 'pocketmq[otel]').

    metrics = OpenTelemetryMetrics()
    producer = Producer("orders", hooks=[metrics])
    consumer = PushConsumer("billing", hooks=[metrics])

How they leave the program is up to the meter provider: an exporter for Prometheus, a collector, ...
Reference: HistogramEnum and MetricLabels of rocketmq-clients.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from opentelemetry import metrics
from opentelemetry.metrics import MeterProvider

from pocketmq.client.consumer.consume_hooks import ConsumeContext
from pocketmq.client.producer.hooks import SendContext

__all__ = ["OpenTelemetryMetrics"]

_DELIVERY = [1.0, 5.0, 10.0, 20.0, 50.0, 200.0, 500.0]
_PROCESS = [1.0, 5.0, 10.0, 100.0, 1000.0, 10_000.0, 60_000.0]


class OpenTelemetryMetrics:
    """Histograms in milliseconds, for a call of the producer or of a handler each:

    - `rocketmq_send_cost_time` (topic, client_id, invocation_status): of a send;
    - `rocketmq_delivery_latency` (topic, client_id, consumer_group): from the store time of a
      message to the work on it. Unlike in RocketMQ's clients, its wait in the client is part of it;
    - `rocketmq_process_time` (the same and invocation_status): of the work on a message or a batch.

    One hook may serve any number of clients. `meter_provider`: the global one by default; `clock`
    gives Unix seconds.
    """

    def __init__(
        self,
        meter_provider: MeterProvider | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        meter = metrics.get_meter("pocketmq", meter_provider=meter_provider)

        def histogram(name: str, text: str, bounds: list[float]) -> metrics.Histogram:
            return meter.create_histogram(
                name, "ms", text, explicit_bucket_boundaries_advisory=bounds
            )

        self._send = histogram("rocketmq_send_cost_time", "Time of a send", _DELIVERY)
        self._delivery = histogram(
            "rocketmq_delivery_latency", "Time from the store to the work on a message", _DELIVERY
        )
        self._process = histogram("rocketmq_process_time", "Time of the work", _PROCESS)

    def after_send(self, context: SendContext, /) -> None:
        """Note the time of a send."""
        self._send.record(
            context.elapsed * 1000,
            {
                "topic": context.messages[0].topic,
                "client_id": context.client_id,
                "invocation_status": _status(context.error),
            },
        )

    def before_consume(self, context: ConsumeContext, /) -> None:
        """Note how long the messages were on their way."""
        now = self._clock() * 1000
        labels = _of_group(context)
        for message in context.messages:
            # The clocks of two machines differ.
            self._delivery.record(max(now - message.store_timestamp, 0), labels)

    def after_consume(self, context: ConsumeContext, /) -> None:
        """Note the time of the work."""
        labels = {**_of_group(context), "invocation_status": _status(context.error)}
        self._process.record(context.elapsed * 1000, labels)


def _of_group(context: ConsumeContext) -> dict[str, str]:
    return {
        "topic": context.messages[0].topic,
        "client_id": context.client_id,
        "consumer_group": context.group,
    }


def _status(error: BaseException | None) -> str:
    return "success" if error is None else "failure"
