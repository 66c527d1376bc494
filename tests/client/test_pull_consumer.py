from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from pocketmq.client.consumer.fetch.puller import PullStatus
from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.errors import (
    InvalidName,
    NoNameServer,
    NoPermission,
    NotRunning,
    RemotingError,
    SubscriptionParseFailed,
    SystemBusy,
)
from pocketmq.message.message import MessageExt, MessageQueue
from pocketmq.message.sysflag import COMPRESSED
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import BodyError
from pocketmq.remoting.serving.request import Request, Response
from tests.client.fake_cluster import FakeBroker, FakeCluster
from tests.client.impatient import impatient
from tests.client.waiting import until

A0 = MessageQueue("T", "a", 0)


def consumer(cluster: FakeCluster, pauses: Pauses | None = None, **options: Any) -> PullConsumer:
    return impatient(PullConsumer, pauses)(
        "G", namesrv=cluster.namesrv, **({"start": "begin"} | options)
    )


def fill(cluster: FakeCluster, count: int = 20, topic: str = "T") -> set[bytes]:
    """`count` messages over all queues of a topic."""
    bodies = [b"%d" % i for i in range(count)]
    for i, body in enumerate(bodies):
        cluster["ab"[i % 2]].store(topic, i // 2 % 2, body, f"UNIQ_KEY\x01id{i}\x02")
    return set(bodies)


async def all_read_ahead(cluster: FakeCluster) -> None:
    """Return when the pulls of all queues of the topic are held: there is nothing more to read."""
    await until(lambda: all(len(broker.held) >= 2 for broker in cluster.brokers.values()))


def hold_division(broker: FakeBroker, until_set: asyncio.Event) -> None:
    """Let the question for a group's clients wait for the event."""
    answer = broker.consumer_list

    async def answer_later(request: Request[Any]) -> Response:
        await until_set.wait()
        return answer(request)

    broker.consumer_list = answer_later  # type: ignore[method-assign, assignment]


async def drain(c: PullConsumer, count: int, **options: Any) -> list[MessageExt]:
    messages: list[MessageExt] = []
    async with asyncio.timeout(10):
        while len(messages) < count:
            messages += await c.poll(**({"max_messages": count} | options))
    return messages


async def test_all_messages_of_all_queues_come_each_queue_in_order(cluster: FakeCluster) -> None:
    bodies = fill(cluster)
    async with consumer(cluster) as c:
        await c.assign("T")
        assert c.assignment == [MessageQueue("T", b, i) for b in "ab" for i in range(2)]
        messages = await drain(c, 20)
    assert {m.body for m in messages} == bodies
    assert {m.broker_name for m in messages} == {"a", "b"}
    for queue in {m.queue for m in messages}:
        offsets = [m.queue_offset for m in messages if m.queue == queue]
        assert offsets == list(range(5))


async def test_an_empty_poll_is_an_empty_list(cluster: FakeCluster) -> None:
    async with consumer(cluster) as c:
        with pytest.raises(NotRunning, match="reads no topic"):
            await c.poll(timeout=0)
        await c.assign("T")
        assert await c.poll(timeout=0) == []
        assert await c.poll(timeout=0.01) == []


async def test_a_poll_gives_no_more_than_asked_and_takes_queues_in_turn(
    cluster: FakeCluster,
) -> None:
    fill(cluster, 40)
    async with consumer(cluster) as c:
        await c.assign("T")
        await all_read_ahead(cluster)
        seen = [await c.poll(10) for _ in range(4)]
    assert [len(messages) for messages in seen] == [10] * 4
    assert len({messages[0].queue for messages in seen}) == 4


async def test_a_held_pull_is_woken_by_a_message(cluster: FakeCluster) -> None:
    async with consumer(cluster) as c:
        await c.assign("T")
        waiting = asyncio.create_task(c.poll(timeout=5))
        await until(lambda: len(cluster["b"].held) >= 2)
        cluster["b"].store("T", 1, b"new")
        (message,) = await waiting
        assert (message.body, message.queue) == (b"new", MessageQueue("T", "b", 1))
        sent = cluster["b"].pulls[-1]
    assert (sent.consumer_group, sent.subscription, sent.expression_type) == ("G", "*", "TAG")
    assert (sent.sys_flag, sent.suspend_timeout_millis, sent.max_msg_nums) == (6, 15_000, 256)
    assert sent.large_transfer is True


async def test_async_for_ends_with_the_consumer(cluster: FakeCluster) -> None:
    fill(cluster, 6)
    c = consumer(cluster)
    seen: list[bytes] = []
    async with c:
        await c.assign("T")
        async for message in c:
            seen.append(message.body)
            if len(seen) == 6:
                asyncio.get_running_loop().call_later(
                    0.01, lambda: asyncio.ensure_future(c.shutdown())
                )
    assert len(seen) == 6


async def test_nothing_works_outside_of_the_context(cluster: FakeCluster) -> None:
    c = consumer(cluster)
    with pytest.raises(NotRunning):
        await c.assign("T")
    await c.start()
    await c.start()
    await c.assign("T")
    await c.shutdown()
    await c.shutdown()
    for call in (c.poll(), c.commit(), c.pull(A0, 0), c.seek("begin"), c.subscribe("T")):
        with pytest.raises(NotRunning):
            await call


async def test_wrong_arguments(cluster: FakeCluster) -> None:
    async with consumer(cluster) as c:
        with pytest.raises(InvalidName):
            await c.assign("not a topic")
        with pytest.raises(InvalidName):
            await c.assign("T", tags="||")
        with pytest.raises(ValueError, match="not read"):
            await c.seek(0, queue=A0)
        with pytest.raises(ValueError, match="not read"):
            c.position(A0)
        with pytest.raises(ValueError, match="from 0 to"):
            await c.seek(-1)
        with pytest.raises(ValueError, match="'begin', 'end'"):
            await c.seek("middle")  # type: ignore[arg-type]
        await c.assign("T")
        await c.assign("T")
        with pytest.raises(ValueError, match="unassign"):
            await c.assign("T", tags="x")
        with pytest.raises(ValueError, match="unassign"):
            await c.subscribe("T")
    with pytest.raises(ValueError, match="'begin', 'end'"):
        PullConsumer("G", namesrv="127.0.0.1:1", start="first")  # type: ignore[arg-type]


async def test_exactly_the_given_queues(cluster: FakeCluster) -> None:
    fill(cluster)
    async with consumer(cluster) as c:
        await c.assign([A0, MessageQueue("T", "b", 1)])
        messages = await drain(c, 10)
        assert {m.queue for m in messages} == {A0, MessageQueue("T", "b", 1)}
        await c.assign([MessageQueue("T", "b", 0)])
        assert {m.queue_id for m in await drain(c, 5)} == {0}


async def test_tags_are_compared_as_text_too(cluster: FakeCluster) -> None:
    # "Aa" and "BB" have the same hash.
    for tag in ("Aa", "BB", None, "Aa"):
        cluster["a"].store("T", 0, b"x", f"TAGS\x01{tag}\x02" if tag else "")
    async with consumer(cluster) as c:
        await c.assign("T", tags="Aa || C")
        messages = await drain(c, 2)
        assert [(m.tags, m.queue_offset) for m in messages] == [("Aa", 0), ("Aa", 3)]
        assert cluster["a"].pulls[0].subscription == "Aa || C"
        beat = cluster["a"].heartbeats[-1].consumer_data_set[0]
        assert beat.group_name == "G"
        assert beat.consume_type == "CONSUME_ACTIVELY"
        assert beat.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
        (subscription,) = beat.subscription_data_set
        assert subscription.topic == "T"
        assert sorted(subscription.tags_set) == ["Aa", "C"]
        assert sorted(subscription.code_set) == [67, 2112]
        await c.commit()
    # Messages that the filter left out are behind the committed offset all the same.
    assert cluster["a"].offsets["G", "T", 0] == 4


async def test_where_a_new_group_starts(cluster: FakeCluster) -> None:
    fill(cluster)
    async with consumer(cluster, start="end") as c:
        await c.assign("T")
        assert [c.position(queue) for queue in c.assignment] == [5] * 4
        cluster["a"].store("T", 0, b"after")
        assert [m.body for m in await drain(c, 1)] == [b"after"]
    async with consumer(cluster, start=2, auto_commit=False) as c:
        await c.assign([A0])
        assert c.position(A0) == 5 + 1  # the group has a stored offset now


async def test_a_stored_offset_goes_before_the_start_option(cluster: FakeCluster) -> None:
    fill(cluster)
    cluster["a"].offsets["G", "T", 0] = 3
    async with consumer(cluster, start="end") as c:
        await c.assign([A0])
        assert [m.queue_offset for m in await drain(c, 2)] == [3, 4]


async def test_seek(cluster: FakeCluster) -> None:
    fill(cluster)
    async with consumer(cluster, start="end") as c:
        await c.assign("T")
        await c.seek("begin")
        assert len(await drain(c, 20)) == 20
        await c.seek(3)
        assert {m.queue_offset for m in await drain(c, 8)} == {3, 4}
        await c.seek(4, queue=A0)
        assert [(m.queue, m.queue_offset) for m in await drain(c, 1)] == [(A0, 4)]
        await c.seek("begin", queue=A0)
        await c.seek("end")
        assert await c.poll(timeout=0.02) == []
        assert c.position(A0) == 5


@pytest.mark.parametrize(
    ("position", "expected"), [("end", []), (3, [3, 4]), ("begin", [*range(5)])]
)
async def test_a_seek_right_after_subscribe_holds_for_the_first_share(
    cluster: FakeCluster, position: Any, expected: list[int]
) -> None:
    fill(cluster)
    cluster["a"].offsets["G", "T", 0] = 2
    divide = asyncio.Event()
    for broker in cluster.brokers.values():
        hold_division(broker, divide)
    async with consumer(cluster) as c:
        await c.subscribe("T")
        await c.seek(position)
        assert c.assignment == []
        divide.set()
        await until(lambda: len(c.assignment) == 4)
        await until(lambda: all(c.position(queue) is not None for queue in c.assignment))
        messages = await drain(c, 4 * len(expected))
        for queue in c.assignment:
            assert [m.queue_offset for m in messages if m.queue == queue] == expected
        assert await c.poll(timeout=0.02) == []


async def test_a_seek_says_nothing_of_queues_that_come_with_a_later_share(
    cluster: FakeCluster,
) -> None:
    fill(cluster)
    async with consumer(cluster) as first:
        await first.subscribe("T")
        await until(lambda: len(first.assignment) == 4)
        async with consumer(cluster) as second:
            await second.subscribe("T")
            await second.seek("end")
            cluster["a"].notify("G")
            await until(lambda: len(second.assignment) == len(first.assignment) == 2)
            later = first.assignment
            await first.shutdown()
            cluster["a"].notify("G")
            await until(lambda: len(second.assignment) == 4)
            assert {m.queue for m in await drain(second, 10)} == set(later)


async def test_a_seek_of_a_consumer_that_reads_nothing_is_refused(cluster: FakeCluster) -> None:
    async with consumer(cluster) as c:
        with pytest.raises(NotRunning, match="reads no topic"):
            await c.seek("begin")


async def test_seek_by_time(cluster: FakeCluster) -> None:
    asked: list[int] = []

    def search(request: Request[Any]) -> Response:
        asked.append(int(request.header.timestamp))
        return Response(ext_fields={"offset": "2"})

    from pocketmq.remoting.headers.offset import SearchOffsetRequestHeader

    cluster["a"].on(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search, SearchOffsetRequestHeader)
    fill(cluster)
    async with consumer(cluster) as c:
        await c.assign([A0])
        await c.seek(datetime(2026, 11, 1, tzinfo=UTC))
        assert c.position(A0) == 2
        assert [m.queue_offset for m in await drain(c, 3)] == [2, 3, 4]
    assert asked == [1793491200000]


async def test_what_was_read_ahead_before_a_seek_is_not_given(cluster: FakeCluster) -> None:
    fill(cluster, 80)
    async with consumer(cluster) as c:
        await c.assign([A0])
        first = await drain(c, 1, max_messages=1)
        assert first[0].queue_offset == 0
        await c.seek(10)
        assert (await drain(c, 1, max_messages=1))[0].queue_offset == 10
        assert c.buffered_bytes > 0
        await c.seek("end")
        assert c.buffered_bytes == 0


async def test_an_offset_that_does_not_exist_is_corrected(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster)
    async with consumer(cluster) as c:
        await c.assign([A0])
        await c.seek(99)
        await until(lambda: c.position(A0) == 5)
        cluster["a"].store("T", 0, b"next")
        assert [m.body for m in await drain(c, 1)] == [b"next"]
    assert "no offset 99" in caplog.text


async def test_commit_stores_what_was_handed_out(cluster: FakeCluster) -> None:
    fill(cluster)
    async with consumer(cluster, auto_commit=False) as c:
        await c.assign("T")
        await drain(c, 12, max_messages=4)
        positions = {queue: c.position(queue) for queue in c.assignment}
        await c.commit()
        for queue, position in positions.items():
            assert cluster[queue.broker_name].offsets["G", "T", queue.queue_id] == position
            assert await c.committed(queue) == position
        before = cluster["a"].seen[RequestCode.UPDATE_CONSUMER_OFFSET]
        await c.commit()
        assert cluster["a"].seen[RequestCode.UPDATE_CONSUMER_OFFSET] == before
        await c.commit({A0: 1})
        assert await c.committed(A0) == 1


async def test_commit_raises_what_the_broker_says(cluster: FakeCluster) -> None:
    fill(cluster)
    async with consumer(cluster, auto_commit=False) as c:
        await c.assign("T")
        await drain(c, 20)
        cluster["a"].commit_answer = Response(ResponseCode.SYSTEM_BUSY, "no")
        with pytest.raises(SystemBusy):
            await c.commit()
        assert len([key for key in cluster["b"].offsets if key[0] == "G"]) == 2
        cluster["a"].commit_answer = Response()
        await c.commit()
        assert cluster["a"].offsets["G", "T", 0] == 5


async def test_automatic_commits_leave_out_what_is_in_work(cluster: FakeCluster) -> None:
    fill(cluster)
    stored = cluster["a"].offsets
    async with consumer(cluster, auto_commit_interval=0.005) as c:
        await c.assign([A0])
        await drain(c, 2, max_messages=2)
        await until(lambda: ("G", "T", 0) in stored)
        assert stored["G", "T", 0] == 0
        # Asking for more says that the two are done.
        await drain(c, 1, max_messages=1)
        await until(lambda: stored["G", "T", 0] == 2)
    assert cluster["a"].offsets["G", "T", 0] == 3


async def test_what_was_in_work_at_an_exception_comes_again(cluster: FakeCluster) -> None:
    fill(cluster)

    async def consume(seen: list[int], until: int) -> None:
        async with consumer(cluster) as c:
            await c.assign([A0])
            async for message in c:
                seen.append(message.queue_offset)
                if message.queue_offset == until:
                    raise ZeroDivisionError

    for last, expected in ((2, [0, 1, 2]), (3, [2, 3])):
        seen: list[int] = []
        with pytest.raises(ZeroDivisionError):
            await consume(seen, last)
        assert seen == expected


async def test_automatic_commits_happen_by_themselves(cluster: FakeCluster) -> None:
    fill(cluster)
    async with consumer(cluster, auto_commit_interval=0.01) as c:
        await c.assign([A0])
        await drain(c, 5)
        await c.poll(timeout=0)
        await until(lambda: cluster["a"].offsets.get(("G", "T", 0)) == 5)
        cluster["a"].commit_answer = Response(ResponseCode.SYSTEM_ERROR, "for a while")
        cluster["a"].store("T", 0, b"more")
        await drain(c, 1)
        await c.poll(timeout=0.05)
        cluster["a"].commit_answer = Response()
        await until(lambda: cluster["a"].offsets["G", "T", 0] == 6)


async def test_a_single_pull(cluster: FakeCluster) -> None:
    fill(cluster)
    async with consumer(cluster) as c:
        result = await c.pull(A0, 1, max_messages=2)
        assert result.status is PullStatus.FOUND
        assert [m.queue_offset for m in result.messages] == [1, 2]
        assert (result.next_begin_offset, result.min_offset, result.max_offset) == (3, 0, 5)
        result = await c.pull(A0, 5)
        assert (result.status, result.messages) == (PullStatus.NO_NEW_MSG, [])
        assert result.next_begin_offset == 5
        result = await c.pull(A0, 50)
        assert (result.status, result.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 5)
        task = asyncio.create_task(c.pull(A0, 5, suspend=5))
        await until(lambda: cluster["a"].held)
        cluster["a"].store("T", 0, b"x")
        assert [m.body for m in (await task).messages] == [b"x"]
        assert await c.begin_offset(A0) == 0
        assert await c.end_offset(A0) == 6
        assert len(await c.queues("T")) == 4
        assert await c.queues("nowhere") == ()


async def test_a_pull_that_is_refused(cluster: FakeCluster) -> None:
    cluster["a"].pull_answer = lambda request: Response(ResponseCode.NO_PERMISSION, "group")
    async with consumer(cluster) as c:
        with pytest.raises(NoPermission, match="group"):
            await c.pull(A0, 0)


async def test_buffers_are_bounded(cluster: FakeCluster) -> None:
    for _ in range(500):
        cluster["a"].store("T", 0, bytes(1000))
    async with consumer(cluster, max_buffered=64) as c:
        await c.assign([A0])
        pulls = cluster["a"].pulls
        await until(lambda: len(pulls) == 2)  # of 32 messages each
        for _ in range(3):
            await c.committed(A0)  # meanwhile it could have asked as often
        assert len(pulls) == 2
        assert len(await drain(c, 500)) == 500


async def test_the_bytes_of_all_queues_together_are_bounded(cluster: FakeCluster) -> None:
    for name in "ab":
        for _ in range(100):
            cluster[name].store("T", 0, bytes(10_000))
    async with consumer(cluster, max_buffered_bytes=500_000) as c:
        await c.assign("T")
        await until(lambda: c.buffered_bytes >= 500_000)
        for _ in range(3):
            await c.committed(A0)  # meanwhile it could have asked as often
        # Each queue may have had one pull under way when the bound was reached.
        assert c.buffered_bytes < 500_000 + 2 * 32 * 12_000
        assert len(await drain(c, 200)) == 200
        assert c.buffered_bytes == 0


async def test_a_topic_that_does_not_exist_yet(
    cluster: FakeCluster,
) -> None:
    async with consumer(cluster, start="end", pauses=Pauses(missing_topic=0.01)) as c:
        await c.assign("later")
        assert c.assignment == []
        cluster["a"].store("later", 0, b"first")
        cluster.put("later", "a", queues=1)
        # None of its messages is older than the assignment, so the first one counts.
        assert [m.body for m in await drain(c, 1)] == [b"first"]


async def test_new_queues_are_taken_up_and_removed_ones_dropped(cluster: FakeCluster) -> None:
    fill(cluster)
    cluster.put("T", "a", queues=1)
    async with consumer(cluster, start="end", route_interval=0.01) as c:
        await c.assign("T")
        assert c.assignment == [A0]
        cluster.put("T", "a", "b", queues=2)
        await until(lambda: len(c.assignment) == 4)
        # Those that are new are read from their first message.
        assert len(await drain(c, 15)) == 15
        cluster.put("T", "a", queues=1)
        # Broker b left the route and may come back; queue 1 of a is gone.
        left = [A0, MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)]
        await until(lambda: c.assignment == left)


async def test_unassign(cluster: FakeCluster) -> None:
    fill(cluster)
    async with consumer(cluster) as c:
        await c.assign("T")
        await drain(c, 20)
        await c.poll(timeout=0)
        await c.unassign("T")
        assert c.assignment == []
        assert cluster["a"].offsets["G", "T", 0] == 5
        assert c.buffered_bytes == 0
        with pytest.raises(NotRunning, match="reads no topic"):
            await c.poll(timeout=0.01)
        await c.assign("T", tags="x")
        assert c.position(A0) == 5


async def test_no_name_server(unused_port: str) -> None:
    async with PullConsumer("G", namesrv=unused_port, start_timeout=None) as c:
        with pytest.raises(NoNameServer):
            await c.assign("T")


async def test_a_lost_connection_is_made_again(cluster: FakeCluster) -> None:
    async with consumer(cluster) as c:
        await c.assign("T")
        for i in range(5):
            cluster["a"].drop_connections()
            cluster["a"].store("T", 0, b"%d" % i)
            assert [m.body for m in await drain(c, 1)] == [b"%d" % i]


async def test_a_restarted_broker_is_read_on(cluster: FakeCluster) -> None:
    failed: list[tuple[MessageQueue, RemotingError]] = []
    cluster["a"].store("T", 0, b"before")
    async with consumer(cluster, on_error=lambda q, e: failed.append((q, e))) as c:
        await c.assign("T")
        assert [m.body for m in await drain(c, 1)] == [b"before"]
        await cluster["a"].stop()
        cluster["b"].store("T", 0, b"meanwhile")
        assert [m.body for m in await drain(c, 1)] == [b"meanwhile"]
        await until(lambda: failed)
        await cluster["a"].start()
        cluster["a"].store("T", 0, b"after")
        assert [m.body for m in await drain(c, 1)] == [b"after"]
    assert {queue.broker_name for queue, _ in failed} == {"a"}
    assert all(isinstance(error, RemotingError) for _, error in failed)


async def test_errors_of_the_broker_are_logged_once_and_recovered_from(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    answered = asyncio.Event()

    def busy(request: Request[Any]) -> Response:
        if len(broker.pulls) > 2:
            answered.set()
        return Response(ResponseCode.SYSTEM_BUSY, "flow control")

    broker = cluster["a"]
    broker.pull_answer = busy
    with caplog.at_level(logging.INFO, "pocketmq.client"):
        async with consumer(cluster) as c:
            await c.assign([A0])
            await answered.wait()
            broker.pull_answer = None
            broker.store("T", 0, b"x")
            assert [m.body for m in await drain(c, 1)] == [b"x"]
    assert caplog.text.count("flow control") == 1
    assert "works again" in caplog.text


@pytest.mark.parametrize("outages", [1, 2])
async def test_each_outage_of_a_broker_is_logged_once(
    outages: int, cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    failed: set[MessageQueue] = set()
    caplog.set_level(logging.INFO, "pocketmq.client.consumer")
    async with consumer(cluster, on_error=lambda queue, error: failed.add(queue)) as c:
        await c.assign("T")
        for _ in range(outages):
            failed.clear()
            caplog.clear()
            await cluster["a"].stop()
            await until(lambda: len(failed) == 2)  # both queues of the broker
            with pytest.raises(RemotingError):
                await c.commit({A0: 0})
            await cluster["a"].start()
            cluster["a"].store("T", 0, b"x")  # ends the long poll
            await until(lambda: "broker a works again" in caplog.text)
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "the connection to broker a at" in warnings[0]
    assert caplog.text.count("works again") == 1


def broken(broker: FakeBroker, body: bytes, following: int) -> None:
    """Have the broker answer the next pull with this body."""

    def once(request: Request[Any]) -> Response:
        broker.pull_answer = None
        return broker.pulled(ResponseCode.SUCCESS, following, following, body)

    broker.pull_answer = once


async def test_a_corrupt_record_is_not_skipped(cluster: FakeCluster) -> None:
    broker = cluster["a"]
    fill(cluster)
    records = broker.records["T", 0]
    corrupt = bytearray(records[2])
    corrupt[-1] ^= 1
    corrupt[8] ^= 1
    broken(broker, records[0] + records[1] + bytes(corrupt) + records[3], 4)
    async with consumer(cluster) as c:
        result = await c.pull(A0, 0)
        assert [m.queue_offset for m in result.messages] == [0, 1]
        assert result.next_begin_offset == 2
        broken(broker, bytes(corrupt), 3)
        with pytest.raises(BodyError, match="seek past it"):
            await c.pull(A0, 2)
        broken(broker, b"", 3)
        assert (await c.pull(A0, 2)).messages == []


async def test_a_corrupt_record_does_not_stop_a_consumer(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    broker = cluster["a"]
    fill(cluster)
    records = broker.records["T", 0]
    corrupt = bytearray(records[1])
    corrupt[8] ^= 1
    broker.records["T", 0][1] = bytes(corrupt)
    async with consumer(cluster) as c:
        await c.assign([A0])
        messages = await drain(c, len(records) - 1)
    assert [m.queue_offset for m in messages] == [0, *range(2, len(records))]
    assert "skipping one offset" in caplog.text


async def test_a_body_that_does_not_decompress_is_given_as_stored(cluster: FakeCluster) -> None:
    cluster["a"].store("T", 0, b"not zlib", "a\x01b\x02", sys_flag=COMPRESSED)
    async with consumer(cluster) as c:
        await c.assign([A0])
        (message,) = await drain(c, 1)
    assert (message.body, message.sys_flag & COMPRESSED) == (b"not zlib", COMPRESSED)
    assert message.properties == {"a": "b"}


async def test_an_answer_without_next_offset_is_an_error(cluster: FakeCluster) -> None:
    cluster["a"].pull_answer = lambda request: Response(ResponseCode.PULL_NOT_FOUND, "merged")
    async with consumer(cluster) as c:
        with pytest.raises(BodyError, match="nextBeginOffset"):
            await c.pull(A0, 0)


async def test_a_replica_is_asked_when_the_broker_suggests_it(cluster: FakeCluster) -> None:
    fill(cluster)
    route = cluster.name_server.routes["T"]
    route.broker_datas[0].broker_addrs[1] = cluster["b"].address
    cluster["b"].records["T", 0][:] = cluster["a"].records["T", 0]

    def suggest(request: Request[Any]) -> Response:
        cluster["a"].pull_answer = None
        return Response(
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ext_fields={"nextBeginOffset": "0", "suggestWhichBrokerId": "1"},
        )

    cluster["a"].pull_answer = suggest
    async with consumer(cluster) as c:
        await c.queues("T")
        assert (await c.pull(A0, 0)).status is PullStatus.NO_MATCHED_MSG
        assert len((await c.pull(A0, 0)).messages) == 5
        assert (len(cluster["a"].pulls), len(cluster["b"].pulls)) == (1, 1)


async def test_shutdown_with_pulls_held_and_a_broker_gone(cluster: FakeCluster) -> None:
    async with consumer(cluster) as c:
        await c.assign("T")
        await until(lambda: len(cluster["b"].held) >= 2)
        await cluster["a"].stop()
    assert [u.consumer_group for u in cluster["b"].unregistered] == ["G"]
    await until(lambda: cluster["b"].connections == 0)


async def test_paused_queues_keep_what_they_have(cluster: FakeCluster) -> None:
    bodies = fill(cluster, 80)
    async with consumer(cluster, batch=4) as c:
        await c.assign("T")

        def asked_again(broker: FakeBroker) -> bool:
            asked = [pull.queue_id for pull in broker.pulls]
            return asked.count(0) >= 2 and asked.count(1) >= 2

        await until(lambda: all(map(asked_again, cluster.brokers.values())))
        c.pause([A0])
        seen = await drain(c, 60)
        assert A0 not in {m.queue for m in seen}
        assert await c.poll(timeout=0.01) == []
        pulls = sum(pull.queue_id == 0 for pull in cluster["a"].pulls)
        cluster["a"].store("T", 0, b"while paused")
        assert await c.poll(timeout=0.01) == []
        assert sum(pull.queue_id == 0 for pull in cluster["a"].pulls) == pulls
        c.resume([A0])
        seen += await drain(c, 21)
        offsets = [m.queue_offset for m in seen if m.queue == A0]
        assert offsets == list(range(21))
        assert {m.body for m in seen} == bodies | {b"while paused"}
        # All of them, and a seek meanwhile.
        c.pause()
        await c.seek("begin", queue=A0)
        assert await c.poll(timeout=0.01) == []
        c.resume()
        assert [m.queue_offset for m in await drain(c, 21)] == list(range(21))
        with pytest.raises(ValueError, match="not read"):
            c.pause([MessageQueue("U", "a", 0)])


async def test_sql92(cluster: FakeCluster) -> None:
    cluster["a"].store("T", 0, b"x")
    async with consumer(cluster) as c:
        await c.assign("T", sql="a IS NOT NULL")
        assert len(await drain(c, 1)) == 1
        sent = cluster["a"].pulls[0]
        assert (sent.subscription, sent.expression_type) == ("a IS NOT NULL", "SQL92")
        (data,) = cluster["a"].heartbeats[-1].consumer_data_set[0].subscription_data_set
        assert (data.sub_string, data.expression_type) == ("a IS NOT NULL", "SQL92")
        await c.pull(A0, 0, sql="b > 1")
        assert "b > 1" in {pull.subscription for pull in cluster["a"].pulls}
        await c.unassign("T")
        with pytest.raises(InvalidName, match="empty"):
            await c.assign("T", sql=" ")
        cluster["a"].check_answer = Response(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "no")
        with pytest.raises(SubscriptionParseFailed):
            await c.assign("T", sql="a >")
        await c.assign("T")
