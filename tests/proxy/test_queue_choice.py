"""The queue of a message group is the one that the official proxy chooses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.producer.queue_choice import java_hash
from pocketmq.proxy.port.queue_choice import consistent_hash, queue_of_group

BUCKETS = (1, 2, 3, 4, 8, 16, 100)


# What Guava's Hashing.consistentHash(group.hashCode(), n) gives.
@pytest.mark.parametrize(
    ("group", "chosen"),
    [
        ("g0", (0, 0, 0, 0, 0, 0, 0)),
        ("g1", (0, 0, 0, 0, 6, 9, 41)),
        ("group0", (0, 1, 1, 1, 7, 7, 7)),
        ("group1", (0, 1, 1, 3, 3, 3, 70)),
        ("order-42", (0, 0, 2, 3, 3, 10, 25)),
        ("ü", (0, 0, 0, 0, 0, 12, 16)),
        ("", (0, 0, 0, 0, 0, 0, 0)),
        ("-5", (0, 1, 2, 2, 6, 11, 85)),
        ("a long group name", (0, 1, 1, 1, 5, 5, 89)),
    ],
)
def test_as_guava(group: str, chosen: tuple[int, ...]) -> None:
    assert tuple(consistent_hash(java_hash(group), n) for n in BUCKETS) == chosen


@given(st.text(), st.integers(1, 50))
def test_a_new_queue_takes_its_share_and_moves_nothing_else(group: str, count: int) -> None:
    before = queue_of_group(range(count), group)
    assert queue_of_group(range(count + 1), group) in (before, count)
