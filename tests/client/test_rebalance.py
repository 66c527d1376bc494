from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.consumer.rebalance.strategies import average
from pocketmq.message.message import MessageExt, MessageQueue
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.client import NotifyConsumerIdsChangedRequestHeader
from pocketmq.remoting.serving.request import Response
from tests.client.fake_cluster import FakeCluster
from tests.client.impatient import impatient
from tests.client.waiting import until


@given(st.integers(0, 40), st.sets(st.text("abc", min_size=1, max_size=3), min_size=1))
def test_every_queue_has_exactly_one_reader(count: int, ids: set[str]) -> None:
    queues = [MessageQueue("T", "b", i) for i in range(count)]
    shares = {own: average(queues, sorted(ids), own) for own in ids}
    assert sorted(queue for share in shares.values() for queue in share) == queues
    sizes = [len(shares[own]) for own in sorted(ids)]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)
    for share in shares.values():
        ids_of = [queue.queue_id for queue in share]
        assert ids_of == list(range(ids_of[0], ids_of[0] + len(ids_of))) if ids_of else True


@pytest.mark.parametrize(
    ("queues", "clients", "own", "expected"),
    [
        (8, 3, 0, [0, 1, 2]),
        (8, 3, 1, [3, 4, 5]),
        (8, 3, 2, [6, 7]),
        (2, 3, 0, [0]),
        (2, 3, 2, []),
        (4, 1, 0, [0, 1, 2, 3]),
    ],
)
def test_the_division_of_the_reference(
    queues: int, clients: int, own: int, expected: list[int]
) -> None:
    share = average(
        [MessageQueue("T", "b", i) for i in range(queues)],
        [f"c{i}" for i in range(clients)],
        f"c{own}",
    )
    assert [queue.queue_id for queue in share] == expected


def consumer(cluster: FakeCluster, pauses: Pauses | None = None, **options: Any) -> PullConsumer:
    return impatient(PullConsumer, pauses)(
        "G", namesrv=cluster.namesrv, **({"start": "begin"} | options)
    )


async def test_one_client_reads_all_queues(cluster: FakeCluster) -> None:
    cluster["a"].store("T", 1, b"x")
    async with consumer(cluster) as c:
        await c.subscribe("T")
        await until(lambda: len(c.assignment) == 4)
        assert [m.body for m in await c.poll(timeout=5)] == [b"x"]
        (subscription,) = cluster["b"].heartbeats[-1].consumer_data_set[0].subscription_data_set
        assert (subscription.topic, subscription.sub_string) == ("T", "*")


async def test_two_clients_share_and_the_rest_follows_when_one_leaves(
    cluster: FakeCluster,
) -> None:
    async with consumer(cluster) as first:
        await first.subscribe("T")
        await until(lambda: len(first.assignment) == 4)
        async with consumer(cluster) as second:
            await second.subscribe("T")
            await until(lambda: len(second.assignment) == 2)
            cluster["a"].notify("G")
            await until(lambda: len(first.assignment) == 2)
            assert not set(first.assignment) & set(second.assignment)
            cluster["a"].notify("another group")
        cluster["a"].notify("G")
        await until(lambda: len(first.assignment) == 4)


async def test_a_queue_that_is_lost_is_committed_for_its_new_reader(
    cluster: FakeCluster,
) -> None:
    for name in "ab":
        for queue_id in range(2):
            for i in range(3):
                cluster[name].store("T", queue_id, b"%d" % i)
    async with consumer(cluster) as first:
        await first.subscribe("T")
        await until(lambda: len(first.assignment) == 4)
        seen: list[MessageExt] = []
        while len(seen) < 12:
            seen += await first.poll()
        assert await first.poll(timeout=0) == []
        async with consumer(cluster) as second:
            await second.subscribe("T")
            await until(lambda: len(second.assignment) == 2)
            cluster["a"].notify("G")
            await until(lambda: len(first.assignment) == 2)
            lost = [
                (cluster[queue.broker_name].offsets, ("G", "T", queue.queue_id))
                for queue in second.assignment
            ]
            await until(lambda: all(offsets.get(key) == 3 for offsets, key in lost))


async def test_a_broker_that_does_not_know_the_group_yet_is_asked_again(
    cluster: FakeCluster,
) -> None:
    refused = 0
    original = cluster["a"].consumer_list

    def not_yet(request: Any) -> Any:
        nonlocal refused
        refused += 1
        if refused < 4:
            return Response(ResponseCode.SYSTEM_ERROR, "no consumer for this group, G")
        return original(request)

    cluster.put("T", "a")
    cluster["a"].consumer_list = not_yet  # type: ignore[method-assign]
    async with consumer(cluster, Pauses(incomplete_round=0.01)) as c:
        await c.subscribe("T")
        await until(lambda: len(c.assignment) == 2)
    assert cluster["a"].seen[RequestCode.GET_CONSUMER_LIST_BY_GROUP] >= 4


async def test_where_a_broker_that_is_gone_is_looked_up_again(cluster: FakeCluster) -> None:
    """Before the next poll of all routes, which is half a minute later."""
    await cluster["a"].stop()
    cluster.put("T", "a")
    async with consumer(cluster, Pauses(incomplete_round=0.01)) as c:
        await c.subscribe("T")
        cluster.put("T", "b")
        await until(lambda: {queue.broker_name for queue in c.assignment} == {"b"})


async def test_unassign_leaves_the_share_to_others(cluster: FakeCluster) -> None:
    async with consumer(cluster) as c:
        await c.subscribe("T")
        await until(lambda: len(c.assignment) == 4)
        await c.unassign("T")
        assert c.assignment == []
        cluster.put("U")
        await c.subscribe("U")
        cluster["a"].notify("G")
        await until(lambda: c.assignment)  # there was another round
        assert {queue.topic for queue in c.assignment} == {"U"}


async def test_a_client_that_leaves_does_not_join_again(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """It asks who is in the group while it shuts down, and hears that it is not."""
    broker = cluster["b"]
    unregister = broker.unregister
    slow: list[Any] = []

    def slowly(request: Any) -> None:
        unregister(request)
        slow.append(request)

    def asked() -> int:
        return sum(cluster[name].seen[RequestCode.GET_CONSUMER_LIST_BY_GROUP] for name in "ab")

    async with consumer(cluster, Pauses(incomplete_round=0.01)) as c:
        await c.subscribe("T")
        await until(lambda: len(c.assignment) == 4)
        broker.unregister = slowly  # type: ignore[method-assign, assignment]
        connections = [cluster[name].clients[c.client_id] for name in "ab"]
        leaving = asyncio.ensure_future(c.shutdown())
        await until(lambda: slow and not cluster["a"].clients)
        before = asked()
        connections[0].send_oneway(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
            NotifyConsumerIdsChangedRequestHeader(consumer_group="G"),
        )
        # It asks again after it has done what follows from the first answer.
        await until(lambda: leaving.done() or asked() >= before + 2)
        slow[0].reply(Response())
        await leaving
    assert [cluster[name].clients for name in "ab"] == [{}, {}]
    assert "registering again" not in caplog.text


async def test_a_notice_does_not_hold_up_the_end(cluster: FakeCluster) -> None:
    """Brokers tell a group that a client left while that client still shuts down."""
    for turns in range(40):
        c = consumer(cluster)
        await c.start()
        await c.subscribe("T")
        await until(lambda: cluster["a"].clients)
        leaving = asyncio.ensure_future(c.shutdown())
        for _ in range(turns):
            await asyncio.sleep(0)
        cluster["a"].notify("G")
        async with asyncio.timeout(10):
            await leaving
