"""Batch handlers with `max_wait`: messages wait until a batch is full, but not for longer."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.dispatch.batch_waits import BatchWaits
from pocketmq.client.consumer.dispatch.handlers import Batched
from pocketmq.client.consumer.dispatch.shown_names import ShownNames
from pocketmq.client.consumer.fetch.process_queue import ProcessQueue
from pocketmq.client.consumer.fetch.pull_limiter import PullLimiter, PullLimits
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.namespace import Namespace
from pocketmq.message.message import MessageQueue
from tests.client.fake_cluster import FakeCluster
from tests.client.waiting import until

#: Seconds that no test waits.
FOREVER = 3600


def consumer(cluster: FakeCluster, **options: Any) -> PushConsumer:
    given: dict[str, Any] = {"start": "begin", "commit_interval": 0.01} | options
    return PushConsumer("G", namesrv=cluster.namesrv, **given)


def fill(cluster: FakeCluster, count: int, topic: str = "T") -> None:
    for _ in range(count):
        cluster["a"].store(topic, 0, b"")


def offsets(messages: list[ConsumedMessage]) -> list[int]:
    return [message.queue_offset for message in messages]


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_batch_is_handed_over_when_it_is_full_and_the_rest_is_given_back(
    cluster: FakeCluster, orderly: bool
) -> None:
    fill(cluster, 3)
    calls: list[list[int]] = []
    c = consumer(cluster, orderly=orderly)
    c.on("T", max_batch=4, max_wait=FOREVER)(lambda messages: calls.append(offsets(messages)))
    async with c:
        await until(lambda: c.cached.get("T", (0, 0))[0] == 3)
        assert calls == []
        fill(cluster, 6)  # one pull: 2 batches of 4, and 1 message
        await until(lambda: cluster["a"].offsets.get(("G", "T", 0)) == 8)
        await until(lambda: c.cached["T"][0] == 1)
    assert calls == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert cluster["a"].offsets["G", "T", 0] == 8

    again = consumer(cluster, orderly=orderly)
    again.on("T", max_batch=4, max_wait=0.001)(lambda messages: calls.append(offsets(messages)))
    async with again:
        await until(lambda: cluster["a"].offsets.get(("G", "T", 0)) == 9)
    assert calls[2:] == [[8]]


@pytest.mark.parametrize("orderly", [False, True])
async def test_what_comes_in_time_joins_the_batch(cluster: FakeCluster, orderly: bool) -> None:
    calls: list[list[int]] = []
    c = consumer(cluster, orderly=orderly)
    wait = timedelta(milliseconds=1)
    c.on("T", max_batch=1000, max_wait=wait)(lambda messages: calls.append(offsets(messages)))
    async with c:
        for _ in range(5):
            fill(cluster, 2)
            end = len(cluster["a"].records["T", 0])
            while cluster["a"].offsets.get(("G", "T", 0)) != end:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    assert [offset for call in calls for offset in call] == list(range(10))


async def test_messages_wait_for_none_of_another_topic(cluster: FakeCluster) -> None:
    """Retries of all topics lie in one queue."""
    cluster.put("U")
    cluster.put("%RETRY%G", "a", queues=1)
    for topic in ("T", "T", "U", "T"):
        cluster["a"].store("%RETRY%G", 0, topic.encode(), f"RETRY_TOPIC\x01{topic}\x02")
    calls: list[str] = []
    c = consumer(cluster, concurrency=1)
    for topic in ("T", "U"):
        c.on(topic, max_batch=10, max_wait=FOREVER)(
            lambda messages: calls.append(b"".join(m.body for m in messages).decode())
        )
    async with c:
        await until(lambda: cluster["a"].offsets.get(("G", "%RETRY%G", 0)) == 3)
    assert calls == ["TT", "U"]


@pytest.mark.parametrize(
    "limits",
    [
        {"pull_threshold_for_queue": 5},
        {"pull_threshold_for_topic": 5},
        {"pull_threshold_size_for_topic": 1},
    ],
)
async def test_nothing_waits_for_what_is_not_read(
    cluster: FakeCluster, limits: dict[str, int]
) -> None:
    for _ in range(6):
        cluster["a"].store("T", 0, bytes(300_000))
    calls: list[list[int]] = []
    c = consumer(cluster, **limits)
    c.on("T", max_batch=1000, max_wait=FOREVER)(lambda messages: calls.append(offsets(messages)))
    async with c:
        await until(lambda: calls)
    assert calls[0] == list(range(len(calls[0])))


async def test_what_was_handed_over_before_waits_no_more(cluster: FakeCluster) -> None:
    fill(cluster, 3)
    calls: list[list[int]] = []
    c = consumer(cluster, orderly=True, suspend_current_queue=0.001)

    @c.on("T", max_batch=3, max_wait=FOREVER)
    def handle(messages: list[ConsumedMessage]) -> None:
        calls.append(offsets(messages))
        if len(calls) == 1:
            messages[0].ack()
            raise ValueError("the others once more")

    async with c:
        await until(lambda: cluster["a"].offsets.get(("G", "T", 0)) == 3)
    assert calls == [[0, 1, 2], [1, 2]]


async def test_a_paused_consumer_hands_over_after_it_resumes(cluster: FakeCluster) -> None:
    fill(cluster, 2)
    calls: list[list[int]] = []
    c = consumer(cluster)
    c.on("T", max_batch=3, max_wait=FOREVER)(lambda messages: calls.append(offsets(messages)))
    async with c:
        await until(lambda: c.cached.get("T", (0, 0))[0] == 2)
        c.pause()
        fill(cluster, 1)
        c.resume()
        await until(lambda: cluster["a"].offsets.get(("G", "T", 0)) == 3)
    assert calls == [[0, 1, 2]]


def test_arguments_that_do_not_fit() -> None:
    c = PushConsumer("G")
    with pytest.raises(ValueError, match="max_wait=1 needs max_batch"):
        c.on("T", max_wait=1)(lambda messages: None)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="max_wait must be 0 or more seconds"):
        c.on("T", max_batch=2, max_wait=-1)(lambda messages: None)
    with pytest.raises(TypeError, match="max_wait must be seconds"):
        c.on("T", max_batch=2, max_wait="1s")(lambda messages: None)  # type: ignore[call-overload]


def message(offset: int) -> ConsumedMessage:
    return ConsumedMessage("T", b"", b"", 0, 0, offset, 0, 0, 0, b"", 0, b"", 0, 0, 0, 0, "a")


steps = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 4), st.booleans()), min_size=1, max_size=20
)


@given(steps, st.integers(1, 6), st.integers(1, 5))
def test_the_oldest_message_decides(
    steps: list[tuple[int, int, bool]], size: int, wait: int
) -> None:
    """Whatever comes and goes, and when."""

    async def check() -> None:
        pq: ProcessQueue[ConsumedMessage] = ProcessQueue(MessageQueue("T", "a", 0))
        handlers = {"T": Batched(lambda messages: None, size, float(wait))}
        limiter = PullLimiter(PullLimits(queue_count=1000))
        over: list[object] = []
        waits = BatchWaits(handlers, ShownNames(Namespace(), "G"), limiter, over.append)
        came: list[float] = []
        now, offset = 1.0, 0
        for passed, count, take in steps:
            now += passed
            pq.accept([message(offset + i) for i in range(count)], offset + count)
            offset += count
            came += [now] * count
            waits.arrived(pq, now)
            if came:
                held = waits.holds(pq, now)
                assert held == (len(came) < size and now - came[0] < wait)
                if take and not held:
                    taken = pq.take(size)
                    del came[: len(taken)]
        waits.stop()
        assert over == []

    asyncio.run(check())
