"""Spans of a broker at a collector: one trace from the producer to the handler."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="pip install 'pocketmq[otlp]'")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pocketmq import Message, Producer, PushConsumer
from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.message.batch_body import encode_batch
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.store.config import FlushDiskType
from pocketmq.telemetry import OpenTelemetryHook
from tests.broker.conftest import Connect, StartBroker
from tests.broker.pop.consuming import PopClient
from tests.broker.replication.pair import running
from tests.client.waiting import until
from tests.monitoring.collector import Collector, attributes

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE, SEND = bytes.fromhex(PARENT[3:35]), bytes.fromhex(PARENT[36:52])


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.stop()


async def test_one_trace_from_the_producer_through_the_broker_to_the_handler(
    tmp_path: Path, collector: Collector
) -> None:
    of_clients = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(of_clients))
    async with running(tmp_path) as pair:
        await pair.start(0, metrics_exporter_type="PROM", metrics_prom_exporter_port=0,
                         trace_grpc_exporter_target=collector.target)  # fmt: skip
        done = asyncio.Event()
        hook = OpenTelemetryHook(provider)
        consumer = PushConsumer("CG", namesrv=pair.namesrv, start="begin", hooks=[hook])

        @consumer.on("T")
        async def handle(message: ConsumedMessage) -> None:
            done.set()

        async with Producer("PG", namesrv=pair.namesrv, hooks=[hook]) as producer:
            await producer.send(Message("T", b"four"))
            async with consumer:
                await done.wait()
    sent, processed = sorted(of_clients.get_finished_spans(), key=lambda span: span.start_time or 0)
    assert (sent.name, processed.name) == ("send T", "process T")
    assert sent.context is not None
    assert processed.parent is not None
    assert processed.parent.span_id == sent.context.span_id
    stored, delivered = sorted(collector.spans, key=lambda span: span.start_time_unix_nano)
    assert (stored.name, delivered.name) == ("store T", "deliver T")
    for span in (stored, delivered):
        assert int.from_bytes(span.trace_id) == sent.context.trace_id
        assert int.from_bytes(span.parent_span_id) == sent.context.span_id
    assert attributes(delivered)["messaging.consumer.group.name"] == "CG"
    assert processed.context is not None
    assert processed.context.trace_id == sent.context.trace_id


async def test_spans_of_late_answers_refusals_batches_and_pops(
    start_broker: StartBroker, connect: Connect, collector: Collector
) -> None:
    broker = await start_broker(trace_grpc_exporter_target=collector.target)
    client = await connect(broker)
    traced = {"traceparent": PARENT}
    assert (await client.send("T", b"no context")).code == 0
    pops = PopClient(client, "T", broker_name=broker.config.broker_name)
    assert [each.body for each in await pops.pop()] == [b"no context"]
    # The pop is answered when the message comes.
    waiting = asyncio.create_task(pops.pop(poll_time=20_000))
    await until(lambda: len(broker.components.pops.polling) == 1)
    other = await connect(broker)
    assert (await other.send("T", b"popped", properties=traced)).code == 0
    assert [each.body for each in await waiting] == [b"popped"]
    batch = encode_batch([(0, b"x", f"traceparent\x01{PARENT}\x02".encode())] * 2)
    answer = await client.send("T", batch, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
    assert answer.code == 0, answer.remark
    refused = await client.send("T", b"", properties=traced)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    await broker.stop()
    assert {(span.trace_id, span.parent_span_id) for span in collector.spans} == {(TRACE, SEND)}
    assert sorted((span.name, span.status.code) for span in collector.spans) == [
        ("deliver T", 0),
        ("store T", 0),
        ("store T", 0),
        ("store T", 2),
    ]


async def test_the_span_of_a_send_that_waited_for_the_disk_has_its_size(
    start_broker: StartBroker, connect: Connect, collector: Collector
) -> None:
    broker = await start_broker(
        trace_grpc_exporter_target=collector.target, flush_disk_type=FlushDiskType.SYNC_FLUSH
    )
    client = await connect(broker)
    assert (await client.send("T", b"first")).code == 0
    assert (await client.send("T", b"four", properties={"traceparent": PARENT})).code == 0
    await broker.stop()
    (span,) = collector.spans
    sizes = [
        each.value.int_value
        for each in span.attributes
        if each.key == "messaging.message.body.size"
    ]
    assert sizes == [4]
