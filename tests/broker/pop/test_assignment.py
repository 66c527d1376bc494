"""Sharing out queues: every queue is read, whatever the numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.pop.assignment import (
    ANY_QUEUE,
    STRATEGIES,
    assigned_for_pop,
    assigned_for_pull,
)
from pocketmq.client.consumer.rebalance.strategies import average, circle
from pocketmq.message.message import MessageQueue

strategies = st.sampled_from(sorted(STRATEGIES))
clients = st.lists(st.text("abc", min_size=1), min_size=1, max_size=7, unique=True).map(sorted)


def queues(count: int) -> list[MessageQueue]:
    return sorted(MessageQueue("T", f"b{n % 2}", n // 2) for n in range(count))


@given(strategies, st.integers(0, 12), clients)
def test_pulls_share_as_the_clients_themselves_would(name: str, count: int, ids: list[str]) -> None:
    theirs = {"AVG": average, "AVG_BY_CIRCLE": circle}[name]
    shares = [assigned_for_pull(STRATEGIES[name], queues(count), ids, own) for own in ids]
    assert shares == [theirs(queues(count), ids, own) for own in ids]
    assert assigned_for_pull(STRATEGIES[name], queues(count), ids, "z") == []


@given(strategies, st.integers(1, 12), clients, st.integers(-1, 7))
def test_every_queue_is_popped(name: str, count: int, ids: list[str], shared: int) -> None:
    all_queues = queues(count)
    read = set()
    for own in ids:
        share = assigned_for_pop(STRATEGIES[name], all_queues, ids, own, shared)
        assert len(share) == len(set(share))
        if shared <= 0 or shared >= len(ids) - 1:
            assert share == [
                MessageQueue("T", broker, ANY_QUEUE)
                for broker in sorted({queue.broker_name for queue in all_queues})
            ]
            return
        assert share
        read.update(share)
    assert read == set(all_queues)


@pytest.mark.parametrize("shared", [1, 2])
def test_a_stranger_gets_nothing_where_queues_are_shared_out(shared: int) -> None:
    ids = ["a", "b", "c", "d"]
    assert assigned_for_pop(STRATEGIES["AVG"], queues(8), ids, "z", shared) == []
