from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="pip install 'pocketmq[test]'")

from opentelemetry import baggage, context, trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from pocketmq import sync
from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.errors import SendError
from pocketmq.client.observation.telemetry import OpenTelemetryHook, consumer_span
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message, MessageExt
from pocketmq.message.record import decode
from pocketmq.remoting.codes import ResponseCode
from tests.client.fake_cluster import FakeCluster
from tests.client.waiting import until


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(spans: InMemorySpanExporter) -> TracerProvider:
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(SimpleSpanProcessor(spans))
    return made


async def test_a_trace_goes_from_the_send_to_the_handler(
    cluster: FakeCluster, spans: InMemorySpanExporter, provider: TracerProvider
) -> None:
    cluster.put("T", "a", queues=1)
    tracer = provider.get_tracer("test")
    async with Producer("PG", namesrv=cluster.namesrv, hooks=[OpenTelemetryHook(provider)]) as p:
        with tracer.start_as_current_span("outer") as outer:
            result = await p.send(Message("T", b"four", tags="t", keys=["k"]))
        await p.send_batch([Message("T", b"x")] * 3)
    records = cluster["a"].records["T", 0]
    message = MessageExt.from_record(decode(records[0]), "a")
    with (
        pytest.raises(ZeroDivisionError),
        consumer_span(message, group="CG", tracer_provider=provider),
    ):
        raise ZeroDivisionError
    _, sent, batch, processed = sorted(
        spans.get_finished_spans(), key=lambda span: (span.name != "outer", span.start_time)
    )
    assert (sent.name, sent.kind) == ("send T", SpanKind.PRODUCER)
    assert sent.parent == outer.get_span_context()
    assert sent.attributes is not None
    assert (
        sent.attributes.items()
        >= {
            "messaging.system": "rocketmq",
            "messaging.destination.name": "T",
            "messaging.message.id": result.msg_id,
            "messaging.message.body.size": 4,
            "messaging.rocketmq.message.tag": "t",
            "messaging.rocketmq.message.keys": ("k",),
            "messaging.client.id": p.client_id,
        }.items()
    )
    assert batch.attributes is not None
    assert batch.attributes["messaging.batch.message_count"] == 3
    assert all(
        f"{batch.context.span_id:016x}"
        in MessageExt.from_record(decode(r)).properties["traceparent"]
        for r in records[1:]
    )
    assert (processed.name, processed.kind) == ("process T", SpanKind.CONSUMER)
    assert processed.parent is not None
    assert processed.parent.span_id == sent.context.span_id
    assert processed.status.status_code is StatusCode.ERROR
    assert processed.attributes is not None
    assert processed.attributes["error.type"] == "ZeroDivisionError"
    assert processed.attributes["messaging.consumer.group.name"] == "CG"


async def test_what_came_with_a_message_is_there_for_the_work_on_it(
    cluster: FakeCluster, provider: TracerProvider
) -> None:
    cluster.put("T", "a", queues=1)
    hook = OpenTelemetryHook(provider)
    seen: list[object] = []

    async def handle(message: ConsumedMessage) -> None:
        seen.append(baggage.get_baggage("user"))

    async with Producer("PG", namesrv=cluster.namesrv, hooks=[hook]) as p:
        for user in ("u1", "u2", None):
            token = context.attach(baggage.set_baggage("user", user) if user else Context())
            await p.send(Message("T", b"x"))
            context.detach(token)
    starting = context.attach(baggage.set_baggage("user", "who starts"))
    async with PushConsumer(
        "CG", {"T": "*"}, handler=handle, namesrv=cluster.namesrv, start="begin", hooks=[hook]
    ):
        await until(lambda: len(seen) == 3)
    context.detach(starting)
    assert seen == ["u1", "u2", None]
    message = MessageExt.from_record(decode(cluster["a"].records["T", 0][0]), "a")
    token = context.attach(baggage.set_baggage("reader", "r1"))
    with consumer_span(message, group="CG", tracer_provider=provider) as span:
        assert trace.get_current_span() is span
        assert baggage.get_all() == {"reader": "r1", "user": "u1"}
    assert baggage.get_all() == {"reader": "r1"}
    assert trace.get_current_span() is trace.INVALID_SPAN
    context.detach(token)


@pytest.mark.parametrize(
    "late", [{"delay_level": 1}, {"delay": 1}, {"deliver_at": 1_700_000_000_000}]
)
async def test_a_timer_is_a_delay(
    cluster: FakeCluster,
    spans: InMemorySpanExporter,
    provider: TracerProvider,
    late: dict[str, Any],
) -> None:
    async with Producer("PG", namesrv=cluster.namesrv, hooks=[OpenTelemetryHook(provider)]) as p:
        await p.send(Message("T", b"x", **late))
    [span] = spans.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["messaging.rocketmq.message.type"] == "delay"


async def test_a_failed_send(
    cluster: FakeCluster, spans: InMemorySpanExporter, provider: TracerProvider
) -> None:
    cluster["a"].mode = cluster["b"].mode = ResponseCode.MESSAGE_ILLEGAL
    async with Producer("PG", namesrv=cluster.namesrv, hooks=[OpenTelemetryHook(provider)]) as p:
        with pytest.raises(SendError):
            await p.send(Message("T", b"x"))
    [span] = spans.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "13"


def ended(spans: InMemorySpanExporter, kind: SpanKind) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.kind is kind]


def span_id(span: ReadableSpan | None) -> int:
    assert span is not None
    own = span.get_span_context()
    assert own is not None
    return own.span_id


async def test_the_work_of_handlers_is_a_span(
    cluster: FakeCluster, spans: InMemorySpanExporter, provider: TracerProvider
) -> None:
    cluster.put("T", "a", queues=1)
    cluster.put("U", "b", queues=1)
    hook = OpenTelemetryHook(provider)
    current: list[int] = []
    async with (
        Producer("PG", namesrv=cluster.namesrv, hooks=[hook]) as p,
        PushConsumer("CG", namesrv=cluster.namesrv, start="begin", hooks=[hook]) as c,
    ):

        async def handle(message: ConsumedMessage) -> None:
            await asyncio.sleep(0)
            current.append(trace.get_current_span().get_span_context().span_id)
            if message.body == b"good":
                await p.send(Message("U", b"next"))
            else:
                raise ZeroDivisionError

        result = await p.send(Message("T", b"good", tags="t"))
        await p.send(Message("T", b"bad"))
        await c.subscribe("T", handler=handle)
        await until(lambda: len(ended(spans, SpanKind.CONSUMER)) == 2)
        client_id = c.client_id
    works = {span.status.status_code: span for span in ended(spans, SpanKind.CONSUMER)}
    good, bad = works[StatusCode.UNSET], works[StatusCode.ERROR]
    assert {span_id(good), span_id(bad)} == set(current)
    sends = ended(spans, SpanKind.PRODUCER)
    [following] = [span for span in sends if span.name == "send U"]
    assert following.parent is not None
    assert following.parent.span_id == span_id(good)
    first, second = (span for span in sends if span.name == "send T")
    assert good.parent is not None
    assert bad.parent is not None
    assert (good.parent.span_id, bad.parent.span_id) == (span_id(first), span_id(second))
    assert good.attributes is not None
    assert (
        good.attributes.items()
        >= {
            "messaging.operation.type": "process",
            "messaging.destination.name": "T",
            "messaging.consumer.group.name": "CG",
            "messaging.client.id": client_id,
            "messaging.message.id": result.msg_id,
            "messaging.rocketmq.message.tag": "t",
        }.items()
    )
    assert bad.attributes is not None
    assert bad.attributes["error.type"] == "ZeroDivisionError"


async def test_a_batch_is_one_span_with_its_sends_as_links(
    cluster: FakeCluster, spans: InMemorySpanExporter, provider: TracerProvider
) -> None:
    cluster.put("T", "a", queues=1)
    hook = OpenTelemetryHook(provider)
    async with Producer("PG", namesrv=cluster.namesrv, hooks=[hook]) as p:
        for body in (b"0", b"1"):
            await p.send(Message("T", body))
    c = PushConsumer("CG", namesrv=cluster.namesrv, start="begin", hooks=[hook])

    @c.on("T", max_batch=2)
    async def handle(messages: list[ConsumedMessage]) -> None:
        assert len(messages) == 2

    with provider.get_tracer("test").start_as_current_span("starting"):
        await c.start()
    async with c:
        await until(lambda: ended(spans, SpanKind.CONSUMER))
    [work] = ended(spans, SpanKind.CONSUMER)
    assert work.parent is None
    sends = ended(spans, SpanKind.PRODUCER)
    assert [link.context.span_id for link in work.links] == [span_id(send) for send in sends]
    assert work.attributes is not None
    assert work.attributes["messaging.batch.message_count"] == 2


async def test_who_iterates_has_the_span_in_the_block_and_not_after_it(
    cluster: FakeCluster, spans: InMemorySpanExporter, provider: TracerProvider
) -> None:
    cluster["a"].store("T", 0, b"x")
    hooks = [OpenTelemetryHook(provider)]
    async with PushConsumer(
        "CG", {"T": "*"}, namesrv=cluster.namesrv, start="begin", hooks=hooks
    ) as c:
        async with await anext(c):
            current = trace.get_current_span().get_span_context().span_id
        assert trace.get_current_span() is trace.INVALID_SPAN
    [work] = ended(spans, SpanKind.CONSUMER)
    assert span_id(work) == current


async def test_work_that_is_given_up_ends_its_span(
    cluster: FakeCluster,
    spans: InMemorySpanExporter,
    provider: TracerProvider,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster["a"].store("T", 0, b"x")
    begun = asyncio.Event()

    async def handle(message: ConsumedMessage) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with PushConsumer(
        "CG", {"T": "*"}, handler=handle, namesrv=cluster.namesrv, start="begin",
        hooks=[OpenTelemetryHook(provider)], shutdown_timeout=0.01,
    ):  # fmt: skip
        await begun.wait()
    [work] = ended(spans, SpanKind.CONSUMER)
    assert work.attributes is not None
    assert work.attributes["error.type"] == "CancelledError"
    assert "detach" not in caplog.text


async def test_the_thread_of_a_plain_handler_has_the_span(
    cluster: FakeCluster, spans: InMemorySpanExporter, provider: TracerProvider
) -> None:
    cluster["a"].store("T", 0, b"x")
    current: list[int] = []

    def work() -> None:
        c = sync.PushConsumer(
            "CG", namesrv=cluster.namesrv, start="begin", hooks=[OpenTelemetryHook(provider)]
        )

        @c.on("T")
        def handle(message: sync.ConsumedMessage) -> None:
            current.append(trace.get_current_span().get_span_context().span_id)
            c.shutdown()

        c.run()

    await asyncio.to_thread(work)
    assert [span_id(span) for span in ended(spans, SpanKind.CONSUMER)] == current
