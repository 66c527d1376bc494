"""A pull consumer that lost its connection, its broker or its group says so, and comes back."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pocketmq.client.consumer.consumer_event import ConsumerEvent, ConsumerEventKind
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.errors import RemotingError
from pocketmq.message.message import MessageExt, MessageQueue
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.client import NotifyConsumerIdsChangedRequestHeader
from pocketmq.remoting.serving.dispatch import Handler
from pocketmq.remoting.serving.request import Request, Response
from tests.client.fake_cluster import FakeCluster
from tests.client.waiting import until

A0 = MessageQueue("T", "a", 0)


def consumer(cluster: FakeCluster, **options: Any) -> PullConsumer:
    return PullConsumer("G", namesrv=cluster.namesrv, start="begin", **options)


def busy(request: Request[Any]) -> Response:
    return Response(ResponseCode.SYSTEM_BUSY, "as the test says")


async def next_of(c: PullConsumer) -> MessageExt:
    (message,) = await c.poll(1, timeout=10)
    return message


async def test_errors_of_on_error_do_no_harm(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[MessageQueue] = []

    def on_error(queue: MessageQueue, error: RemotingError) -> None:
        told.append(queue)
        raise ValueError("of the application")

    cluster.put("T", "a", queues=1)
    async with consumer(cluster, on_error=on_error, share_polls=False) as c:
        cluster["a"].pull_answer = busy
        await c.assign([A0])
        await until(lambda: len(told) == 2)
        cluster["a"].pull_answer = None
        cluster["a"].store("T", 0, b"x")
        assert (await next_of(c)).body == b"x"
    assert set(told) == {A0}
    assert "on_error of consumer group G failed" in caplog.text
    assert "of the application" in caplog.text


async def test_errors_of_on_error_do_not_end_assign(cluster: FakeCluster) -> None:
    """The offset to begin at is asked for by `assign` itself, and later by the fetcher."""

    def on_error(queue: MessageQueue, error: RemotingError) -> None:
        raise ValueError("of the application")

    cluster["a"].store("T", 0, b"x")
    async with consumer(cluster, on_error=on_error) as c:
        failing = True

        def failing_at_first(handler: Handler) -> Handler:
            return lambda request: busy(request) if failing else handler(request)

        cluster["a"].dispatcher.wrap(RequestCode.QUERY_CONSUMER_OFFSET, failing_at_first)
        await c.assign([A0])
        failing = False
        assert (await next_of(c)).body == b"x"


async def test_a_lost_connection_is_told_and_made_again(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[ConsumerEvent] = []

    def of_kind(kind: ConsumerEventKind) -> list[str | MessageQueue]:
        return [event.subject for event in events if event.kind is kind]

    async with consumer(cluster, on_event=events.append) as c:
        await c.assign("T")
        await until(lambda: len(cluster["a"].held) >= 2)
        assert cluster["a"].address in of_kind(ConsumerEventKind.CONNECTED)
        caplog.set_level(logging.WARNING)
        cluster["a"].drop_connections()
        await until(lambda: A0 in of_kind(ConsumerEventKind.READING_FAILED))
        assert of_kind(ConsumerEventKind.CONNECTION_LOST) == [cluster["a"].address]
        failed = next(e for e in events if e.kind is ConsumerEventKind.READING_FAILED)
        assert isinstance(failed.error, RemotingError)
        cluster["a"].store("T", 0, b"after")
        assert (await next_of(c)).body == b"after"
        assert A0 in of_kind(ConsumerEventKind.READING_RECOVERED)
        assert of_kind(ConsumerEventKind.CONNECTED).count(cluster["a"].address) == 2
    assert f"group G: the connection to broker a at {cluster['a'].address} is lost" in caplog.text
    # What ends with the consumer is not lost.
    assert len(of_kind(ConsumerEventKind.CONNECTION_LOST)) == 1


async def test_a_group_that_the_broker_forgot_is_told_and_registered_again(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[ConsumerEvent] = []
    async with consumer(cluster, on_event=events.append) as c:
        await c.subscribe("T")
        await until(lambda: ConsumerEventKind.QUEUES_CHANGED in {e.kind for e in events})
        assert len(c.assignment) == 4
        events.clear()
        (connection,) = cluster["a"].clients.values()
        for name in "ab":
            cluster[name].clients.clear()
        header = NotifyConsumerIdsChangedRequestHeader(consumer_group="G")
        connection.send_oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)
        await until(lambda: len(events) >= 2)
        assert [(event.kind, event.subject) for event in events] == [
            (ConsumerEventKind.GROUP_LOST, "G"),
            (ConsumerEventKind.GROUP_FOUND, "G"),
        ]
        assert len(c.assignment) == 4
    assert "registering again" in caplog.text


async def test_queues_are_shared_out_again_after_a_lost_connection(cluster: FakeCluster) -> None:
    """The broker may have told of a client that left while there was no connection."""
    async with consumer(cluster) as c:
        cluster["a"].clients["another"] = cluster["b"].clients["another"] = None
        await c.subscribe("T")
        await until(lambda: len(c.assignment) == 2)
        for name in "ab":
            cluster[name].forget("another")
        cluster["a"].drop_connections()
        await until(lambda: len(c.assignment) == 4)


async def test_errors_of_the_listener_do_no_harm(cluster: FakeCluster) -> None:
    def listen(event: ConsumerEvent) -> None:
        raise RuntimeError("listener")

    async with consumer(cluster, on_event=listen) as c:
        await c.subscribe("T")
        await until(lambda: len(c.assignment) == 4)
        cluster["a"].drop_connections()
        cluster["a"].store("T", 0, b"after")
        assert (await next_of(c)).body == b"after"


async def test_events_name_what_the_application_knows(cluster: FakeCluster) -> None:
    cluster.put("ns%T", "a", queues=1)
    events: list[ConsumerEvent] = []
    async with consumer(cluster, on_event=events.append, namespace="ns") as c:
        await c.subscribe("T")
        await until(lambda: c.assignment == [A0] and cluster["a"].held)
        cluster["a"].drop_connections()
        await until(lambda: ConsumerEventKind.READING_FAILED in {e.kind for e in events})
    subjects = {event.kind: event.subject for event in events}
    assert subjects[ConsumerEventKind.QUEUES_CHANGED] == "T"
    assert subjects[ConsumerEventKind.READING_FAILED] == A0
