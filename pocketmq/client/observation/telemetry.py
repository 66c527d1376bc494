"""OpenTelemetry: spans of sends and handlers, connected by a context in the messages.

Needs the extra `otel` (pip install 'pocketmq[otel]').

    producer = Producer("orders", hooks=[OpenTelemetryHook()])
    consumer = PushConsumer("billing", hooks=[OpenTelemetryHook()])

    for message in await pull_consumer.poll():
        with consumer_span(message, group="audit"):
            ...

The context is in the message's properties, as W3C `traceparent` and `baggage` (or in the format of
the global propagator), where the instrumentation of other clients looks for it. Names and
attributes follow the semantic conventions for messaging. In a client, only this module and
`client_metrics` load OpenTelemetry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace
from opentelemetry import baggage, propagate, trace
from opentelemetry import context as contexts
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider

from pocketmq.client.errors import RemotingError
from pocketmq.client.observation.consume_hooks import ConsumeContext
from pocketmq.client.observation.send_hooks import SendContext, SendKind
from pocketmq.client.validation import is_delayed
from pocketmq.message.message import MessageExt

_SPAN = "pocketmq.client.observation.telemetry.span"
_TYPES = {SendKind.HALF: "transaction"}


class OpenTelemetryHook:
    """A producer span for each call of a producer, and a consumer span for each call of a handler.
    The consumer span of a batch has links to the spans of its messages.

    A PushConsumer's span is the current one in its handler (also in pocketmq.sync) and in
    `async with message`. Messages that a PullConsumer delivers count as handled at once: use
    `consumer_span` for them. `tracer_provider`: the global one by default.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("pocketmq", tracer_provider=tracer_provider)

    def before_send(self, context: SendContext, /) -> None:
        """Start the span of a send, and put its context into the messages."""
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
                kind = _TYPES.get(context.kind, "delay" if is_delayed(message) else "normal")
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
        """End the span of a send, with its result or its error."""
        span: Span | None = context.attributes.get(_SPAN)
        if span is None:
            return
        if len(context.results) == 1 and (result := context.results[0]) is not None:
            span.set_attribute("messaging.message.id", result.msg_id)
            span.set_attribute("messaging.destination.partition.id", str(result.queue.queue_id))
        if context.error is not None:
            _fail(span, context.error)
        span.end()

    def before_consume(self, context: ConsumeContext, /) -> None:
        """Start the span of a handler, and make it the current one."""
        span = _start_process(self._tracer, context.messages, context.group)
        span.set_attribute("messaging.client.id", context.client_id)
        # A worker has the baggage of the task that started it, perhaps from another message.
        token = contexts.attach(_within(baggage.clear(), span, context.messages))
        context.attributes[_SPAN] = span, token, asyncio.current_task()

    def after_consume(self, context: ConsumeContext, /) -> None:
        """End the span of a handler, with its error if there is one."""
        if _SPAN not in context.attributes:
            return
        span, token, task = context.attributes[_SPAN]
        # A handler that is given up is reported by another task, in which the span is not current.
        if asyncio.current_task() is task:
            contexts.detach(token)
        if context.error is not None:
            _fail(span, context.error)
        span.end()


@contextmanager
def consumer_span(
    message: MessageExt, *, group: str, tracer_provider: TracerProvider | None = None
) -> Iterator[Span]:
    """Open the consumer span of one message as the current one, with the send's span as parent."""
    tracer = trace.get_tracer("pocketmq", tracer_provider=tracer_provider)
    span = _start_process(tracer, (message,), group)
    token = contexts.attach(_within(contexts.get_current(), span, (message,)))
    try:
        yield span
    except BaseException as error:
        _fail(span, error)
        raise
    finally:
        contexts.detach(token)
        span.end()


def _start_process(tracer: Tracer, messages: Sequence[MessageExt], group: str) -> Span:
    first = messages[0]
    parent, links = propagate.extract(first.properties), []
    if len(messages) > 1:
        # A span has only one parent, but each message has one.
        sends = (trace.get_current_span(propagate.extract(m.properties)) for m in messages)
        links = [Link(at) for send in sends if (at := send.get_span_context()).is_valid]
        parent = contexts.Context()
    span = tracer.start_span(
        f"process {first.topic}", context=parent, kind=SpanKind.CONSUMER, links=links
    )
    _describe(span, "process", group, None)
    span.set_attribute("messaging.destination.name", first.topic)
    span.set_attribute("messaging.destination.partition.id", str(first.queue_id))
    if len(messages) > 1:
        span.set_attribute("messaging.batch.message_count", len(messages))
    else:
        span.set_attribute("messaging.message.id", first.msg_id)
        _describe_message(span, first.tags, first.keys)
    return span


def _within(
    context: contexts.Context, span: Span, messages: Sequence[MessageExt]
) -> contexts.Context:
    """Return the context with the span and, for a single message, with its baggage."""
    if len(messages) == 1:
        context = propagate.extract(messages[0].properties, context)
    return trace.set_span_in_context(span, context)


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
    span.set_attribute(
        "error.type", str(int(error.code)) if isinstance(error, RemotingError) else kind
    )
    span.set_status(Status(StatusCode.ERROR, str(error)))
