"""OpenTelemetry metrics: durations of sends and handlers, and the messages cached in a consumer.

They have the names of RocketMQ's own clients. Needs the extra `otel` (pip install
'pocketmq[otel]').

    metrics = OpenTelemetryMetrics()
    producer = Producer("orders", hooks=[metrics])
    consumer = PushConsumer("billing", hooks=[metrics])
    metrics.watch(consumer)

The meter provider determines how they are exported: for Prometheus, to a collector, ... Reference:
HistogramEnum, GaugeEnum and MetricLabels of rocketmq-clients.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Protocol

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from pocketmq.client.observation.consume_hooks import ConsumeContext
from pocketmq.client.observation.send_hooks import SendContext

_DELIVERY = [1.0, 5.0, 10.0, 20.0, 50.0, 200.0, 500.0]
_PROCESS = [1.0, 5.0, 10.0, 100.0, 1000.0, 10_000.0, 60_000.0]


class CachingConsumer(Protocol):
    """A consumer that shows its cached messages, such as PushConsumer."""

    @property
    def group(self) -> str: ...

    @property
    def client_id(self) -> str: ...

    @property
    def cached(self) -> Mapping[str, tuple[int, int]]: ...


class OpenTelemetryMetrics:
    """Histograms in milliseconds of the calls of producers and handlers:

    - `rocketmq_send_cost_time` (topic, client_id, invocation_status): of a send;
    - `rocketmq_delivery_latency` (topic, client_id, consumer_group): from the store time of a
      message to the call of its handler. Unlike in RocketMQ's clients, this includes the time in
      the client's cache;
    - `rocketmq_process_time` (the same and invocation_status): of a handler, for a message or a
      batch.

    For consumers passed to `watch`, there are also gauges (topic, client_id, consumer_group), which
    are read when the meter provider collects:

    - `rocketmq_consumer_cached_messages`: received and not consumed;
    - `rocketmq_consumer_cached_bytes`: of their bodies.

    One hook may serve any number of clients. `meter_provider`: the global one by default; `clock`
    returns Unix seconds.
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

        self._send = histogram("rocketmq_send_cost_time", "Duration of a send", _DELIVERY)
        self._delivery = histogram(
            "rocketmq_delivery_latency",
            "Time from the store of a message to its handler",
            _DELIVERY,
        )
        self._process = histogram("rocketmq_process_time", "Duration of a handler", _PROCESS)
        self._watched: weakref.WeakSet[CachingConsumer] = weakref.WeakSet()
        for number, unit, text in (
            (0, "messages", "Messages received and not consumed"),
            (1, "bytes", "Bytes of the bodies of messages received and not consumed"),
        ):
            meter.create_observable_gauge(
                f"rocketmq_consumer_cached_{unit}",
                [partial(self._cached, number)],
                description=text,
            )

    def watch(self, consumer: CachingConsumer) -> None:
        """Show the cached messages of a consumer while it runs. Keeps only a weak reference."""
        self._watched.add(consumer)

    def _cached(self, number: int, options: CallbackOptions, /) -> Iterable[Observation]:
        for consumer in list(self._watched):
            for topic, amounts in consumer.cached.items():
                yield Observation(
                    amounts[number],
                    {
                        "topic": topic,
                        "client_id": consumer.client_id,
                        "consumer_group": consumer.group,
                    },
                )

    def after_send(self, context: SendContext, /) -> None:
        """Record the duration of a send."""
        self._send.record(
            context.elapsed * 1000,
            {
                "topic": context.messages[0].topic,
                "client_id": context.client_id,
                "invocation_status": _status(context.error),
            },
        )

    def before_consume(self, context: ConsumeContext, /) -> None:
        """Record the delivery latency of the messages."""
        now = self._clock() * 1000
        labels = _of_group(context)
        for message in context.messages:
            # The clocks of the two machines may differ.
            self._delivery.record(max(now - message.store_timestamp, 0), labels)

    def after_consume(self, context: ConsumeContext, /) -> None:
        """Record the duration of the handler."""
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
