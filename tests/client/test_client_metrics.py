"""Histograms of sends and of the work on messages, as an OpenTelemetry reader gets them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="pip install 'pocketmq[test]'")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.errors import SendError
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message
from pocketmq.remoting.codes import ResponseCode
from pocketmq.telemetry import OpenTelemetryMetrics
from tests.client.fake_cluster import FakeCluster
from tests.client.waiting import until


def read(reader: InMemoryMetricReader) -> dict[str, list[Any]]:
    """The points of each metric."""
    data: Any = reader.get_metrics_data()
    return {
        metric.name: list(metric.data.data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def provider(reader: InMemoryMetricReader) -> MeterProvider:
    return MeterProvider([reader], shutdown_on_exit=False)


async def test_sends_are_timed_by_their_outcome(
    cluster: FakeCluster, reader: InMemoryMetricReader, provider: MeterProvider
) -> None:
    cluster.put("T", "a", queues=1)
    hooks = [OpenTelemetryMetrics(provider)]
    async with Producer("PG", namesrv=cluster.namesrv, hooks=hooks, retries=0) as producer:
        await producer.send(Message("T", b"x"))
        cluster["a"].mode = ResponseCode.SYSTEM_ERROR
        with pytest.raises(SendError):
            await producer.send(Message("T", b"x"))
    points = read(reader)["rocketmq_send_cost_time"]
    assert {point.attributes["invocation_status"]: point.count for point in points} == {
        "success": 1, "failure": 1,
    }  # fmt: skip
    assert {point.attributes["topic"] for point in points} == {"T"}
    assert points[0].explicit_bounds == (1, 5, 10, 20, 50, 200, 500)


async def test_the_way_and_the_work_are_timed(
    cluster: FakeCluster, reader: InMemoryMetricReader, provider: MeterProvider
) -> None:
    cluster.put("T", "a", queues=1)
    done = asyncio.Event()
    consumer = PushConsumer(
        "CG", namesrv=cluster.namesrv, start="begin", hooks=[OpenTelemetryMetrics(provider)]
    )

    @consumer.on("T")
    async def handle(message: ConsumedMessage) -> None:
        done.set()

    async with Producer("PG", namesrv=cluster.namesrv) as producer:
        await producer.send(Message("T", b"x"))
    async with consumer:
        await done.wait()
        await until(lambda: "rocketmq_process_time" in read(reader))
    points = read(reader)
    (way,) = points["rocketmq_delivery_latency"]
    (work,) = points["rocketmq_process_time"]
    assert (way.attributes["consumer_group"], way.count) == ("CG", 1)
    assert (work.attributes["invocation_status"], work.count) == ("success", 1)


async def test_what_waits_in_a_consumer_is_shown_while_it_runs(
    cluster: FakeCluster, reader: InMemoryMetricReader, provider: MeterProvider
) -> None:
    cluster.put("T", "a", queues=1)
    metrics = OpenTelemetryMetrics(provider)
    begun, go_on = asyncio.Event(), asyncio.Event()
    consumer = PushConsumer("CG", namesrv=cluster.namesrv, start="begin")
    metrics.watch(consumer)

    @consumer.on("T")
    async def handle(message: ConsumedMessage) -> None:
        begun.set()
        await go_on.wait()

    def cached(unit: str) -> int | None:
        """That of the topic, not of the group's retry topic."""
        points = read(reader).get(f"rocketmq_consumer_cached_{unit}", [])
        of_topic = [point for point in points if point.attributes["topic"] == "T"]
        assert all(
            point.attributes
            == {"topic": "T", "client_id": consumer.client_id, "consumer_group": "CG"}
            for point in of_topic
        )
        return of_topic[0].value if of_topic else None

    assert consumer.cached == {}
    async with Producer("PG", namesrv=cluster.namesrv) as producer:
        for _ in range(3):
            await producer.send(Message("T", b"12345"))
    async with consumer:
        await begun.wait()
        await until(lambda: cached("messages") == 3)
        assert cached("bytes") == 15
        go_on.set()
        await until(lambda: cached("messages") == 0)
        assert cached("bytes") == 0
