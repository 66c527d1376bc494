"""Push consumers whose handlers, operators and other clients do what nobody expects."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.offset import ResetOffsetBody
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.offset import ResetOffsetRequestHeader
from pocketmq.remoting.serving.request import Request, Response
from tests.client.fake_cluster import FakeCluster
from tests.client.impatient import impatient
from tests.client.waiting import until

A0 = MessageQueue("T", "a", 0)


class Odd(BaseException):
    """What `except Exception` does not catch, as pytest's own are."""


def consumer(cluster: FakeCluster, pauses: Pauses | None = None, **options: Any) -> PushConsumer:
    return impatient(PushConsumer, pauses)(
        "G", {"T": "*"}, namesrv=cluster.namesrv, **({"start": "begin"} | options)
    )


def fill(cluster: FakeCluster, count: int = 3) -> None:
    for i in range(count):
        cluster["a"].store("T", 0, b"%d" % i)


@pytest.mark.parametrize("error", [asyncio.CancelledError, Odd])
@pytest.mark.parametrize("kind", ["plain", "coroutine", "batch", "hooked"])
async def test_a_message_whose_work_ends_itself_comes_again(
    cluster: FakeCluster, kind: str, error: type[BaseException]
) -> None:
    """A handler that waits for a task that somebody cancels is not cancelled itself."""
    seen: list[bytes] = []

    def plain(message: ConsumedMessage) -> None:
        seen.append(message.body)
        if message.body == b"0":
            raise error

    async def coroutine(message: ConsumedMessage) -> None:
        plain(message)

    async def batch(messages: list[ConsumedMessage]) -> None:
        plain(messages[0])

    ended: list[BaseException | None] = []

    class Hook:
        def before_consume(self, context: Any) -> None: ...

        def after_consume(self, context: Any) -> None:
            ended.append(context.error)

    handler: Any = {"plain": plain, "batch": batch}.get(kind, coroutine)
    c = PushConsumer(
        "G", namesrv=cluster.namesrv, start="begin", concurrency=1,
        hooks=[Hook()] if kind == "hooked" else [],
    )  # fmt: skip
    if kind == "batch":
        c.on("T", max_batch=1)(handler)
    else:
        c.on("T")(handler)
    fill(cluster)
    async with c:
        await until(lambda: len(seen) == 3)
        await until(lambda: cluster["a"].sent_back)
    assert cluster["a"].offsets["G", "T", 0] == 3
    if kind == "hooked":
        assert [type(e) for e in ended] == [error, type(None), type(None)]


async def test_an_orderly_queue_goes_on_after_a_handler_ended_itself(cluster: FakeCluster) -> None:
    seen: list[bytes] = []

    async def handle(message: ConsumedMessage) -> None:
        seen.append(message.body)
        if len(seen) == 1:
            task = asyncio.create_task(asyncio.sleep(60))
            task.cancel()
            await task

    fill(cluster)
    async with consumer(cluster, handler=handle, orderly=True, suspend_current_queue=0.001):
        await until(lambda: len(seen) == 4)
    assert seen == [b"0", b"0", b"1", b"2"]
    assert cluster["a"].offsets["G", "T", 0] == 3


async def test_an_offset_that_was_reset_is_stored_where_it_was_before(cluster: FakeCluster) -> None:
    """What is known to be stored is the reset's offset, not the last commit's."""
    seen: list[bytes] = []
    offsets = cluster["a"].offsets
    gate = asyncio.Event()
    gate.set()

    async def handle(message: ConsumedMessage) -> None:
        await gate.wait()
        seen.append(message.body)

    fill(cluster)
    async with consumer(cluster, handler=handle, commit_interval=0.01):
        await until(lambda: offsets.get(("G", "T", 0)) == 3)
        gate.clear()
        header = ResetOffsetRequestHeader(topic="T", group="G", timestamp=0, is_force=True)
        body = ResetOffsetBody(offset_table={A0: 1}).encode()
        (connection,) = cluster["a"].clients.values()
        connection.send_oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body)
        await until(lambda: offsets["G", "T", 0] == 1)
        gate.set()
        await until(lambda: len(seen) == 5)
        await until(lambda: offsets["G", "T", 0] == 3)


async def test_an_orderly_queue_goes_on_after_a_cancelled_way_to_the_dead_letters(
    cluster: FakeCluster,
) -> None:
    fill(cluster)
    cluster["a"].mode = "hang"
    c = consumer(cluster, orderly=True, max_reconsume_times=0, suspend_current_queue=0.001)
    async with c:
        message = await anext(c)

        async def work() -> None:
            async with message:
                raise ReconsumeLater

        working = asyncio.create_task(work())
        await until(cluster["a"].arrived.is_set)
        working.cancel()
        await asyncio.wait([working])
        cluster["a"].mode = None
        async with asyncio.timeout(10):
            again = await anext(c)
        assert again.body == b"0"
        again.ack()


@pytest.mark.parametrize("stolen", [False, True])
async def test_the_lock_of_a_queue_that_is_given_up_is_renewed_until_its_work_is_done(
    cluster: FakeCluster, stolen: bool
) -> None:
    """Else another client would have it after a minute, and the last commit would undo its own."""
    broker = cluster["a"]
    gate = asyncio.Event()
    seen: list[bytes] = []

    async def handle(message: ConsumedMessage) -> None:
        seen.append(message.body)
        await gate.wait()

    fill(cluster)
    async with consumer(cluster, Pauses(lock_renewal=0.01), handler=handle, orderly=True) as c:
        await until(lambda: seen)
        await c.unsubscribe("T")
        broker.locks.clear()  # a minute later
        if stolen:
            broker.locks[A0] = "a thief"
            broker.offsets["G", "T", 0] = 2
        renewals = broker.seen[RequestCode.LOCK_BATCH_MQ]
        await until(lambda: broker.seen[RequestCode.LOCK_BATCH_MQ] >= renewals + 3)
        assert broker.locks[A0] == ("a thief" if stolen else c.client_id)
        gate.set()
        if not stolen:
            await until(lambda: A0 not in broker.locks)
    assert broker.locks == ({A0: "a thief"} if stolen else {})
    assert broker.offsets["G", "T", 0] == (2 if stolen else 1)


@pytest.mark.parametrize("body", [b"", None, b"x" * 200_000])
@pytest.mark.parametrize("topic_bound", [None, 1])
@pytest.mark.parametrize("orderly", [False, True])
async def test_what_a_handler_makes_of_a_body_does_not_count(
    cluster: FakeCluster, body: Any, topic_bound: int | None, orderly: bool
) -> None:
    """Decoded in place, say: the bounds on what is read ahead go by what was read."""
    times = 0

    async def handle(message: ConsumedMessage) -> None:
        nonlocal times
        times += 1
        message.body = body
        if times == 1:
            raise ReconsumeLater

    for _ in range(40):
        cluster["a"].store("T", 0, bytes(100_000))
    async with consumer(
        cluster, handler=handle, orderly=orderly, pull_batch_size=4, suspend_current_queue=0.001,
        pull_threshold_size_for_queue=1, pull_threshold_size_for_topic=topic_bound,
    ) as c:  # fmt: skip
        await until(lambda: times == 40 + orderly)
        async with asyncio.timeout(10):
            while True:
                info = await cluster["a"].running_info(c.client_id)
                if not info.mq_table[A0].cached_msg_count:
                    break
    assert info.mq_table[A0].cached_msg_size_in_mib == 0


async def test_a_commit_that_hangs_keeps_no_lock(cluster: FakeCluster) -> None:
    """Else nobody reads the queues of the other brokers for the next minute."""
    seen: list[bytes] = []
    fill(cluster)
    async with consumer(
        cluster, Pauses(last_commit=0.01), handler=lambda m: seen.append(m.body), orderly=True
    ) as c:
        await until(lambda: len(seen) == 3 and len(c.assignment) == 4)
        assert cluster["b"].locks
        cluster["a"].update_offset = lambda request: None  # type: ignore[method-assign]
    assert cluster["b"].locks == cluster["a"].locks == {}


async def test_a_topic_that_is_given_up_is_not_taken_again(cluster: FakeCluster) -> None:
    """By a division of its queues that began before."""
    seen: list[bytes] = []
    brokers = cluster.brokers.values()

    def divisions() -> int:
        return sum(b.seen[RequestCode.GET_CONSUMER_LIST_BY_GROUP] for b in brokers)

    fill(cluster)
    cluster.put("U")
    async with PushConsumer(
        "G", {"T": "*", "U": "*"}, handler=lambda m: seen.append(m.body),
        namesrv=cluster.namesrv, start="begin",
    ) as c:  # fmt: skip
        await until(lambda: len(seen) == 3 and len(c.assignment) == 8)
        held: list[Request[Any]] = []
        for broker in brokers:
            broker.consumer_list = held.append  # type: ignore[method-assign, assignment]
        cluster["a"].notify("G")
        await until(lambda: held)  # the division of T, before that of U
        cluster["a"].update_offset = lambda request: None  # type: ignore[method-assign]
        before = cluster["a"].seen[RequestCode.UPDATE_CONSUMER_OFFSET]
        ending = asyncio.create_task(c.unsubscribe("T"))
        await until(lambda: cluster["a"].seen[RequestCode.UPDATE_CONSUMER_OFFSET] > before)
        of_t = divisions()
        for broker in brokers:
            del broker.consumer_list
        for request in held:
            request.reply(cluster["a"].consumer_list(request))
        await until(lambda: divisions() > of_t)
        assert {queue.topic for queue in c.assignment} == {"U"}
        ending.cancel()
        await asyncio.wait([ending])


async def test_several_handlers_may_shut_the_consumer_down(cluster: FakeCluster) -> None:
    """Each, say, that sees that enough has come; the last of them when the others wait already."""
    late = asyncio.Event()
    asked: list[bytes] = []

    async def handle(message: ConsumedMessage) -> None:
        if message.body == b"2":
            await late.wait()
        asked.append(message.body)
        await c.shutdown()

    fill(cluster)
    c = consumer(cluster, handler=handle, shutdown_timeout=600.0)
    await c.start()
    await until(lambda: len(asked) == 2)
    late.set()
    async with asyncio.timeout(10):
        await c.shutdown()
    assert len(asked) == 3


async def test_a_topic_may_come_while_the_consumer_starts(cluster: FakeCluster) -> None:
    cluster.put("U")
    cluster.name_server.hangs = True
    c = PushConsumer("G", {"T": "*", "V": "*"}, namesrv=cluster.namesrv)
    starting = asyncio.create_task(c.start())
    await until(lambda: cluster.name_server.seen[RequestCode.GET_ROUTEINFO_BY_TOPIC])
    subscribing = asyncio.create_task(c.subscribe("U"))
    await asyncio.sleep(0)
    cluster.name_server.release()
    try:
        await starting
        await subscribing
        await until(lambda: {queue.topic for queue in c.assignment} == {"T", "U"})
    finally:
        await asyncio.wait([starting, subscribing])
        await c.shutdown()


async def test_a_paused_queue_hands_out_no_repetition(cluster: FakeCluster) -> None:
    cluster["a"].back_answer = Response(ResponseCode.SYSTEM_ERROR, "as the test says")
    fill(cluster, 1)
    async with consumer(cluster, Pauses(local_retry=0.001)) as c:
        message = await anext(c)
        await message.reconsume()
        c.pause()
        again = asyncio.ensure_future(anext(c))
        # The repetition becomes due first: timers of one loop end in their order.
        await asyncio.sleep(0.002)
        assert not again.done()
        c.resume()
        async with asyncio.timeout(10):
            assert await again is message
        message.ack()
    assert cluster["a"].offsets["G", "T", 0] == 1


async def test_work_that_took_too_long_is_ended_once(cluster: FakeCluster) -> None:
    """Not again while the broker takes the message back."""
    cluster["a"].back_answer = None  # type: ignore[assignment]
    fill(cluster, 1)
    begun: list[bytes] = []

    async def handle(message: ConsumedMessage) -> None:
        begun.append(message.body)
        await asyncio.Event().wait()

    pauses = Pauses(local_retry=0.001, send_back_timeout=600.0)
    async with consumer(
        cluster, pauses, handler=handle, consume_timeout=0.02, shutdown_timeout=0.0
    ):
        back = cluster["a"].sent_back
        await until(lambda: len(back) == 1)
        cluster["a"].store("T", 0, b"another")
        await until(lambda: len(back) == 2)  # meanwhile the first one was looked at again
        assert begun == [b"0", b"another"]
        cluster["a"].drop_connections()


@pytest.mark.parametrize("refused", [True, False])
async def test_a_message_that_is_refused_comes_again_less_and_less_often(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    """One that the broker has no more, say. A broker that is away may be back at any moment."""
    loop = asyncio.get_running_loop()
    unit = 2.0**-12
    usual = [unit, 2 * unit, 4 * unit, 8 * unit, 16 * unit, 32 * unit, 60 * unit]
    pauses: list[float] = []
    done = asyncio.Event()
    later = loop.call_later

    def noting(delay: float, callback: Any, *args: Any, **options: Any) -> asyncio.TimerHandle:
        if delay in usual:
            pauses.append(delay)
        return later(delay, callback, *args, **options)

    async def handle(message: ConsumedMessage) -> None:
        if len(pauses) < 9:
            raise ReconsumeLater
        done.set()

    monkeypatch.setattr(loop, "call_later", noting)
    if refused:
        cluster["a"].back_answer = Response(ResponseCode.NO_PERMISSION, "as the test says")
    else:
        cluster["a"].back_answer = None  # type: ignore[assignment]
    fill(cluster, 1)
    options = Pauses(
        local_retry=unit,
        longest_local_retry=60 * unit,
        send_back_timeout=5 if refused else 0.01,
    )
    async with consumer(cluster, options, handler=handle):
        async with asyncio.timeout(10):
            await done.wait()
    assert cluster["a"].offsets["G", "T", 0] == 1
    assert pauses == ([*usual, *usual[-1:] * 2] if refused else [unit] * 9)


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_handler_that_can_not_be_cancelled_does_not_keep_the_consumer(
    cluster: FakeCluster, orderly: bool
) -> None:
    """Nor the queues, and the locks, of everything else."""
    begun, end = asyncio.Event(), asyncio.Event()

    async def stubborn(message: ConsumedMessage) -> None:
        begun.set()
        while not end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await end.wait()

    fill(cluster)
    c = consumer(
        cluster,
        Pauses(cancelled_handler=0.02),
        handler=stubborn,
        orderly=orderly,
        shutdown_timeout=0.02,
    )
    await c.start()
    await begun.wait()
    closing = asyncio.create_task(c.shutdown())
    try:
        await asyncio.wait([closing], timeout=10)
        assert closing.done()
    finally:
        end.set()
        await closing
    assert cluster["a"].offsets["G", "T", 0] == 0
    assert not cluster["a"].locks
    await until(lambda: cluster["a"].connections == 0)
