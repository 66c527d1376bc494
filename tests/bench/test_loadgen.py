"""The load generator against our broker: every mode sees what it is to count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bench import contenders
from bench.contenders import Contender
from bench.generator import LoadGenerator


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contender]:
    contender = contenders.start_ours(
        tmp_path_factory.mktemp("broker"), {"mappedFileSizeCommitLog": 16 << 20}
    )
    yield contender
    contender.stop()


MODES = {
    "send": ("send", "-n", "400"),
    "send to many topics": ("send", "-n", "400", "-topics", "3", "-queues", "2"),
    "send batches": ("send", "-n", "512", "-batch", "32", "-conns", "2"),
    "offer": ("offer", "-conns", "20", "-rate", "2000", "-n", "401"),
    "nest": ("nest", "-n", "400", "-inflight", "2", "-children", "10"),
    "fanout": ("fanout", "-rate", "1000", "-groups", "3", "-n", "100"),
    "due, a level": ("due", "-kind", "level", "-after", "1", "-rate", "500", "-n", "100"),
    "due, timers": ("due", "-kind", "timer", "-after", "1", "-rate", "0", "-n", "100"),
    "refused, unknown": ("refused", "-kind", "unknown", "-n", "100"),
    "refused, queue": ("refused", "-kind", "queue", "-n", "100"),
    "refused, topic": ("refused", "-kind", "topic", "-n", "100"),
    "refused, frame": ("refused", "-kind", "frame", "-n", "20"),
    "refused, connect": ("refused", "-kind", "connect", "-n", "20"),
}
#: What fanout delivers: each message to each group.
COUNTS = {"fanout": 300}


@pytest.mark.parametrize("name", MODES)
def test_all_messages_are_counted(generator: LoadGenerator, broker: Contender, name: str) -> None:
    arguments = MODES[name]
    topic = name.replace(" ", "_").replace(",", "")
    line = generator.run(broker.broker.address, topic, *arguments)
    wanted = COUNTS.get(name, int(arguments[arguments.index("-n") + 1]))
    assert (line["messages"], line["failed"]) == (wanted, 0)
    assert line["per_second"] > 0
    assert line["p50_us"] <= line["p99_us"] <= line["p999_us"] <= line["max_us"]


def test_transactions_count_when_they_are_committed(
    generator: LoadGenerator, broker: Contender
) -> None:
    line = generator.run(
        broker.broker.address, "transact", "transact", "-n", "400", "-inflight", "8"
    )
    # The last ones in each window may have no commit.
    assert 400 - 4 * 8 <= line["messages"] <= 400
    assert line["failed"] == 0
    found = generator.run(broker.broker.address, "transact", "pull")["delivered"]
    assert found == line["messages"] + 1  # that creates the topic


def test_a_pull_counts_what_it_passes_and_what_matches(
    generator: LoadGenerator, broker: Contender
) -> None:
    generator.run(broker.broker.address, "rare", "send", "-n", "400", "-rare", "100", "-conns", "1")
    line = generator.run(broker.broker.address, "rare", "pull", "-sql", "rare = 'yes'")
    assert (line["messages"], line["delivered"]) == (401, 4)
    popped = generator.run(
        broker.broker.address, "rare", "pop", "-broker", broker.broker.broker_name
    )
    assert popped["messages"] == 401


def test_a_reader_stays_behind(generator: LoadGenerator, broker: Contender) -> None:
    arguments = ("offer", "-rate", "2000", "-n", "1000", "-behind", "500")
    line = generator.run(broker.broker.address, "behind", *arguments)
    assert line["delivered"] <= 500


@pytest.mark.parametrize("mode", ["routes", "register"])
def test_a_name_server(generator: LoadGenerator, broker: Contender, mode: str) -> None:
    counts = ("-brokers", "10", "-topics", "30", "-spread", "2", "-n", "200")
    line = generator.run(broker.namesrv.address, "routes", mode, *counts)
    assert line["messages"] == 200


@pytest.mark.parametrize(
    "arguments", [("none",), ("due", "-kind", "level", "-after", "3"), ("refused", "-kind", "good")]
)
def test_what_it_does_not_know_is_refused(
    generator: LoadGenerator, broker: Contender, arguments: tuple[str, ...]
) -> None:
    with pytest.raises(RuntimeError, match=r"usage|expected"):
        generator.run(broker.broker.address, "none", *arguments)


def test_a_stall_is_told(generator: LoadGenerator, broker: Contender) -> None:
    """An unreachable rate makes messages late from when they were due."""
    line: dict[str, Any] = generator.run(
        broker.broker.address, "late", "offer", "-rate", "1000000", "-n", "100000", "-conns", "2"
    )
    begin, end = line["stalls_us"][-1]
    assert end - begin >= 10_000
    assert line["max_us"] >= 10_000
