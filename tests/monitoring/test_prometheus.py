"""A Prometheus server scrapes a loaded pair of brokers: every series is there, and adds up."""

from __future__ import annotations

import asyncio
import json
import urllib.parse
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.interop.harness.ports import free_port
from tests.interop.harness.process import Process
from tests.monitoring.cluster import (
    GROUP,
    POP_GROUP,
    SENT,
    TOPIC,
    TRANSACTIONS,
    MeasuredCluster,
    loaded,
    measured_cluster,
)
from tests.monitoring.pages import get, scrape
from tests.monitoring.prometheus import program
from tests.monitoring.test_dashboards import ALERTS, panels, rules

#: Metrics that a load as ours leaves without a series.
WITHOUT_SERIES = {
    "rocketmq_consumer_group_create_execution_time_milliseconds",
    "rocketmq_timer_dequeue_total",
    # Of slaves.
    "pocketmq_replication_master_connected",
    "pocketmq_replication_unchecked_bytes",
    "pocketmq_replication_behind_bytes",
    # With TLS, and above the limit of series.
    "pocketmq_certificate_expiry_seconds",
    "pocketmq_metrics_dropped_series",
}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[MeasuredCluster]:
    pytest.importorskip("prometheus_client", reason="pip install 'pocketmq[metrics]'")
    async with measured_cluster(tmp_path) as made, loaded(made):
        yield made


async def test_every_metric_has_series_after_some_load(cluster: MeasuredCluster) -> None:
    empty: set[str] | None = None
    total = 0.0
    for port in cluster.ports[1:]:
        series = await scrape(port)
        total += series.sum("rocketmq_messages_in_total", topic=TOPIC)
        bare = {
            name + ("_total" if family.type == "counter" else "")
            for name, family in series.families.items()
            if not family.samples
        }
        empty = bare if empty is None else empty & bare
    assert empty == WITHOUT_SERIES
    assert total == SENT + TRANSACTIONS


class Prometheus:
    """A server that scrapes every second."""

    def __init__(self, directory: Path, ports: list[int]) -> None:
        self.port = free_port()
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [
                {
                    "job_name": "pocketmq",
                    "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}],
                }
            ],
        }
        path = directory / "prometheus.yml"
        path.write_text(yaml.safe_dump(config))
        self.process = Process(
            "prometheus",
            [
                program("prometheus"),
                f"--config.file={path}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            log=directory / "prometheus.log",
        )

    async def api(self, path: str, **query: str) -> Any:
        page = await get(self.port, f"/api/v1/{path}?{urllib.parse.urlencode(query)}")
        answer = json.loads(page.text)
        assert answer["status"] == "success", f"{query}: {answer}"
        return answer["data"]

    async def value(self, expression: str) -> float | None:
        """The value of a query with one result."""
        result = (await self.api("query", query=expression))["result"]
        return float(result[0]["value"][1]) if result else None


@pytest.fixture
async def prometheus(cluster: MeasuredCluster, tmp_path: Path) -> AsyncIterator[Prometheus]:
    server = Prometheus(tmp_path, cluster.ports)
    try:
        await asyncio.to_thread(server.process.wait_for, "Server is ready", 60)
        async with asyncio.timeout(60):
            # Three times, so that there are rates.
            scrapes = "sum(count_over_time(up[1m]) >= bool 3)"
            while await server.value(scrapes) != len(cluster.ports):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        yield server
    finally:
        await asyncio.to_thread(server.process.kill)


async def test_what_prometheus_has_adds_up(prometheus: Prometheus) -> None:
    await sums_are_what_was_sent(prometheus)
    await types_are_known(prometheus)
    await every_panel_and_rule_can_be_evaluated(prometheus)


async def sums_are_what_was_sent(prometheus: Prometheus) -> None:
    stored = await prometheus.value(f'sum(rocketmq_messages_in_total{{topic="{TOPIC}"}})')
    assert stored == SENT + TRANSACTIONS
    of_group = f'topic="{TOPIC}",consumer_group="{GROUP}"'
    assert await prometheus.value(f"sum(rocketmq_messages_out_total{{{of_group}}})") == stored
    assert await prometheus.value(f"sum(rocketmq_consumer_lag_messages{{{of_group}}})") == 0
    assert await prometheus.value(f"sum(rocketmq_send_to_dlq_messages_total{{{of_group}}})") == 1
    assert await prometheus.value("sum(rocketmq_commit_messages_total)") == TRANSACTIONS
    assert await prometheus.value("sum(rocketmq_timing_messages)") == 1
    assert await prometheus.value("sum(pocketmq_namesrv_brokers)") == 2
    # One message is popped, and not acknowledged.
    popped = f'topic="{TOPIC}",consumer_group="{POP_GROUP}"'
    for metric in ("revive_in_message", "revive_out_message", "revive_retry_messages"):
        series = f"rocketmq_pop_{metric}_total{{{popped}}}"
        assert await prometheus.value(f"sum({series})") == 1, metric
    assert await prometheus.value("sum(rocketmq_pop_revive_lag_milliseconds)") == 0
    assert await prometheus.value("sum(pocketmq_replication_slaves)") == 0
    # Also by way of another metric: the timed message, the halves and the dead letter, which its
    # consumer sends, were sends as well.
    sends = 'sum(rocketmq_rpc_latency_milliseconds_count{request_code=~"send_.*",response_code%s})'
    assert await prometheus.value(sends % '="success"') == SENT + 1 + TRANSACTIONS + 2
    assert await prometheus.value(sends % '!="success"') == 1
    bytes_in = await prometheus.value(f'sum(rocketmq_throughput_in_total{{topic="{TOPIC}"}})')
    sizes = await prometheus.value(f'sum(rocketmq_message_size_sum{{topic="{TOPIC}"}})')
    assert bytes_in == sizes


async def types_are_known(prometheus: Prometheus) -> None:
    metadata = await prometheus.api("metadata")
    assert metadata["rocketmq_consumer_lag_latency_milliseconds"][0]["type"] == "gauge"
    assert metadata["rocketmq_messages_in_total"][0]["type"] == "counter"
    assert metadata["rocketmq_rpc_latency_milliseconds"][0]["type"] == "histogram"


async def every_panel_and_rule_can_be_evaluated(prometheus: Prometheus) -> None:
    values = []
    for title, expression in panels():
        for variable in ("cluster", "node", "topic", "group"):
            expression = expression.replace(f"${variable}", ".*")
        values.append((title, await prometheus.value(expression)))
    assert [title for title, value in values if value is None] == []
    # Also the first of a group, with which its series begins.
    assert dict(values)["Dead letters"] == 1
    (group,) = (await prometheus.api("rules"))["groups"]
    assert [rule["name"] for rule in group["rules"]] == [rule["alert"] for rule in rules()]
    assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}
