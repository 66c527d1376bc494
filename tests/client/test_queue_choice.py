from __future__ import annotations

import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.errors import InvalidMessage, SendError
from pocketmq.client.producer.producer import Producer
from pocketmq.client.producer.queue_choice import (
    by_consistent_hash,
    by_hash,
    java_hash,
    selector_named,
)
from pocketmq.message.message import Message, MessageQueue
from tests.client.fake_cluster import FakeCluster

MESSAGE = Message("T", b"x")


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("T", broker, i) for broker in "ab" for i in range(count // 2)]


# By jshell: "…".hashCode(), Integer.hashCode(…), Long.hashCode(…).
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("order-4711", 708276994),
        ("polygenelubricants", -(2**31)),
        ("消息", 893927),
        ("𝄞", 1772394),
        (0, 0),
        (-7, -7),
        (2**31 - 1, 2**31 - 1),
        (2**31, -(2**31)),
        (2**40 + 5, 261),
        (-(2**40), -256),
    ],
)
def test_java_hash(key: str | int, expected: int) -> None:
    assert java_hash(key) == expected


def test_long_keys_are_not_remembered() -> None:
    tracemalloc.start()
    try:
        for number in range(200):  # 0.6 MB of each kind
            java_hash(f"{number:3000}")
            java_hash(number << 30_000)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 500_000


def test_the_absolute_value_is_taken_after_the_remainder() -> None:
    four = queues(4)
    assert by_hash(four, MESSAGE, -7) == four[3]
    assert by_hash(queues(6), MESSAGE, "polygenelubricants") == queues(6)[2]


@given(st.text() | st.integers(-(2**63), 2**63 - 1), st.integers(1, 20))
def test_selectors_are_functions_of_key_and_queues(key: str | int, count: int) -> None:
    some = queues(2 * count)
    for selector in (by_hash, by_consistent_hash):
        chosen = selector(some, MESSAGE, key)
        assert chosen in some
        assert chosen == selector(tuple(some), MESSAGE, key)


def test_few_keys_move_with_the_consistent_hash() -> None:
    before = {key: by_consistent_hash(queues(16), MESSAGE, key) for key in range(2000)}
    after = {key: by_consistent_hash(queues(18), MESSAGE, key) for key in range(2000)}
    moved = [key for key in before if before[key] != after[key]]
    assert 0 < len(moved) < 2000 / 4
    assert {after[key] for key in moved} == set(queues(18)) - set(queues(16))
    share = Counter(before.values())
    assert min(share.values()) > 2000 / 16 / 3
    assert max(share.values()) < 2000 / 16 * 3


def test_what_is_no_key_or_selector() -> None:
    with pytest.raises(InvalidMessage, match="bytes"):
        by_hash(queues(2), MESSAGE, b"x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'random' is none of 'hash', 'consistent'"):
        selector_named("random")
    stranger = MessageQueue("T", "c", 0)
    with pytest.raises(InvalidMessage, match="'k'"):
        selector_named(lambda queues, message, key: stranger)(queues(2), MESSAGE, "k")


async def test_messages_of_a_key_go_to_one_queue_in_order(cluster: FakeCluster) -> None:
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        used = {}
        for key in ("k1", "k2", 3):
            results = [await p.send(Message("T", b"%d" % i), key=key) for i in range(5)]
            results += await p.send_batch([Message("T", b"b")] * 3, key=key)
            await p.send_oneway(Message("T", b"o"), key=key)
            (used[key],) = {result.queue for result in results}
            offsets = [result.queue_offset for result in results]
            assert offsets == sorted(offsets)
        assert used["k1"] == by_hash(await p.queues("T"), MESSAGE, "k1")


async def test_a_key_never_changes_its_queue_because_of_a_broker(cluster: FakeCluster) -> None:
    async with Producer("PG", namesrv=cluster.namesrv, timeout=0.5) as p:
        queue = (await p.send(MESSAGE, key="k")).queue
        await cluster[queue.broker_name].stop()
        for _ in range(3):
            with pytest.raises(SendError) as caught:
                await p.send(MESSAGE, key="k")
            assert {attempt.queue for attempt in caught.value.tries} == {queue}
        assert (await p.send(MESSAGE)).queue.broker_name != queue.broker_name
        await cluster[queue.broker_name].start()
        assert (await p.send(MESSAGE, key="k", timeout=10.0)).queue == queue


async def test_a_selector_of_ones_own(cluster: FakeCluster) -> None:
    def last(queues: object, message: Message, key: object) -> MessageQueue:
        assert message.body == b"x"
        return list(queues)[-1]  # type: ignore[call-overload, no-any-return]

    async with Producer("PG", namesrv=cluster.namesrv, queue_selector=last) as p:
        assert (await p.send(MESSAGE, key="k")).queue == MessageQueue("T", "b", 1)


async def test_a_queue_and_a_key_contradict(cluster: FakeCluster) -> None:
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        with pytest.raises(InvalidMessage, match="not both"):
            await p.send(MESSAGE, queue=MessageQueue("T", "a", 0), key="k")
