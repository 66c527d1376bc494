"""OpenTelemetry: spans of sends, and their context in the messages (pip install 'pocketmq[otel]').

    producer = Producer("orders", hooks=[OpenTelemetryHook()])

    async for message in consumer:
        with consumer_span(message, group="audit"):
            ...

The context travels as W3C `traceparent` (or what the global propagator writes) in the message's
properties, where the instrumentation of other clients looks for it. Names and attributes follow the
semantic conventions for messaging. Nothing of OpenTelemetry is loaded unless this module is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from opentelemetry import propagate, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

from client.errors import RemotingError
from client.producer.hooks import SendContext, SendKind
from message.message import MessageExt

__all__ = ["OpenTelemetryHook", "consumer_span"]

_SPAN = "client.telemetry.span"
_TYPES = {SendKind.HALF: "transaction"}


class OpenTelemetryHook:
    """A producer span for each call of a producer; a batch is one span.

    `tracer_provider`: the global one by default.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("pocketmq", tracer_provider=tracer_provider)

    def before_send(self, context: SendContext, /) -> None:
        topics = {message.topic for message in context.messages}
        topic = topics.pop() if len(topics) == 1 else None
        span = self._tracer.start_span(
            "send" if topic is None else f"send {topic}", kind=SpanKind.PRODUCER
        )
        context.attributes[_SPAN] = span
        if span.is_recording():
            _describe(span, "send", context.group, context.client_id)
            if topic is not None:
                span.set_attribute("messaging.destination.name", topic)
            if len(context.messages) == 1:
                message = context.messages[0]
                span.set_attribute("messaging.message.body.size", len(message.body))
                _describe_message(span, message.tags, tuple(message.keys))
                kind = _TYPES.get(context.kind, "delay" if message.delay_level else "normal")
                span.set_attribute("messaging.rocketmq.message.type", kind)
            else:
                span.set_attribute("messaging.batch.message_count", len(context.messages))
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        if carrier:
            context.messages = [
                replace(message, properties={**message.properties, **carrier})
                for message in context.messages
            ]

    def after_send(self, context: SendContext, /) -> None:
        span: Span | None = context.attributes.get(_SPAN)
        if span is None:
            return
        if len(context.results) == 1 and (result := context.results[0]) is not None:
            span.set_attribute("messaging.message.id", result.msg_id)
            span.set_attribute("messaging.destination.partition.id", str(result.queue.queue_id))
        if context.error is not None:
            _fail(span, context.error)
        span.end()


@contextmanager
def consumer_span(
    message: MessageExt, *, group: str, tracer_provider: TracerProvider | None = None
) -> Iterator[Span]:
    """The consumer span of one message, current within, with the send's span as its parent."""
    tracer = trace.get_tracer("pocketmq", tracer_provider=tracer_provider)
    parent = propagate.extract(message.properties)
    with tracer.start_as_current_span(
        f"process {message.topic}",
        context=parent,
        kind=SpanKind.CONSUMER,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        _describe(span, "process", group, None)
        span.set_attribute("messaging.destination.name", message.topic)
        span.set_attribute("messaging.destination.partition.id", str(message.queue_id))
        span.set_attribute("messaging.message.id", message.msg_id)
        _describe_message(span, message.tags, message.keys)
        try:
            yield span
        except BaseException as error:
            _fail(span, error)
            raise


def _describe(span: Span, operation: str, group: str, client_id: str | None) -> None:
    span.set_attribute("messaging.system", "rocketmq")
    span.set_attribute("messaging.operation.name", operation)
    span.set_attribute("messaging.operation.type", operation)
    if client_id is None:
        span.set_attribute("messaging.consumer.group.name", group)
    else:
        span.set_attribute("messaging.client.id", client_id)
        span.set_attribute("messaging.rocketmq.producer_group", group)


def _describe_message(span: Span, tags: str | None, keys: tuple[str, ...]) -> None:
    if tags:
        span.set_attribute("messaging.rocketmq.message.tag", tags)
    if keys:
        span.set_attribute("messaging.rocketmq.message.keys", keys)


def _fail(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    kind = type(error).__qualname__
    span.set_attribute("error.type", str(error.code) if isinstance(error, RemotingError) else kind)
    span.set_status(Status(StatusCode.ERROR, str(error)))
