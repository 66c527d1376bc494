"""Spans of a broker for an OpenTelemetry collector (extra `otlp`): messages stored and delivered.

Only a message with a W3C context in its property `traceparent` gets spans; the producer's send span
is the parent of both. The handlers of sends, pulls and pops in a dispatcher are wrapped, so tracing
costs nothing while it is off.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from time import time_ns
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pocketmq.limited_log import LimitedLog
from pocketmq.message import properties as names
from pocketmq.message.batch_body import BatchBodyError, iter_batch
from pocketmq.message.properties import find
from pocketmq.message.record import iter_records
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.serving.dispatch import Answer, Dispatcher, Handler
from pocketmq.remoting.serving.request import Request, Response

log = LimitedLog(logging.getLogger(__name__))

PARENT: Final = "traceparent"
STATE: Final = "tracestate"
EXPORT_SECONDS: Final = 2  # per batch, with retries; a stop sends up to four queued batches
_SENDS: Final = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)
_DELIVERIES: Final = (
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.POP_MESSAGE,
)

#: Called with the answer to a request, to end its spans.
_End = Callable[[Request[Any], Response | bytes], None]


class Tracing:
    """The spans of one broker, sent to the collector at `target` (`http://host:port`).

    A thread of the SDK sends them in batches; when its queue is full, spans are dropped.
    """

    def __init__(self, target: str, *, cluster: str, broker_name: str) -> None:
        resource = Resource.create(
            {
                "service.name": "pocketmq-broker",
                "service.namespace": cluster,
                "service.instance.id": broker_name,
            }
        )
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(
            endpoint=target, insecure=not target.startswith("https:"), timeout=EXPORT_SECONDS
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("pocketmq.broker")
        self._propagator = TraceContextTextMapPropagator()

    def close(self) -> None:
        """Send the remaining spans. Blocks."""
        self._provider.shutdown()

    def trace(self, dispatcher: Dispatcher) -> None:
        """Trace the requests of a dispatcher, for the codes that are registered now."""
        for code in _SENDS:
            if code in dispatcher.codes:
                dispatcher.wrap(code, self._around_send)
        for code in _DELIVERIES:
            if code in dispatcher.codes:
                dispatcher.wrap(code, self._around_delivery)

    # --- sends ----------------------------------------------------------------------------------

    def _around_send(self, handler: Handler) -> Handler:
        def traced(request: Request[Any]) -> Answer:
            parent, state = _context_of(request)
            if parent is None:
                return handler(request)
            began = time_ns()
            size = len(request.body)  # a send that waits for the disk drops its body

            def end(request: Request[Any], answer: Response | bytes) -> None:
                self._stored(request, answer, parent, state, began, size)

            return _until_answered(handler, request, end)

        return traced

    def _stored(
        self,
        request: Request[Any],
        answer: Response | bytes,
        parent: str,
        state: str | None,
        began: int,
        size: int,
    ) -> None:
        topic = request.header.topic
        span = self._span("store", topic, parent, state, began)
        span.set_attribute("messaging.message.body.size", size)
        span.set_attribute("messaging.rocketmq.producer_group", request.header.producer_group)
        if isinstance(answer, Response) and answer.code != ResponseCode.SUCCESS:
            span.set_attribute("error.type", str(int(answer.code)))
            span.set_status(Status(StatusCode.ERROR, answer.remark))
        span.end()

    # --- deliveries -----------------------------------------------------------------------------

    def _around_delivery(self, handler: Handler) -> Handler:
        def traced(request: Request[Any]) -> Answer:
            return _until_answered(handler, request, self._delivered)

        return traced

    def _delivered(self, request: Request[Any], answer: Response | bytes) -> None:
        if not isinstance(answer, Response) or answer.code != ResponseCode.SUCCESS:
            return
        body = answer.body
        buffers: Iterable[Any] = (
            (body,) if isinstance(body, (bytes, bytearray, memoryview)) else body
        )
        for buffer in buffers:
            for record in iter_records(buffer, check_crc=False):
                parent = record.properties.get(PARENT)
                if parent is None:
                    continue
                state = record.properties.get(STATE)
                span = self._span("deliver", record.topic, parent, state, time_ns())
                span.set_attribute("messaging.consumer.group.name", request.header.consumer_group)
                span.set_attribute("messaging.destination.partition.id", str(record.queue_id))
                span.set_attribute("messaging.rocketmq.queue_offset", record.queue_offset)
                span.set_attribute(
                    "messaging.message.id", record.properties.get(names.UNIQ_KEY, "")
                )
                span.end()

    def _span(self, operation: str, topic: str, parent: str, state: str | None, began: int) -> Any:
        carrier = {PARENT: parent} if state is None else {PARENT: parent, STATE: state}
        span = self._tracer.start_span(
            f"{operation} {topic}",
            context=self._propagator.extract(carrier),
            kind=SpanKind.SERVER,
            start_time=began,
        )
        span.set_attribute("messaging.system", "rocketmq")
        span.set_attribute("messaging.operation.name", operation)
        span.set_attribute("messaging.destination.name", topic)
        return span


def _context_of(request: Request[Any]) -> tuple[str | None, str | None]:
    """Return `traceparent` and `tracestate` of a send; for a batch, of its first message."""
    header = request.header
    properties: str = header.properties or ""
    if header.batch or request.code == RequestCode.SEND_BATCH_MESSAGE:
        try:
            first = next(iter_batch(request.body), None)
        except BatchBodyError:  # its handler refuses it
            return None, None
        properties = "" if first is None else bytes(first.properties).decode(errors="replace")
    return find(properties, PARENT), find(properties, STATE)


def _until_answered(handler: Handler, request: Request[Any], end: _End) -> Answer:
    """Execute a request, and call `end` with its answer, which may come later."""
    try:
        answer = handler(request)
    except RemotingError as error:
        _call(end, request, Response(error.code, error.remark))
        raise
    if answer is None:
        request.when_answered(partial(_call, end))
        return None
    if isinstance(answer, (Response, bytes)):
        _call(end, request, answer)
        return answer
    return _awaited(answer, request, end)


async def _awaited(
    answer: Awaitable[Response | None], request: Request[Any], end: _End
) -> Response | None:
    try:
        response = await answer
    except RemotingError as error:
        _call(end, request, Response(error.code, error.remark))
        raise
    if response is None:
        request.when_answered(partial(_call, end))
    else:
        _call(end, request, response)
    return response


def _call(end: _End, request: Request[Any], answer: Response | bytes) -> None:
    """Make spans; an error in this must not fail the request."""
    try:
        end(request, answer)
    except Exception as error:
        log.error("request code %d has no span: %s: %s", request.code, type(error).__name__, error)
