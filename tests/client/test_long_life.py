"""Clients that live long, while topics and brokers come and go: what is gone is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from pocketmq.client.consumer.fetch.shared_polls import SharedPolls
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.consumer.rebalance.rebalance import Rebalancer
from pocketmq.client.consumer.rebalance.strategies import average
from pocketmq.client.errors import RemotingError
from pocketmq.client.instance import ClientInstance
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.heartbeat import ConsumerData
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers.pull import PullMessageRequestHeader
from pocketmq.remoting.serving.dispatch import Handler
from pocketmq.remoting.serving.request import Request, Response
from tests.client.fake_cluster import FakeCluster
from tests.client.waiting import until

A0 = MessageQueue("T", "a", 0)
COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET


@pytest.fixture
async def instance(cluster: FakeCluster) -> AsyncIterator[ClientInstance]:
    instance = ClientInstance(cluster.namesrv)
    instance.heartbeat.add_consumer("G", lambda: ConsumerData(group_name="G"))
    await instance.start()
    await instance.routes.for_subscribe("T")
    await instance.heartbeat.send_all()
    yield instance
    await instance.shutdown()


async def test_topics_that_were_shared(
    cluster: FakeCluster, instance: ClientInstance, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the brokers of a topic nor its failures are remembered once it is given up."""

    async def assign(topic: str, queues: Sequence[MessageQueue]) -> bool:
        return True

    rebalancer = Rebalancer(instance, "G", average, assign, retry_period=1.0)
    rebalancer.topics = {"T"}
    assert await rebalancer.round()
    cluster.put("T", "a")
    await instance.routes.poll()
    rebalancer.topics = {"T", "missing"}
    caplog.set_level("INFO")
    for _ in range(2):
        assert not await rebalancer.round()  # broker b is expected back
    assert caplog.text.count("topic missing cannot be divided") == 1

    rebalancer.topics.clear()
    assert await rebalancer.round()
    rebalancer.topics = {"T"}
    assert await rebalancer.round()
    rebalancer.topics = {"missing"}
    assert not await rebalancer.round()
    assert caplog.text.count("topic missing cannot be divided") == 2


async def test_routes_of_topics_that_were_read(cluster: FakeCluster) -> None:
    asked: list[str | None] = []

    def noting(handler: Handler) -> Handler:
        def note(request: Request[Any]) -> Any:
            asked.append(request.header.topic)
            return handler(request)

        return note

    cluster.name_server.dispatcher.wrap(RequestCode.GET_ROUTEINFO_BY_TOPIC, noting)
    cluster.put("U")
    async with PullConsumer("G", namesrv=cluster.namesrv, route_interval=0.01) as c:
        for topic in "TU":
            await c.assign(topic)
        await until(lambda: asked.count("T") >= 3)
        await c.unassign("T")
        polled = asked.count("U")
        await until(lambda: asked.count("U") >= polled + 2)  # a look that was under way has ended
        asked.clear()
        await until(lambda: asked.count("U") >= 3)
        assert set(asked) == {"U"}
        await c.assign("T")
        await until(lambda: len(c.assignment) == 8)


async def test_what_is_read_ahead_of_topics(cluster: FakeCluster) -> None:
    async with PullConsumer("G", namesrv=cluster.namesrv, start="begin") as c:
        cluster["a"].store("T", 0, b"x")
        await c.assign("T")
        await until(lambda: c.buffered_bytes)
        await c.unassign("T")
        assert c.buffered_bytes == 0


class Polling:
    """Long polls of single queues of topic T."""

    def __init__(self, cluster: FakeCluster, instance: ClientInstance) -> None:
        self.brokers = cluster.brokers
        self.polls = SharedPolls(instance.pool, instance.batch_protocol, 60.0, 10.0)
        self._tasks: list[asyncio.Task[Command]] = []

    def pull(self, broker: str, queue_id: int) -> asyncio.Task[Command]:
        header = PullMessageRequestHeader("G", "T", queue_id, 0, 32, 6, 0, 0, 0, "*")
        work = self.polls.pull(self.brokers[broker].address, header)
        task = asyncio.create_task(work)
        self._tasks.append(task)
        return task

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
async def polling(cluster: FakeCluster, instance: ClientInstance) -> AsyncIterator[Polling]:
    polling = Polling(cluster, instance)
    yield polling
    await polling.end()


async def test_polls_of_queues(cluster: FakeCluster, polling: Polling) -> None:
    for queue_id in range(2):
        polling.pull("a", queue_id)
    await until(lambda: len(cluster["a"].held) == 2)
    assert len(polling.polls) == 2
    polling.polls.forget("T", 0)
    assert len(polling.polls) == 1
    polling.polls.forget("T", 1)
    assert len(polling.polls) == 0


async def test_polls_to_brokers(cluster: FakeCluster, polling: Polling) -> None:
    lost = polling.pull("a", 0)
    polling.pull("b", 0)
    await until(lambda: cluster["a"].held and cluster["b"].held)
    assert len(polling.polls) == 2
    await cluster["a"].stop()
    with pytest.raises(RemotingError):
        await lost
    assert len(polling.polls) == 1
    # Nor is anything kept of a broker that stays away.
    with pytest.raises(RemotingError):
        await polling.pull("a", 0)
    assert len(polling.polls) == 1


async def test_brokers_that_left_the_routes_hear_no_farewell(
    cluster: FakeCluster, instance: ClientInstance
) -> None:
    assert set(instance.heartbeat.versions) == {cluster[name].address for name in "ab"}
    cluster.put("T", "a")
    await instance.routes.poll()
    await instance.heartbeat.send_all()
    assert set(instance.heartbeat.versions) == {cluster["a"].address}
    await instance.shutdown()
    assert cluster["a"].unregistered
    assert not cluster["b"].unregistered


async def test_a_queue_that_comes_back_has_its_failures_told_again(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster["a"].commit_answer = Response(ResponseCode.SYSTEM_ERROR, "as the test says")
    async with PullConsumer(
        "G", namesrv=cluster.namesrv, start="begin", auto_commit_interval=0.01
    ) as c:
        for _ in range(2):
            await c.assign([A0])
            commits = cluster["a"].seen[COMMIT]
            await until(lambda commits=commits: cluster["a"].seen[COMMIT] >= commits + 3)  # type: ignore[misc]
            assert [r.levelname for r in caplog.records if "committing" in r.message] == ["WARNING"]
            await c.unassign("T")
            caplog.clear()
