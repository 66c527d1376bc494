"""The comparison with other systems: what their programs print, and what the figures mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.systems import nats, redis
from bench.systems.comparison import rows, table
from bench.systems.loads import Load, Run, System
from tests.interop.harness.official import Unavailable

NATS_OF_TWO_CLIENTS = """
15:03:00 Starting JetStream asynchronous publisher benchmark [batch=64, clients=2, msgs=100,000]
  [1] 21,758 msgs/sec ~ 21 MiB/sec ~ min: 553.39us ~ avg: 2,931.39us ~ P50: 2,489.78us (50,000 msgs)
  [2] 21,735 msgs/sec ~ 21 MiB/sec ~ min: 444.44us ~ avg: 2,940.52us ~ P50: 2,501.59us (50,000 msgs)

 NATS JetStream asynchronous publisher aggregated stats: 84,874 msgs/sec ~ 83 MiB/sec
 message rates min 21,220 | avg 21,542 | max 21,758 | stddev 220 msgs
 latencies per operation min 444.44us | avg 2,963.77us | P50 2,507.12us | P90 5,249.88us

"""
NATS_OF_ONE_CLIENT = """
15:03:04 [1] Starting JetStream synchronous publisher, publishing 5,000 messages

NATS JetStream synchronous publisher stats: 8,195 msgs/sec ~ 8.0 MiB/sec ~ min: 36.56us ~ \
avg: 121.77us ~ max: 7,247.60us ~ P50: 103.71us ~ P90: 168.35us ~ P99: 309.05us

"""
REDIS = """\
"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms"
"XADD full * body ""x"",y","111111.12","0.928","0.144","0.367","2.775"
"""


@pytest.mark.parametrize(
    ("output", "run"),
    [(NATS_OF_TWO_CLIENTS, Run(84_874, 2507.12)), (NATS_OF_ONE_CLIENT, Run(8_195, 103.71))],
)
def test_the_figures_of_nats_are_those_of_all_clients(output: str, run: Run) -> None:
    assert nats.parse(output) == run


def test_the_figures_of_redis_are_in_microseconds() -> None:
    assert redis.parse(REDIS) == Run(111_111.12, 367.0)


@pytest.mark.parametrize("output", ["", "a,b\n", "nats: error: stream exists\n", REDIS * 2])
def test_output_without_figures_is_an_error(output: str) -> None:
    with pytest.raises(ValueError, match="nats bench printed no figures"):
        nats.parse(output)
    with pytest.raises(ValueError, match="redis-benchmark printed no figures"):
        redis.parse(output)


@pytest.mark.parametrize(("start", "tool"), [(nats.Nats, "go"), (redis.Redis, "redis-benchmark")])
def test_what_is_missing_is_named(
    start: Callable[[Path], System], tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("POCKETMQ_PEERS", str(tmp_path))
    with pytest.raises(Unavailable, match=f"{tool} is not installed"):
        start(tmp_path)


RUNS = {
    "ours": {
        Load.SINGLE: [Run(90, 5), Run(110, 7), Run(100, 6)],
        Load.BATCH: [Run(300, 5)],
        Load.ONE: [Run(10, 70), Run(9, 90)],
    },
    "nats": {
        Load.SINGLE: [Run(100, 5)],
        Load.BATCH: [Run(160, 5)],
        Load.ONE: [Run(50, 100)],
    },
    "redis": {Load.SINGLE: [Run(200, 5)]},
}


def test_ratios_are_of_the_medians_and_judged_by_the_aims() -> None:
    found = {(row.load, row.system): row for row in rows(RUNS, "ours", "nats")}
    assert len(found) == 7  # Redis has one load
    judged = {load: found[load, "nats"] for load in Load}
    assert [row.ratio for row in judged.values()] == [1.0, 1.875, 0.8]
    assert [row.reached for row in judged.values()] == [True, False, True]
    ours, other = found[Load.SINGLE, "ours"], found[Load.SINGLE, "redis"]
    assert (ours.per_second, ours.least_per_second, ours.p50, ours.least_p50) == (100, 90, 6, 5)
    assert (ours.ratio, ours.reached) == (None, None)
    assert (other.ratio, other.reached) == (0.5, None)


def test_systems_that_are_not_installed_are_left_out() -> None:
    alone = rows({"ours": RUNS["ours"]}, "ours", "nats")
    assert {row.system for row in alone} == {"ours"}
    others = rows({"nats": RUNS["nats"]}, "ours", "nats")
    assert {(row.ratio, row.reached) for row in others} == {(None, None)}


def test_the_table_says_what_is_reached() -> None:
    lines = table(rows(RUNS, "ours", "nats")).splitlines()
    assert "| single messages in flight | nats | 100 | 100 | 5 | 5 | 1.00 | ≥ 1 | yes |" in lines
    assert "| batches | nats | 160 | 160 | 5 | 5 | 1.88 | ≥ 2 | no |" in lines
    assert len({line.count("|") for line in lines}) == 1
