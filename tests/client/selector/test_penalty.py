from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from pocketmq.client.producer.producer import Producer
from pocketmq.client.selector.latency import LatencyFaultTolerance
from pocketmq.client.selector.penalty import CLEARLY, Selection, better
from pocketmq.client.selector.pipeline import LAG, PublishQueues, QueueSelector, Tries
from pocketmq.client.selector.switches import Switches
from pocketmq.message.message import Message, MessageQueue
from pocketmq.remoting.codes import RequestCode
from tests.client.fake_cluster import FakeCluster
from tests.client.simulation import Clock, World, queues_of
from tests.client.waiting import until

INTERVAL = 2.0


class Setting:
    """A selector over brokers that were all heard of just now, with equal latencies."""

    def __init__(
        self, brokers: str = "abc", draws: Iterator[float] | None = None, **switches: bool
    ) -> None:
        self.clock = Clock()
        self.selector = QueueSelector(
            self.clock,
            switches=Switches(**switches),
            draw=(draws or itertools.cycle([0.0, 0.5])).__next__,
        )
        self.queues = PublishQueues(queues_of(brokers, 2), start=0)
        self.tolerance = self.selector.tolerance
        for name in brokers:
            self.selector.answered(name, 0.001)

    def chosen(self, count: int) -> Counter[str]:
        picks = [self.selector.select(self.queues) for _ in range(count)]
        return Counter(queue.broker_name for queue in picks if queue is not None)


def test_while_brokers_are_alike_every_queue_has_its_turn() -> None:
    at = Setting()
    picks = [at.selector.select(at.queues) for _ in range(12)]
    assert picks == [*at.queues.queues, *at.queues.queues]


def test_a_slow_broker_loses_its_turns() -> None:
    at = Setting()
    at.selector.answered("a", 0.2)
    assert at.chosen(60)["a"] == 0


def test_what_is_in_flight_counts_before_there_is_an_answer() -> None:
    at = Setting()
    for _ in range(3):
        at.selector.tolerance.began("a", at.clock())
    assert at.chosen(60)["a"] == 0


def test_the_turn_is_lost_only_to_one_that_is_clearly_better() -> None:
    clock = Clock()
    tolerance = LatencyFaultTolerance(clock)
    tolerance.record("a", 0.030 * CLEARLY * 0.99)
    tolerance.record("b", 0.030)
    a, b = tolerance.item("a"), tolerance.item("b")
    assert not better(b, a, clock(), INTERVAL)
    tolerance.record("a", 0.030 * CLEARLY * 1.01)
    assert better(b, a, clock(), INTERVAL)
    assert not better(a, b, clock(), INTERVAL)


def test_all_queues_of_the_better_broker_are_used() -> None:
    at = Setting("ab")
    at.selector.answered("a", 0.2)
    picks = {at.selector.select(at.queues) for _ in range(8)}
    assert picks == set(queues_of("b", 2))


def test_who_was_not_heard_of_for_an_interval_gets_one_send() -> None:
    at = Setting("ab")
    at.selector.answered("a", 0.3)
    at.clock.advance(1.9)
    at.selector.answered("b", 0.001)
    assert at.chosen(20)["a"] == 0
    at.clock.advance(0.1)
    queue = at.selector.select(at.queues)
    assert queue is not None
    assert queue.broker_name == "a"
    trial = at.selector.tolerance.began("a", at.clock())
    assert at.chosen(20)["a"] == 0
    trial.in_flight -= 1
    at.selector.answered("a", 0.001)
    at.chosen(2 * LAG)  # what it lags
    assert at.chosen(20) == {"a": 10, "b": 10}


def test_a_broker_on_trial_gets_one_send_first() -> None:
    at = Setting("ab")
    at.selector.silent("a", 0.1)
    assert at.chosen(20)["a"] == 0
    at.tolerance.mark_reachable("a")
    queue = at.selector.select(at.queues)
    assert queue is not None
    assert queue.broker_name == "a"
    trial = at.selector.tolerance.began("a", at.clock())
    assert at.chosen(20)["a"] == 0
    trial.in_flight -= 1
    at.selector.silent("a", 0.1)
    assert at.chosen(20)["a"] == 0


def test_among_isolated_brokers_the_better_one_is_taken() -> None:
    at = Setting()
    at.selector.answered("a", 5.0)
    at.selector.answered("b", 0.6)
    at.selector.refused("c", 0.001)
    for name in "abc":
        at.selector.tolerance.began(name, at.clock())
    assert at.chosen(60)["b"] >= 40
    assert at.chosen(60)["c"] == 0


def test_users_filters_hold_for_the_better_broker_too() -> None:
    at = Setting("ab")
    at.selector.answered("a", 0.2)
    at.selector.filters.append(lambda queue: queue != MessageQueue("T", "b", 0))
    assert {at.selector.select(at.queues) for _ in range(8)} == {MessageQueue("T", "b", 1)}
    at.selector.filters.append(lambda queue: queue.broker_name == "a")
    assert at.chosen(8) == {"a": 8}


def test_a_retry_never_goes_to_a_better_broker_that_failed() -> None:
    at = Setting()
    at.selector.answered("c", 0.3)
    tries = Tries()
    tries.failed(MessageQueue("T", "a", 0))
    tries.failed(MessageQueue("T", "b", 0))
    picks = {at.selector.select(at.queues, tries) for _ in range(6)}
    assert picks == set(queues_of("c", 2))


@pytest.mark.parametrize("how", ["selection", "switch"])
def test_round_robin_looks_at_no_latency(how: str) -> None:
    at = Setting(send_latency_enable=how == "selection")
    at.selector.selection = Selection.ROUND_ROBIN if how == "selection" else Selection.PENALISED
    at.selector.answered("a", 0.2)
    at.selector.tolerance.began("b", at.clock())
    assert at.chosen(60) == {"a": 20, "b": 20, "c": 20}


async def test_a_send_on_its_way_keeps_others_from_a_broker_that_hangs() -> None:
    world = World(brokers=("a", "b"))
    for name in "ab":
        world.selector.answered(name, 0.001)
    world.selector.tolerance.began("a", world.clock())
    world.selector.tolerance.began("a", world.clock())
    for _ in range(10):
        assert (await world.send()).broker_name == "b"


@pytest.mark.parametrize("selection", [None, *Selection, *(each.value for each in Selection)])
async def test_a_producer_selects_as_it_is_told(
    cluster: FakeCluster, selection: Selection | str | None
) -> None:
    """One of two brokers keeps attempts waiting: is it given more of them, again and again?"""
    options: dict[str, Any] = {} if selection is None else {"selection": selection}
    broker = cluster["a"]
    tasks: list[asyncio.Task[Any]] = []

    async def chosen() -> str:
        arrived = broker.seen[RequestCode.SEND_MESSAGE_V2]
        tasks.append(asyncio.create_task(p.send(Message("T", b"x"))))
        await until(lambda: tasks[-1].done() or broker.seen[RequestCode.SEND_MESSAGE_V2] > arrived)
        return "b" if tasks[-1].done() else "a"

    async with Producer("g", namesrv=cluster.namesrv, accumulate=False, timeout=60, **options) as p:
        for _ in range(4):
            await p.send(Message("T", b"x"))
        broker.mode = "hang"
        # A busy machine may make the other broker's first answers slow. Then a few attempts more
        # wait, until they outweigh that.
        names = set([await chosen() for _ in range(44)][-4:])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    round_robin = selection in (Selection.ROUND_ROBIN, Selection.ROUND_ROBIN.value)
    assert names == ({"a", "b"} if round_robin else {"b"})


def test_an_unknown_way_to_select() -> None:
    with pytest.raises(ValueError, match="'best'"):
        Producer("g", namesrv="127.0.0.1:9876", selection="best")
