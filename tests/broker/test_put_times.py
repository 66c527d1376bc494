"""The distribution of put times: what is noted where puts wait, and what brokerStatus shows."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.broker.acknowledge.group_commit import GroupCommit
from pocketmq.broker.acknowledge.put_safety import SafetyListener
from pocketmq.broker.acknowledge.put_times import MINUTE_MS, PutTimes
from pocketmq.broker.config import BrokerConfig
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.monotonic import MonotonicMs
from pocketmq.store.config import FlushDiskType, StoreConfig
from pocketmq.store.results import StoreCounters
from tests.broker.conftest import Client, Connect, StartBroker
from tests.broker.test_admin import runtime_info


class Puts:
    """Puts as store and sends tell of them, and a clock."""

    def __init__(self, flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH) -> None:
        self.counters = StoreCounters()
        self.waits: list[tuple[int, int]] = []
        long_waits = SimpleNamespace(take=self._take)
        self.unflushed = SimpleNamespace(answered=0, long_waits=long_waits)
        self.now = 0
        store: Any = SimpleNamespace(
            config=StoreConfig(flush_disk_type=flush),
            counters=self.counters,
            commit_log=SimpleNamespace(long_waits=long_waits),
        )
        unflushed: Any = self.unflushed
        self.times = PutTimes(store, unflushed, lambda: MonotonicMs(self.now))

    def _take(self) -> list[tuple[int, int]]:
        waits, self.waits = self.waits, []
        return waits

    def put(self, messages: int, size: int = 100) -> None:
        self.counters.messages_put += messages
        self.counters.bytes_put += messages * size

    def shown(self) -> dict[str, str]:
        """The figures once this minute is over."""
        self.times.tick()
        self.now += MINUTE_MS
        self.times.tick()
        return {name: str(value) for name, value in self.times.figures().items()}


def distribution(figures: dict[str, str]) -> list[int]:
    return [int(count) for count in re.findall(r"\]:(\d+)", figures["putMessageDistributeTime"])]


def test_what_is_not_noted_was_quick() -> None:
    puts = Puts()
    puts.put(1000)

    figures = puts.shown()

    assert figures["putMessageDistributeTime"] == (
        "[<=0ms]:1000 [0~10ms]:0 [10~50ms]:0 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 "
        "[500ms~1s]:0 [1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:0"
    )
    assert figures["putMessageEntireTimeMax"] == "0"
    # As the reference interpolates within its first step, from 0 to 1 ms.
    assert (figures["putLatency99"], figures["putLatency999"]) == ("0.99", "1.00")


@pytest.mark.parametrize(
    ("milliseconds", "place"),
    [(1, 1), (9, 1), (10, 2), (49, 2), (50, 3), (100, 4), (200, 5), (500, 6), (999, 6), (1000, 7),
     (2999, 8), (3000, 9), (4999, 10), (5000, 11), (9999, 11), (10_000, 12), (10**7, 12)],
)  # fmt: skip
def test_borders(milliseconds: int, place: int) -> None:
    puts = Puts()
    puts.put(1)
    puts.waits.append((milliseconds, 100))

    figures = puts.shown()

    assert [at for at, count in enumerate(distribution(figures)) if count] == [place]
    assert figures["putMessageEntireTimeMax"] == str(milliseconds)


def test_all_messages_of_a_long_write_took_as_long() -> None:
    puts = Puts()
    puts.put(100, size=50)
    puts.waits += [(30, 1000), (70, 0), (3, 10**9)]

    # 20 of 50 bytes, at least one, and never more than there were.
    assert distribution(puts.shown())[:5] == [0, 79, 20, 1, 0]


def test_percentiles() -> None:
    puts = Puts()
    puts.put(1000)
    puts.waits += [(15, 2000)]

    figures = puts.shown()

    assert float(figures["putLatency99"]) == pytest.approx(14.5)
    assert float(figures["putLatency999"]) == pytest.approx(14.95)


def test_beyond_the_last_step_and_without_puts() -> None:
    puts = Puts()
    assert puts.shown()["putLatency99"] == "0.00"
    puts.put(1)
    puts.waits.append((60_000, 100))
    puts.put(199)
    puts.waits.append((60_000, 199 * 100))
    assert puts.shown()["putLatency999"] == "10000.00"


def test_the_last_full_minute_is_shown_and_the_longest_for_ever() -> None:
    puts = Puts()
    puts.put(5)
    puts.waits.append((20, 100))
    puts.times.tick()
    assert distribution({k: str(v) for k, v in puts.times.figures().items()}) == [0] * 13
    assert distribution(puts.shown())[:3] == [4, 0, 1]

    figures = puts.shown()

    assert distribution(figures) == [0] * 13
    assert figures["putMessageEntireTimeMax"] == "20"


def test_with_sync_flush_it_is_the_wait_for_the_disk() -> None:
    puts = Puts(FlushDiskType.SYNC_FLUSH)
    puts.put(50)
    puts.unflushed.answered += 40
    puts.waits += [(3, 30)]

    assert distribution(puts.shown())[:3] == [10, 30, 0]


def test_waits_for_the_disk_are_noted() -> None:
    listeners: list[SafetyListener] = []
    safety: Any = SimpleNamespace(when_safe=lambda end, listener: listeners.append(listener))
    now = 0
    unflushed = GroupCommit(BrokerConfig(), safety, clock=lambda: now)
    waiting: Any = SimpleNamespace(reply=lambda response: None), None
    unflushed.answer_when_safe([waiting], 100, 100)
    now = 7_000_000
    listeners.pop()(0, None)

    assert unflushed.long_waits.take() == [(7, 1)]
    assert unflushed.long_waits.take() == []


# --- a running broker -------------------------------------------------------------------------


async def test_sends_that_wait_for_the_disk_are_counted(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    broker = await start_broker(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    client = await connect(broker)

    for _ in range(2):
        await client.send(topic)

    assert broker.components.sends.unflushed.answered == 2
    broker.components.put_times.tick()
    assert broker.components.sends.unflushed.long_waits.take() == []


async def test_figures_of_a_running_broker(client: Client, topic: str) -> None:
    before = await runtime_info(client)
    await client.send(topic, b"x" * 300)
    await client.pulled(topic)
    refused = await client.request(
        RequestCode.SEND_MESSAGE_V2,
        ext_fields={"a": "PG", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0",
                    "h": "0", "i": f"K\x01{'v' * 40_000}\x02"},
        body=b"x",
    )  # fmt: skip
    assert refused.code != 0
    async with asyncio.timeout(60):
        while (after := await runtime_info(client))["dispatchBehindBytes"] != "0":
            pass

    assert before["putMessageFailedTimes"] == "0"
    assert after["putMessageFailedTimes"] == "1"
    assert int(after["getMessageEntireTimeMax"]) >= 0
    assert len(distribution(after)) == 13
    for name in ("timerEnqueueTps", "timerDequeueTps", "putLatency99", "putLatency999"):
        assert float(after[name]) == 0
