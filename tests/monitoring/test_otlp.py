"""A broker's process sends metrics and spans to a collector: names are known, sums are right."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="pip install 'pocketmq[otlp]'")

from opentelemetry.sdk.trace import TracerProvider

from pocketmq import Message, Producer, PushConsumer
from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.remoting.serving.service import ExitCode
from pocketmq.telemetry import OpenTelemetryHook
from tests.cli.running import Running
from tests.monitoring.collector import Collector, attributes
from tests.monitoring.test_dashboards import PAGE

TOPIC, GROUP = "orders", "billing"
SENT = 50
BODY = b"x" * 100
NEVER = 3_600_000  # ms


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.stop()


async def work(namesrv: str) -> None:
    """Send messages, the first of them in a trace, and consume them."""
    done = asyncio.Event()
    consumed = 0
    consumer = PushConsumer(GROUP, namesrv=namesrv, start="begin")

    @consumer.on(TOPIC)
    async def handle(message: ConsumedMessage) -> None:
        nonlocal consumed
        consumed += 1
        if consumed == SENT:
            done.set()

    hook = OpenTelemetryHook(TracerProvider(shutdown_on_exit=False))
    async with Producer("shop", namesrv=namesrv, hooks=[hook]) as producer:
        await producer.send(Message(TOPIC, BODY))
    async with Producer("shop", namesrv=namesrv) as producer:
        for _ in range(SENT - 1):
            await producer.send(Message(TOPIC, BODY))
    async with consumer:
        await done.wait()


async def test_a_collector_gets_what_a_broker_has_counted(
    tmp_path: Path, collector: Collector
) -> None:
    with Running(
        *("serve", "--store", tmp_path, "--listen-port", "0", "--namesrv-port", "0"),
        *("--no-grpc", "--no-dashboard", "--set", "metricsExporterType=OTLP_GRPC"),
        *("--set", f"metricsGrpcExporterTarget={collector.target}"),
        # The request that is examined is the one that it sends when it stops.
        *("--set", f"metricGrpcExporterIntervalInMills={NEVER}"),
        *("--set", f"traceGrpcExporterTarget={collector.target}"),
    ) as server:
        listening = await asyncio.to_thread(server.wait_for, r"name server listening on (\S+),")
        await work(listening[1])
        assert await asyncio.to_thread(server.stop) == ExitCode.OK
    assert server.err == []
    sums_are_what_was_sent(collector)
    names_are_in_the_documentation(collector)
    spans = {span.name: span for span in collector.spans}
    assert set(spans) == {f"store {TOPIC}", f"deliver {TOPIC}"}
    stored, delivered = spans[f"store {TOPIC}"], spans[f"deliver {TOPIC}"]
    assert stored.trace_id == delivered.trace_id
    assert stored.parent_span_id == delivered.parent_span_id
    assert attributes(delivered)["messaging.consumer.group.name"] == GROUP


def sums_are_what_was_sent(collector: Collector) -> None:
    of_group = {"topic": TOPIC, "consumer_group": GROUP, "node_id": "broker-a"}
    normal = {"topic": TOPIC, "message_type": "normal", "node_type": "broker"}
    assert collector.sum("rocketmq_messages_in_total", **normal) == SENT
    assert collector.sum("rocketmq_messages_out_total", **of_group) == SENT
    assert collector.observations("rocketmq_message_size", **normal) == SENT
    assert collector.sum("rocketmq_throughput_in_total", **normal) > SENT * len(BODY)
    assert collector.sum("rocketmq_consumer_lag_messages", **of_group) == 0
    sends = {"request_code": "send_message_v2", "response_code": "success"}
    assert collector.observations("rocketmq_rpc_latency", **sends) == SENT


def names_are_in_the_documentation(collector: Collector) -> None:
    """With their units, which Prometheus has in the names."""
    page = PAGE.read_text()
    listed = set(re.findall(r"`((?:rocketmq|pocketmq)_\w+)`", page))
    assert len(collector.metrics) > 20
    for name, metric in collector.metrics.items():
        whole = f"{name}_{metric.unit}" if metric.unit else name
        assert whole in listed or f"{whole}_total" in listed
