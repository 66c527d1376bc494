"""Clients that live long, while topics and brokers come and go: what is gone is forgotten."""

from time import monotonic

import pytest

from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.request import Response
from tests.client.fake_cluster import FakeCluster
from tests.client.waiting import until

A0 = MessageQueue("T", "a", 0)


def consumer(cluster: FakeCluster) -> PullConsumer:
    return PullConsumer("G", namesrv=cluster.namesrv, start="begin")


async def test_topics_that_were_shared(cluster: FakeCluster) -> None:
    async with consumer(cluster) as c:
        rebalancer = c._session.rebalancer
        for topic in ("T", "missing"):
            await c.subscribe(topic)
        await until(lambda: len(c.assignment) == 4 and "missing" in rebalancer._failing)
        assert list(rebalancer._brokers) == ["T"]
        for topic in ("T", "missing"):
            await c.unassign(topic)
        await rebalancer.round()
        assert (rebalancer._brokers, rebalancer._failing) == ({}, set())


async def test_routes_of_topics_that_were_read(cluster: FakeCluster) -> None:
    async with consumer(cluster) as c:
        routes = c._session.instance.routes
        await c.assign("T")
        routes.doubt("T", 0.0)
        assert routes.known("T") is not None
        await c.unassign("T")
        await until(lambda: not routes._asking)
        await routes.poll()
        assert routes.known("T") is None
        assert not routes._doubted_at
        await c.assign("T")
        await until(lambda: len(c.assignment) == 4)


async def test_what_is_held_of_topics(cluster: FakeCluster) -> None:
    async with consumer(cluster) as c:
        limiter = c._session.assignment._limiter
        cluster["a"].store("T", 0, b"x")
        await c.assign("T")
        await until(lambda: limiter.size)
        assert list(limiter._topics) == ["T"]
        await c.unassign("T")
        assert not limiter._topics
        assert limiter.size == 0


async def test_polls_of_queues(cluster: FakeCluster) -> None:
    async with consumer(cluster) as c:
        polls = c._session.puller._polls
        assert polls is not None
        await c.assign([A0, MessageQueue("T", "a", 1)])
        await until(lambda: len(cluster["a"].pulls) >= 2)
        (known,) = polls._known.values()
        assert set(known) == {("T", 0), ("T", 1)}
        c._session.puller.forget(A0)
        assert set(known) == {("T", 1)}
        await c.unassign("T")
        await until(lambda: not polls._outstanding)
        assert not any(polls._known.values())


async def test_polls_to_brokers(cluster: FakeCluster) -> None:
    async with consumer(cluster) as c:
        polls = c._session.puller._polls
        assert polls is not None
        await c.assign("T")
        broker = cluster["a"]
        await until(lambda: broker.address in polls._known and broker.pulls)
        await broker.stop()
        await until(lambda: broker.address not in polls._known)
        assert broker.address not in polls._outstanding
        assert cluster["b"].address in polls._known


async def test_polls_to_brokers_that_stay_away(cluster: FakeCluster) -> None:
    failures: list[MessageQueue] = []
    async with PullConsumer(
        "G", namesrv=cluster.namesrv, on_error=lambda queue, error: failures.append(queue)
    ) as c:
        polls = c._session.puller._polls
        assert polls is not None
        await c.assign("T")
        broker = cluster["a"]
        await until(lambda: broker.address in polls._known and broker.pulls)
        await broker.stop()
        await until(lambda: len(failures) >= 4)
        await until(lambda: broker.address not in polls._outstanding)
        assert broker.address not in polls._known


async def test_brokers_that_were_told_of_a_requester(cluster: FakeCluster) -> None:
    async with Producer("G", namesrv=cluster.namesrv) as producer:
        await producer.queues("T")
        replies, heartbeat = producer._replies, producer._instance.heartbeat
        for brokers in ("ab", "a"):
            cluster.put("T", *brokers)
            await producer._instance.routes.poll()
            heartbeat.versions.clear()
            await replies._be_known(monotonic() + 10)
            assert set(replies._introductions) == {cluster[name].address for name in brokers}


async def test_opaques_of_queues_differ_after_some_have_gone(cluster: FakeCluster) -> None:
    async with consumer(cluster) as c:
        polls = c._session.puller._polls
        assert polls is not None
        await c.assign([A0, MessageQueue("T", "a", 1)])
        address = cluster["a"].address
        await until(lambda: len(polls._known.get(address, ())) == 2)
        c._session.puller.forget(A0)
        opaques = {polls._queue(address, "T", queue_id).opaque for queue_id in range(4)}
        assert len(opaques) == 4


async def test_brokers_that_left_the_routes_hear_no_farewell(cluster: FakeCluster) -> None:
    async with consumer(cluster) as c:
        await c.assign("T")
        heartbeat = c._session.instance.heartbeat
        both = {cluster["a"].address, cluster["b"].address}
        assert set(heartbeat.versions) == both
        cluster.put("T", "a")
        await c._session.instance.routes.poll()
        await heartbeat.send_all()
        assert set(heartbeat.versions) == {cluster["a"].address}


async def test_a_queue_that_comes_back_has_its_failures_told_again(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with consumer(cluster) as c:
        await c.assign([A0])
        cluster["a"].commit_answer = Response(ResponseCode.SYSTEM_ERROR, "as the test says")
        for told in (1, 1, 2):
            if told == 2:
                await c.unassign("T")
                caplog.clear()
                await c.assign([A0])
            await c._session.committer.commit(c._session.assignment.queues)
            assert [r.levelname for r in caplog.records if "committing" in r.message] == ["WARNING"]
