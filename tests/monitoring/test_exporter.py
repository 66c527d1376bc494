"""What the settings start: pages over HTTP, lines in the log, a collector that is sent to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pocketmq.broker.config import load_broker_config
from pocketmq.monitoring.exporter import Monitoring
from pocketmq.monitoring.families import COUNTER, GAUGE, HISTOGRAM, Distribution, Family
from pocketmq.remoting.serving.listening import PortInUse
from pocketmq.remoting.serving.stop_steps import StopSteps
from tests.monitoring.collector import Collector, attributes
from tests.monitoring.pages import Series, get

pytest.importorskip("prometheus_client", reason="pip install 'pocketmq[metrics]'")

FAMILIES = [
    Family("rocketmq_messages_in_total", COUNTER, "in", ("topic",), [(("T",), 5)]),
    Family("rocketmq_consumer_lag_latency", GAUGE, "lag", (), [((), 7)], "milliseconds"),
    Family("rocketmq_message_size", HISTOGRAM, "", (), [((), Distribution((1, 2), 9))], "", (10,)),
]


async def collect() -> list[Family]:
    return FAMILIES


@contextlib.asynccontextmanager
async def monitoring(text: str, **options: float) -> AsyncIterator[Monitoring]:
    config, _ = load_broker_config(f"metricsPromExporterPort=0\n{text}")
    made = Monitoring(config, labels={"node_id": "a"}, scope="broker-meter", **options)
    async with StopSteps() as stack:
        made.start(stack)
        yield made


async def test_nothing_is_started_by_default() -> None:
    async with monitoring("") as off:
        assert (off.is_measuring, off.metrics_port, off.health_port) == (False, None, None)


async def test_prometheus_gets_all_families_with_the_labels_of_the_server() -> None:
    settings = "metricsExporterType=PROM\nmetricsLabel=zone:eu\nmetricsInDelta=true"
    async with monitoring(settings) as on:
        assert (await get(on.metrics_port, "/metrics")).status == 503
        on.collect = collect
        on.health.started()
        page = await get(on.metrics_port, "/metrics")
        packed = await get(on.metrics_port, "/metrics", **{"Accept-Encoding": "gzip"})
    assert page.status == 200
    assert page.content_type.startswith("text/plain; version=0.0.4")
    labels = {
        "node_id": "a", "zone": "eu", "aggregation": "delta", "otel_scope_name": "broker-meter",
    }  # fmt: skip
    series = Series(page.text)
    assert series.of("rocketmq_messages_in_total") == [({**labels, "topic": "T"}, 5)]
    assert series.of("rocketmq_consumer_lag_latency_milliseconds") == [(labels, 7)]
    assert packed.text == page.text


async def test_a_server_that_starts_is_alive_and_not_ready() -> None:
    async with monitoring("healthPort=0") as on:
        assert (await get(on.health_port, "/live")).status == 200
        starting = await get(on.health_port, "/ready")
        assert (starting.status, starting.text) == (503, "the server is starting\n")
        lacks = ""
        on.health.started(store=lambda: lacks, namesrv=lambda: "")
        assert (await get(on.health_port, "/ready")).text == "ok\n"
        lacks = "the disk is full"
        refusing = await get(on.health_port, "/ready")
        assert (refusing.status, refusing.text) == (503, "store: the disk is full\n")
        assert (await get(on.health_port, "/live")).status == 200
        on.health.stopping()
        assert (await get(on.health_port, "/ready")).text == "the server is stopping\n"
        assert (await get(on.health_port, "/live")).status == 200
        missing = await get(on.health_port, "/metrics")
        assert (missing.status, missing.text) == (404, "pages: /live /ready\n")


async def test_a_blocked_event_loop_is_not_alive() -> None:
    async with monitoring("healthPort=0", probe_seconds=0.05) as on:
        on.health.started()
        asked: list[Any] = []

        def ask() -> None:
            asked.append(asyncio.run(get(on.health_port, "/live")))

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()  # blocks this loop until the probe has its answer
    assert asked[0].status == 503
    assert "event loop did not answer" in asked[0].text


async def test_a_port_in_use_is_named_with_its_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=f":{port} \\(healthPort\\)"):
            async with monitoring(f"healthPort={port}"):
                pass


async def test_more_connections_than_allowed_are_closed() -> None:
    async with monitoring("healthPort=0") as on:
        assert on.health_port is not None
        address = ("127.0.0.1", on.health_port)
        idle = [socket.create_connection(address, timeout=5) for _ in range(16)]
        try:
            assert await asyncio.to_thread(idle[0].recv, 1) == b""
        finally:
            for each in idle:
                each.close()


async def test_a_failing_collection_is_an_answer_and_not_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail() -> list[Family]:
        raise RuntimeError("boom")

    async with monitoring("metricsExporterType=PROM") as on:
        on.collect = fail
        on.health.started()
        for _ in range(3):
            page = await get(on.metrics_port, "/metrics")
            assert (page.status, page.text) == (500, "RuntimeError\n")
        on.collect = collect
        assert (await get(on.metrics_port, "/metrics")).status == 200
    assert len([record for record in caplog.records if "boom" in record.message]) == 1


async def test_series_can_be_written_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pocketmq.metrics")
    settings = "metricsExporterType=LOG\nmetricLoggingExporterIntervalInMills=1"
    async with monitoring(settings) as on:
        on.collect = collect
        on.health.started()
        async with asyncio.timeout(60):
            while len(caplog.records) < 7:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    lines = [record.message for record in caplog.records]
    assert 'rocketmq_messages_in_total{node_id="a",topic="T"} 5.0' in lines


async def test_a_collector_gets_sums_gauges_and_histograms() -> None:
    pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.grpc", reason="pip install pocketmq[otlp]"
    )
    collector = Collector()
    settings = (
        f"metricsExporterType=OTLP_GRPC\nmetricsGrpcExporterTarget={collector.target}"
        "\nmetricsGrpcExporterHeader=tenant:shop\nmetricGrpcExporterIntervalInMills=1"
    )
    async with monitoring(settings) as on:
        on.collect = collect
        on.health.started()
        request, metadata = await asyncio.wrap_future(collector.first)
    await asyncio.to_thread(collector.stop)
    assert metadata["tenant"] == "shop"
    (resource,) = request.resource_metrics
    (scope,) = resource.scope_metrics
    assert scope.scope.name == "broker-meter"
    total, lag, sizes = scope.metrics
    (point,) = total.sum.data_points
    assert (total.name, point.as_int, total.sum.is_monotonic) == (
        "rocketmq_messages_in_total", 5, True,
    )  # fmt: skip
    assert total.sum.aggregation_temporality == 2  # cumulative
    assert attributes(point) == {"node_id": "a", "topic": "T"}
    assert (lag.name, lag.unit, lag.gauge.data_points[0].as_int) == (
        "rocketmq_consumer_lag_latency", "milliseconds", 7,
    )  # fmt: skip
    (size,) = sizes.histogram.data_points
    assert (list(size.bucket_counts), list(size.explicit_bounds), size.sum) == ([1, 2], [10], 9)


def test_differences_are_sent_where_they_are_wanted() -> None:
    pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.grpc", reason="pip install pocketmq[otlp]"
    )
    from pocketmq.monitoring.otlp import OtlpExporter

    exporter = OtlpExporter(
        "http://127.0.0.1:9", headers={}, timeout=1, common={}, scope="s", delta=True,
        began=time.time_ns(),
    )  # fmt: skip
    try:
        exporter.metrics_data(FAMILIES, 1)
        grown = [
            FAMILIES[0]._replace(points=[(("T",), 8)]),
            FAMILIES[1],
            FAMILIES[2]._replace(points=[((), Distribution((1, 4), 19))]),
        ]
        data = exporter.metrics_data(grown, 2)
    finally:
        exporter.close()
    total, lag, sizes = data.resource_metrics[0].scope_metrics[0].metrics
    points: list[Any] = [each.data.data_points[0] for each in (total, lag, sizes)]
    assert [points[0].value, points[1].value] == [3, 7]
    assert (points[2].bucket_counts, points[2].sum, points[2].count) == ((0, 2), 10, 2)
