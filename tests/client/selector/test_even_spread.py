"""Queues of healthy brokers receive the same number of messages, whatever their requests carry."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.selector.latency import IDLE_LATENCY, FaultItem
from pocketmq.client.selector.pipeline import LAG, PublishQueues, QueueSelector
from pocketmq.client.selector.switches import Switches
from pocketmq.message.message import MessageQueue
from tests.client.simulation import Clock, queues_of

requests = st.lists(st.integers(1, 1000) | st.just(1), min_size=1, max_size=200)
topics = st.builds(queues_of, st.sampled_from(["a", "ab", "abc"]), st.integers(1, 8))


def differ(received: Counter[MessageQueue], queues: list[MessageQueue]) -> int:
    counts = [received[queue] for queue in queues]
    return max(counts) - min(counts)


@given(topics, requests, st.booleans())
def test_queues_never_differ_by_more_than_one_request(
    all_queues: list[MessageQueue], sizes: list[int], learning: bool
) -> None:
    selector = QueueSelector(Clock(), switches=Switches(send_latency_enable=learning))
    queues = PublishQueues(all_queues)
    received: Counter[MessageQueue] = Counter()
    largest = 0
    for size in sizes:
        queue = selector.select(queues, None, size)
        assert queue is not None
        received[queue] += size
        largest = max(largest, size)
        assert differ(received, all_queues) <= largest


@given(topics, requests, st.data())
def test_queues_in_turn_differ_by_one_request_with_filters(
    all_queues: list[MessageQueue], sizes: list[int], data: st.DataObject
) -> None:
    """A filter of the user leaves some queues; the others share evenly."""
    allowed = data.draw(st.sets(st.sampled_from(all_queues), min_size=1))
    selector = QueueSelector(Clock(), filters=[lambda queue: queue in allowed])
    queues = PublishQueues(all_queues)
    received: Counter[MessageQueue] = Counter()
    for size in sizes:
        queue = selector.select(queues, None, size)
        assert queue in allowed
        received[queue] += size
        assert differ(received, sorted(allowed)) <= max(sizes)


@given(requests, st.integers(1, 1000))
def test_a_broker_that_was_away_does_not_catch_up(sizes: list[int], largest: int) -> None:
    clock = Clock()
    selector = QueueSelector(clock)
    all_queues = queues_of("ab", 2)
    queues = PublishQueues(all_queues)
    selector.answered("a", 0.6)  # isolated for a while
    for size in sizes:
        queue = selector.select(queues, None, min(size, largest))
        assert queue is not None
        assert queue.broker_name == "b"
    clock.advance(2.0)
    received: Counter[MessageQueue] = Counter()
    for _ in range(8 * largest):
        queue = selector.select(queues)
        assert queue is not None
        received[queue] += 1
    assert differ(received, all_queues) <= max(2 * largest, LAG)


@given(
    st.sampled_from(["ab", "abc"]),
    st.lists(st.lists(st.sampled_from([1, 1, 1, 30, 200]), min_size=1, max_size=6), min_size=20),
    st.randoms(),
)
def test_brokers_in_the_same_health_share_bursts(
    brokers: str, bursts: list[list[int]], rng: Random
) -> None:
    """The requests of a burst are in flight together, and answers take up to IDLE_LATENCY."""
    clock = Clock()
    selector = QueueSelector(clock, draw=rng.random)
    all_queues = queues_of(brokers, 4)
    queues = PublishQueues(all_queues)
    received: Counter[MessageQueue] = Counter()
    for burst in bursts:
        in_flight: list[tuple[FaultItem, int]] = []
        for size in burst:
            queue = selector.select(queues, None, size)
            assert queue is not None
            received[queue] += size
            in_flight.append((selector.tolerance.began(queue.broker_name, clock(), size), size))
        took = rng.uniform(0.001, IDLE_LATENCY)
        clock.advance(took)
        for item, size in in_flight:
            selector.answered(item.broker_name, took)
            item.in_flight -= size
    # A queue may lose its turn twice before the lag counts.
    assert differ(received, all_queues) <= 3 * max(map(max, bursts)) + LAG
