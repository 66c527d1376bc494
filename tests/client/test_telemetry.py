import pytest

pytest.importorskip("opentelemetry.sdk", reason="pip install 'pocketmq[test]'")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from client.errors import SendError
from client.producer.producer import Producer
from client.telemetry import OpenTelemetryHook, consumer_span
from message.message import Message, MessageExt
from message.record import decode
from remoting.codes import ResponseCode
from tests.client.fake_cluster import FakeCluster


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
