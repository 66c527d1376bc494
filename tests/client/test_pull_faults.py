"""Pull consumers that are asked for what makes no sense, or for something else meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pocketmq.client.consumer.consumer_event import ConsumerEvent, ConsumerEventKind
from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.errors import BrokerNotFound
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.pull import PullMessageRequestHeader
from pocketmq.remoting.serving.request import Request, Response
from tests.client.fake_cluster import FakeCluster
from tests.client.impatient import impatient
from tests.client.waiting import until

A0 = MessageQueue("T", "a", 0)
COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET


def consumer(cluster: FakeCluster, pauses: Pauses | None = None, **options: Any) -> PullConsumer:
    return impatient(PullConsumer, pauses)(
        "G", namesrv=cluster.namesrv, **({"start": "begin"} | options)
    )


@pytest.mark.parametrize("count", [0, -1])
async def test_a_poll_for_nothing(cluster: FakeCluster, count: int) -> None:
    """With messages there, it would ask for them for ever, and no task had a turn."""
    async with consumer(cluster) as c:
        with pytest.raises(ValueError, match=f"1 or more, not {count}"):
            await c.poll(count, timeout=0)


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_periods_without_a_pause(seconds: float) -> None:
    with pytest.raises(ValueError, match="auto_commit_interval must be above 0 seconds"):
        PullConsumer("G", namesrv="127.0.0.1:9876", auto_commit_interval=seconds)
    for option in ("commit_interval", "consume_timeout"):
        options: Any = {option: seconds}
        with pytest.raises(ValueError, match=f"{option} must be above 0 seconds"):
            PushConsumer("G", {}, namesrv="127.0.0.1:9876", **options)


@pytest.mark.parametrize("bound", [0, -1])
def test_bounds_that_let_nothing_be_read(bound: int) -> None:
    options: Any
    for options in ({"max_buffered": bound}, {"max_buffered_bytes": bound}):
        with pytest.raises(ValueError, match=f"1 or more, not {bound}"):
            PullConsumer("G", namesrv="127.0.0.1:1", **options)
    for name in ("queue", "size_for_queue", "topic", "size_for_topic"):
        options = {f"pull_threshold_for_{name}".replace("for_size_", "size_"): bound}
        with pytest.raises(ValueError, match="1 or more"):
            PushConsumer("G", namesrv="127.0.0.1:1", **options)


@pytest.mark.parametrize("suspend", [0.0, 15.0])
async def test_a_broker_that_does_not_hold_polls_is_not_asked_all_the_time(
    cluster: FakeCluster, suspend: float
) -> None:
    """It is not told to (0), or does not do so (longPollingEnable=false)."""
    broker = cluster["a"]
    broker.pull_answer = lambda request: broker.pulled(ResponseCode.PULL_NOT_FOUND, 0, 0)
    async with consumer(cluster, Pauses(shortest_poll=600), suspend=suspend) as c:
        await c.assign([A0])
        await until(lambda: broker.pulls)
        for _ in range(20):
            await c.committed(A0)  # meanwhile it could have asked as often
        assert len(broker.pulls) == 1


@pytest.mark.parametrize("suspend", [0.0, 15.0])
async def test_a_slave_that_is_taken_for_the_master_is_not_asked_all_the_time(
    cluster: FakeCluster, suspend: float
) -> None:
    """It sends its readers to the master, which is itself by a route of before an election."""
    broker, seen = cluster["a"], cluster.name_server.seen
    asked: list[int] = []

    def answer(request: Request[PullMessageRequestHeader]) -> Response:
        asked.append(seen[RequestCode.GET_ROUTEINFO_BY_TOPIC])
        return broker.pulled(ResponseCode.PULL_RETRY_IMMEDIATELY, 0, 0)

    broker.pull_answer = answer
    async with consumer(cluster, Pauses(shortest_poll=600), suspend=suspend) as c:
        await c.assign([A0])
        await until(lambda: asked and seen[RequestCode.GET_ROUTEINFO_BY_TOPIC] > asked[0])
        for _ in range(20):
            await c.committed(A0)  # meanwhile it could have asked as often
        assert len(broker.pulls) == 1


async def test_a_share_is_not_taken_of_a_topic_that_is_given_up(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """While what is lost is committed, before what is gained is read."""
    broker, brokers = cluster["a"], cluster.brokers.values()
    broker.store("T", 0, b"x")
    cluster.put("U")

    def divisions() -> int:
        return sum(each.seen[RequestCode.GET_CONSUMER_LIST_BY_GROUP] for each in brokers)

    def join(other: str, instead_of: str = "") -> None:
        """Have one more client in the group; the queues are divided by the order of names."""
        for each in brokers:
            each.clients.pop(instead_of, None)
            each.clients[other] = each.clients[c.client_id]

    async with consumer(cluster) as c:
        for topic in "TU":
            await c.subscribe(topic)
        await until(lambda: len(c.assignment) == 8)
        join("zzz")
        broker.notify("G")
        await until(lambda: {q.broker_name for q in c.assignment} == {"a"})
        assert await c.poll(timeout=10)
        assert await c.poll(timeout=0) == []
        update = broker.update_offset
        broker.update_offset = lambda request: None  # type: ignore[method-assign]
        commits = broker.seen[COMMIT]
        join("000", instead_of="zzz")
        broker.notify("G")
        await until(lambda: broker.seen[COMMIT] > commits)
        await c.unassign("T")
        broker.update_offset = update  # type: ignore[method-assign]
        of_t = divisions()
        broker.drop_connections()
        await until(lambda: divisions() > of_t)  # then U is divided
        await until(lambda: c.assignment)
        assert {queue.topic for queue in c.assignment} == {"U"}


async def test_offsets_are_all_tried_before_an_error_is_raised(cluster: FakeCluster) -> None:
    async with consumer(cluster, auto_commit=False) as c:
        await c.assign([A0])
        with pytest.raises(BrokerNotFound):
            await c.commit({MessageQueue("T", "nobody", 0): 1, A0: 7})
        assert cluster["a"].offsets["G", "T", 0] == 7


async def test_a_topic_that_is_waited_for_again_is_looked_for_once(cluster: FakeCluster) -> None:
    async with consumer(cluster, Pauses(missing_topic=0.2)) as c:
        for _ in range(5):
            await c.assign("missing")
            await asyncio.sleep(0)  # it begins to look
            await c.unassign("missing")
        await c.assign("missing")

        def looking() -> int:
            return sum("look for missing" in task.get_name() for task in asyncio.all_tasks())

        assert looking() == 6
        await until(lambda: looking() == 1)
        cluster.put("missing")
        await until(lambda: len(c.assignment) == 4)


@pytest.mark.parametrize("orderly", [False, True])
async def test_events_tell_names_without_the_namespace(cluster: FakeCluster, orderly: bool) -> None:
    cluster.put("ns%T", "a", queues=1)
    events: list[ConsumerEvent] = []
    cluster["a"].pull_answer = lambda request: cluster["a"].pulled(ResponseCode.NO_PERMISSION, 0, 0)
    async with impatient(PushConsumer, Pauses(lock_renewal=0.01))(
        "G", {"T": "*"}, handler=lambda message: None, namesrv=cluster.namesrv, namespace="ns",
        orderly=orderly, on_event=events.append,
    ):  # fmt: skip
        await until(lambda: ConsumerEventKind.READING_FAILED in {event.kind for event in events})
        cluster["a"].pull_answer = None
        cluster["a"].store("ns%T", 0, b"x")
        await until(lambda: ConsumerEventKind.READING_RECOVERED in {event.kind for event in events})
        if orderly:
            cluster["a"].locks = dict.fromkeys(cluster["a"].locks, "a thief")
            await until(lambda: ConsumerEventKind.LOCK_LOST in {event.kind for event in events})
    told = {event.kind: event.subject for event in events}
    assert told[ConsumerEventKind.QUEUES_CHANGED] == "T"
    assert told[ConsumerEventKind.READING_FAILED] == A0
    assert told[ConsumerEventKind.READING_RECOVERED] == A0
    if orderly:
        assert told[ConsumerEventKind.LOCK_LOST] == A0


async def test_iteration_ends_with_the_consumer(cluster: FakeCluster) -> None:
    """Not with what was read ahead, which comes to somebody else."""
    for i in range(3):
        cluster["a"].store("T", 0, b"%d" % i)
    seen: list[bytes] = []
    async with PullConsumer("G", namesrv=cluster.namesrv, start="begin") as consumer:
        await consumer.assign("T")
        async for message in consumer:
            seen.append(message.body)
            await consumer.shutdown()
    assert seen == [b"0"]
    assert cluster["a"].offsets["G", "T", 0] == 1
