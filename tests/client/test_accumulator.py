from __future__ import annotations

import asyncio
import contextlib
import gc
import traceback
import weakref
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pocketmq.client.errors import (
    InvalidMessage,
    NotRunning,
    RemotingClosed,
    RemotingTimeout,
    SendError,
)
from pocketmq.client.observation.send_hooks import SendContext, SendKind
from pocketmq.client.producer.accumulator import OVERHEAD, Accumulator, Posted
from pocketmq.client.producer.batch import BatchPart
from pocketmq.client.producer.outage_log import LostPosts
from pocketmq.client.producer.producer import Producer
from pocketmq.client.send_result import SendResult, SendStatus
from pocketmq.message.batch_body import iter_batch
from pocketmq.message.message import Message, MessageQueue
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.send import SendMessageResponseHeader
from pocketmq.remoting.serving.request import Request, Response
from tests.client.fake_cluster import FakeBroker, FakeCluster
from tests.client.waiting import until

QUEUE = MessageQueue("T", "a", 0)
LONG = 3600.0


class Wire:
    """Takes batches, and answers when the test says so."""

    def __init__(self) -> None:
        self.batches: list[tuple[list[bytes], MessageQueue | None]] = []
        self.answers: list[asyncio.Future[None]] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def send(self, part: BatchPart, queue: MessageQueue | None) -> list[SendResult]:
        self.batches.append(([bytes(item.body) for item in iter_batch(part.body.encode())], queue))
        answer = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        ids = list(part.msg_ids)
        await answer
        return [
            SendResult(SendStatus.SEND_OK, msg_id, "", QUEUE, offset)
            for offset, msg_id in enumerate(ids)
        ]

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def answer(self, index: int, error: Exception | None = None) -> None:
        if error is None:
            self.answers[index].set_result(None)
        else:
            self.answers[index].set_exception(error)

    def asked(self, queue: MessageQueue) -> int:
        """How many batches have left for a queue."""
        return sum(each == queue for _, each in self.batches)

    def last(self, queue: MessageQueue) -> int:
        """The number of the last one of these."""
        return max(n for n, (_, each) in enumerate(self.batches) if each == queue)

    def accumulator(
        self, *, linger: float = LONG, max_bytes: int = 1 << 20, max_buffered: int = 1 << 20
    ) -> Accumulator:
        return Accumulator(
            self.send,
            self.spawn,
            LostPosts("PG"),
            linger=linger,
            max_bytes=max_bytes,
            max_buffered=max_buffered,
        )


async def linger_is_over(accumulator: Accumulator, wire: Wire) -> None:
    """Return when what was added before has lingered for its time: a later message of another
    queue has left, and has its answer."""
    other = MessageQueue("T", "clock", len(wire.batches))
    add(accumulator, b"tick", queue=other)
    await until(lambda: wire.asked(other))
    wire.answer(wire.last(other))


@pytest.fixture
def wire() -> Wire:
    return Wire()


def add(
    accumulator: Accumulator, *bodies: bytes, queue: MessageQueue | None = None
) -> list[Posted]:
    return [accumulator.add(Message("T", body), queue) for body in bodies]


async def test_a_batch_leaves_when_its_time_has_come(wire: Wire) -> None:
    accumulator = wire.accumulator(linger=0.01)
    posted = add(accumulator, b"1", b"2")
    assert not wire.batches
    await until(lambda: wire.answers)
    wire.answer(0)
    results = [await each for each in posted]
    assert wire.batches == [([b"1", b"2"], None)]
    assert [result.queue_offset for result in results] == [0, 1]
    assert [result.msg_id for result in results] == [each.msg_id for each in posted]
    assert accumulator.buffered == 0
    # Awaiting again gives the same.
    assert await posted[0] == results[0]


async def test_a_batch_leaves_when_it_is_full(wire: Wire) -> None:
    accumulator = wire.accumulator(max_bytes=500)
    posted = add(accumulator, *[b"x" * 100] * 7)
    await until(lambda: len(wire.answers) == 2)
    assert [len(bodies) for bodies, _ in wire.batches] == [3, 3]
    flushing = asyncio.create_task(accumulator.flush())
    await until(lambda: len(wire.answers) == 3)
    assert not flushing.done()
    for index in range(3):
        wire.answer(index)
    await flushing
    assert all(each.done() for each in posted)


async def test_topics_queues_and_wait_flags_do_not_share_a_batch(wire: Wire) -> None:
    accumulator = wire.accumulator()
    accumulator.add(Message("T", b"t"), None)
    accumulator.add(Message("U", b"u"), None)
    accumulator.add(Message("T", b"q"), QUEUE)
    accumulator.add(Message("T", b"w", wait_stored=False), None)
    flushing = asyncio.create_task(accumulator.flush())
    await until(lambda: len(wire.answers) == 4)
    assert sorted(wire.batches) == [([b"q"], QUEUE), ([b"t"], None), ([b"u"], None), ([b"w"], None)]
    for index in range(4):
        wire.answer(index)
    await flushing


async def test_batches_of_one_queue_follow_one_another(wire: Wire) -> None:
    accumulator = wire.accumulator(linger=0.001, max_bytes=200)
    add(accumulator, *[b"x" * 90] * 3, queue=QUEUE)
    await until(lambda: wire.answers)
    last = add(accumulator, b"last", queue=QUEUE)[0]
    for index in range(3):

        def asked(count: int = index + 1) -> bool:
            return wire.asked(QUEUE) == count

        await until(asked)
        await linger_is_over(accumulator, wire)
        assert wire.asked(QUEUE) == index + 1
        wire.answer(wire.last(QUEUE))
    await until(lambda: wire.asked(QUEUE) == 4)
    wire.answer(wire.last(QUEUE))
    assert (await last).queue_offset == 0
    assert [len(bodies) for bodies, queue in wire.batches if queue == QUEUE] == [1, 1, 1, 1]


async def test_while_a_queue_is_busy_its_next_batch_grows_beyond_its_time(wire: Wire) -> None:
    accumulator = wire.accumulator(linger=0.0)
    add(accumulator, b"0", queue=QUEUE)
    await until(lambda: wire.answers)
    for body in (b"1", b"2", b"3"):
        add(accumulator, body, queue=QUEUE)
        await linger_is_over(accumulator, wire)
    wire.answer(0)
    await until(lambda: wire.asked(QUEUE) == 2)
    assert wire.batches[-1] == ([b"1", b"2", b"3"], QUEUE)
    wire.answer(wire.last(QUEUE))
    await accumulator.flush()


async def test_a_failed_batch_fails_its_messages_and_no_others(wire: Wire) -> None:
    accumulator = wire.accumulator(max_bytes=40)
    first, second = add(accumulator, b"x" * 100, b"y" * 100, queue=QUEUE)
    await until(lambda: wire.answers)
    wire.answer(0, RemotingTimeout("no answer"))
    await until(lambda: len(wire.answers) == 2)
    wire.answer(1)
    with pytest.raises(RemotingTimeout):
        await first
    assert (await second).status is SendStatus.SEND_OK
    assert accumulator.buffered == 0


async def test_a_failure_keeps_nothing_of_those_who_waited_for_it(wire: Wire) -> None:
    class Kept:
        """Something that an application has while it waits."""

    accumulator = wire.accumulator(linger=0.0)
    alive: list[weakref.ref[Kept]] = []

    async def wait() -> None:
        kept = Kept()
        alive.append(weakref.ref(kept))
        [posted] = add(accumulator, b"x")
        with contextlib.suppress(RemotingTimeout):
            await posted

    waiting = asyncio.gather(wait(), wait())
    await until(lambda: wire.answers)
    wire.answer(0, RemotingTimeout("no answer"))
    await waiting
    del waiting
    wire.answers.clear()
    gc.collect()
    assert [each() for each in alive] == [None, None]


async def test_who_stops_waiting_stops_nobody_else(wire: Wire) -> None:
    accumulator = wire.accumulator(linger=0.0)
    [posted] = add(accumulator, b"x")

    async def wait() -> SendResult:
        return await posted

    impatient, patient = asyncio.create_task(wait()), asyncio.create_task(wait())
    await until(lambda: wire.answers)
    impatient.cancel()
    wire.answer(0)
    assert (await patient).status is SendStatus.SEND_OK
    with pytest.raises(asyncio.CancelledError):
        await impatient


async def test_what_is_not_answered_is_bounded(wire: Wire) -> None:
    accumulator = wire.accumulator(linger=0.0, max_buffered=2 * (OVERHEAD + 1000))
    posted: list[int] = []

    async def post(number: int) -> None:
        if accumulator.full:
            await accumulator.room()
        accumulator.add(Message("T", b"x" * 1000), None)
        posted.append(number)

    tasks = [asyncio.create_task(post(number)) for number in range(6)]
    await until(lambda: wire.answers)
    assert posted == [0, 1]
    tasks[2].cancel()
    wire.answer(0)
    await until(lambda: len(wire.answers) == 2)
    assert posted == [0, 1, 3, 4]
    wire.answer(1)
    await until(lambda: len(wire.answers) == 3)
    wire.answer(2)
    await accumulator.flush()
    assert posted == [0, 1, 3, 4, 5]
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_end_fails_what_has_not_left(wire: Wire) -> None:
    accumulator = wire.accumulator(max_buffered=1)
    [posted] = add(accumulator, b"x")
    waiting = asyncio.create_task(accumulator.room())
    await asyncio.sleep(0)
    accumulator.abandon()
    with pytest.raises(RemotingClosed):
        await posted
    with pytest.raises(NotRunning):
        await waiting


async def test_a_producer_that_lingers(cluster: FakeCluster) -> None:
    async with Producer("PG", namesrv=cluster.namesrv, linger_ms=5) as p:
        results = await asyncio.gather(*(p.send(Message("T", b"%d" % i)) for i in range(100)))
    seen = sum((broker.seen for broker in cluster.brokers.values()), cluster["a"].seen.__class__())
    assert seen[RequestCode.SEND_BATCH_MESSAGE] == 1
    assert seen[RequestCode.SEND_MESSAGE_V2] == 0
    for i, result in enumerate(results):
        record = cluster[result.queue.broker_name].records["T", result.queue.queue_id]
        assert b"%d" % i in record[result.queue_offset]
        assert result.msg_id.encode() in record[result.queue_offset]


async def test_posting_by_key_keeps_the_order(cluster: FakeCluster) -> None:
    hooked: list[SendContext] = []

    class Hook:
        def before_send(self, context: SendContext) -> None:
            assert context.kind is SendKind.LINGERED

        def after_send(self, context: SendContext) -> None:
            hooked.append(context)

    async with Producer("PG", namesrv=cluster.namesrv, batch_bytes=500, hooks=[Hook()]) as p:
        posted = [await p.post(Message("T", b"%d" % i), key=f"k{i % 3}") for i in range(60)]
        results = [await each for each in posted]
    for key in range(3):
        mine = results[key::3]
        assert len({result.queue for result in mine}) == 1
        offsets = [result.queue_offset for result in mine]
        assert offsets == sorted(set(offsets))
    assert {context.results[0] for context in hooked} == set(results)


async def test_what_no_batch_may_hold_goes_by_itself(cluster: FakeCluster) -> None:
    cluster.put("%RETRY%G", "a")
    async with Producer("PG", namesrv=cluster.namesrv, linger_ms=LONG * 1000) as p:
        await p.send(Message("T", b"x", delay_level=3))
        await p.send(Message("T", b"x", properties={"TIMER_DELAY_SEC": "1"}))
        await p.send(Message("T", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}))
        await p.send(Message("%RETRY%G", b"x"))
        await p.send(Message("T", b"x"), timeout=1.0)
    headers = [header for broker in cluster.brokers.values() for header in broker.sent]
    assert [header.batch for header in headers] == [False] * 5


def requests_of(cluster: FakeCluster) -> dict[int, int]:
    """How many sends the brokers saw, by request code."""
    codes = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
    brokers = cluster.brokers.values()
    return {code: sum(broker.seen[code] for broker in brokers) for code in codes}


async def test_sends_of_one_moment_share_a_request(cluster: FakeCluster) -> None:
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        results = await asyncio.gather(*(p.send(Message("T", b"<%d>" % i)) for i in range(100)))
        assert requests_of(cluster) == {
            RequestCode.SEND_MESSAGE_V2: 1,  # the first has no company yet
            RequestCode.SEND_BATCH_MESSAGE: 1,
        }
        for _ in range(3):
            await p.send(Message("T", b"alone"))
    assert requests_of(cluster)[RequestCode.SEND_MESSAGE_V2] == 4
    assert len({result.msg_id for result in results}) == 100
    for i, result in enumerate(results):
        record = cluster[result.queue.broker_name].records["T", result.queue.queue_id]
        assert b"<%d>" % i in record[result.queue_offset]
        assert result.msg_id.encode() in record[result.queue_offset]


async def test_a_send_that_finds_no_company_is_an_ordinary_one(cluster: FakeCluster) -> None:
    cluster.put("slow", "b")
    cluster.put("T", "a")
    cluster["b"].mode = "hang"
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        hanging = asyncio.create_task(p.send(Message("slow", b"x")))
        await cluster["b"].arrived.wait()
        message = Message("T", b"x", tags="t", keys=["k"], flag=7, wait_stored=False)
        result = await p.send(message)
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
    (header,) = cluster["a"].sent
    assert not header.batch
    assert header.flag == 7
    assert (
        header.properties
        == f"UNIQ_KEY\x01{result.msg_id}\x02TAGS\x01t\x02KEYS\x01k\x02WAIT\x01false\x02"
    )


@pytest.mark.parametrize(
    ("message", "options"),
    [
        (Message("T", bytes(4096)), {}),
        (Message("T", b"x", delay_level=1), {}),
        (Message("T", b"x", properties={"TIMER_DELAY_MS": "5"}), {}),
        (Message("T", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}), {}),
        (Message("T", b"x"), {"timeout": 3.0}),
        (Message("T", b"x"), {"timeout": 3.0, "key": "k"}),
        (Message("T", bytes(4096)), {"key": "k"}),
        (Message("T", b"x", delay_level=1), {"key": "k"}),
    ],
    ids=[
        "large",
        "delay",
        "timer",
        "dispatch",
        "timeout",
        "key and timeout",
        "large by key",
        "delay by key",
    ],
)
async def test_sends_that_share_no_request(
    cluster: FakeCluster, message: Message, options: dict[str, Any]
) -> None:
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        await asyncio.gather(*(p.send(message, **options) for _ in range(5)))
    assert requests_of(cluster)[RequestCode.SEND_MESSAGE_V2] == 5


async def test_sends_with_keys_share_a_request_for_each_queue(cluster: FakeCluster) -> None:
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        queues = await p.queues("T")
        results = await asyncio.gather(
            *(p.send(Message("T", b"<%d>" % i), key=i % 16) for i in range(100)),
            *(p.send(Message("T", b"<%d>" % i), queue=queues[0]) for i in range(100, 120)),
        )
        assert requests_of(cluster) == {
            RequestCode.SEND_MESSAGE_V2: 1,  # the first has no company yet
            RequestCode.SEND_BATCH_MESSAGE: len(queues),
        }
    stored: dict[MessageQueue, list[int]] = {}
    for i, result in enumerate(results):
        record = cluster[result.queue.broker_name].records["T", result.queue.queue_id]
        assert b"<%d>" % i in record[result.queue_offset]
        assert result.msg_id.encode() in record[result.queue_offset]
        assert result.queue == (queues[i % 16 % len(queues)] if i < 100 else queues[0])
        stored.setdefault(result.queue, []).append(result.queue_offset)
    assert all(offsets == list(range(len(offsets))) for offsets in stored.values()), "in order"


async def test_a_send_by_key_waits_for_no_answer_to_another(cluster: FakeCluster) -> None:
    """Only posted messages of a queue follow one another."""
    async with Producer("PG", namesrv=cluster.namesrv, retries=0) as p:
        await p.send(Message("T", b"first"), key=0)
        broker = cluster[(await p.queues("T"))[0].broker_name]
        broker.mode = "hang"
        before = sum(broker.seen.values())
        first = [asyncio.create_task(p.send(Message("T", b"x"), key=0)) for _ in range(3)]
        await until(lambda: sum(broker.seen.values()) == before + 2)
        second = [asyncio.create_task(p.send(Message("T", b"x"), key=0)) for _ in range(3)]
        await until(lambda: sum(broker.seen.values()) == before + 3)
        for task in first + second:
            task.cancel()
        await asyncio.wait(first + second)
        assert p.in_flight == 0


@pytest.mark.parametrize("options", [{}, {"key": "k"}], ids=["any queue", "by key"])
async def test_sends_with_hooks_share_a_request_and_each_has_its_own_calls(
    cluster: FakeCluster, options: dict[str, Any]
) -> None:
    class Hook:
        def __init__(self) -> None:
            self.before: list[SendContext] = []
            self.after: list[SendContext] = []

        async def before_send(self, context: SendContext) -> None:
            await asyncio.sleep(0)
            self.before.append(context)
            [message] = context.messages
            context.messages = [replace(message, properties={"of": message.body.decode()})]

        def after_send(self, context: SendContext) -> None:
            self.after.append(context)

    hook = Hook()
    async with Producer("PG", namesrv=cluster.namesrv, hooks=[hook]) as p:
        sends = [p.send(Message("T", b"<%d>" % i), **options) for i in range(50)]
        sends.append(p.send(Message("T", b""), **options))
        *results, error = await asyncio.gather(*sends, return_exceptions=True)
        assert requests_of(cluster)[RequestCode.SEND_BATCH_MESSAGE] == 1
        assert sum(requests_of(cluster).values()) <= 2
    assert isinstance(error, InvalidMessage)
    assert len(hook.before) == len(hook.after) == 51
    assert {id(context) for context in hook.before} == {id(context) for context in hook.after}
    outcomes = {context.messages[0].body: context for context in hook.after}
    assert outcomes[b""].error is error
    assert outcomes[b""].results == [None]
    for i, result in enumerate(results):
        assert isinstance(result, SendResult)
        context = outcomes[b"<%d>" % i]
        assert context.kind is SendKind.SINGLE
        assert context.results == [result]
        assert context.error is None
        record = cluster[result.queue.broker_name].records["T", result.queue.queue_id]
        assert b"of\x01<%d>" % i in record[result.queue_offset]


async def test_a_refused_batch_of_sends_with_hooks_fails_each_of_them(cluster: FakeCluster) -> None:
    ended: list[SendContext] = []

    class Hook:
        def after_send(self, context: SendContext) -> None:
            ended.append(context)

    for broker in cluster.brokers.values():
        broker.mode = ResponseCode.NO_PERMISSION
    async with Producer("PG", namesrv=cluster.namesrv, hooks=[Hook()]) as p:
        errors = await asyncio.gather(
            *(p.send(Message("T", b"x"), key=i) for i in range(20)), return_exceptions=True
        )
    assert all(isinstance(error, SendError) for error in errors)
    assert {id(context.error) for context in ended} == {id(error) for error in errors}
    assert len({id(error) for error in errors}) == 20, "each has an error of its own"


async def test_who_stops_waiting_for_a_shared_send_ends_its_hooks(cluster: FakeCluster) -> None:
    ended: list[BaseException | None] = []

    class Hook:
        def after_send(self, context: SendContext) -> None:
            ended.append(context.error)

    async with Producer("PG", namesrv=cluster.namesrv, hooks=[Hook()]) as p:
        tasks = [asyncio.create_task(p.send(Message("T", b"x"), key=1)) for _ in range(5)]
        await asyncio.sleep(0)
        tasks[2].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(done.pop(2), asyncio.CancelledError)
        assert all(isinstance(result, SendResult) for result in done)
        assert p.in_flight == 0
    assert ended.count(None) == 4
    assert sum(isinstance(error, asyncio.CancelledError) for error in ended) == 1


async def test_sends_of_a_namespace_share_a_request(cluster: FakeCluster) -> None:
    cluster.put("ns%orders", "a")
    async with Producer("PG", namesrv=cluster.namesrv, namespace="ns") as p:
        results = await asyncio.gather(
            *(p.send(Message("orders", b"<%d>" % i), key=i) for i in range(40))
        )
    assert requests_of(cluster)[RequestCode.SEND_MESSAGE_V2] <= 1
    for i, result in enumerate(results):
        assert result.queue.topic == "orders"
        record = cluster["a"].records["ns%orders", result.queue.queue_id][result.queue_offset]
        assert b"<%d>" % i in record


async def test_sharing_requests_can_be_off(cluster: FakeCluster) -> None:
    async with Producer("PG", namesrv=cluster.namesrv, accumulate=False) as p:
        await asyncio.gather(*(p.send(Message("T", b"x")) for _ in range(5)))
    assert requests_of(cluster)[RequestCode.SEND_MESSAGE_V2] == 5


@pytest.mark.parametrize("options", [{}, {"key": "k"}], ids=["any queue", "by key"])
@pytest.mark.parametrize("code", [ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SYSTEM_ERROR])
async def test_what_is_too_large_together_goes_by_itself(
    monkeypatch: pytest.MonkeyPatch, code: ResponseCode, options: dict[str, Any]
) -> None:
    """A broker may take each of the messages, and not all of them in one batch."""
    refused = 0
    send = FakeBroker.send

    def refuse(broker: FakeBroker, request: Request[Any]) -> Response | None:
        nonlocal refused
        if len(request.body) <= 20_000:
            return send(broker, request)
        refused += 1
        return Response(code, "too large", SendMessageResponseHeader())

    monkeypatch.setattr(FakeBroker, "send", refuse)
    cluster = FakeCluster("a")
    await cluster.start()
    cluster.put("T", "a")
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        for _ in range(5):
            before = refused
            results = await asyncio.gather(
                *(p.send(Message("T", b"<%d>" % i + bytes(3000)), **options) for i in range(30))
            )
            assert len({result.msg_id for result in results}) == 30
            for i, result in enumerate(results):
                record = cluster["a"].records["T", result.queue.queue_id][result.queue_offset]
                assert b"<%d>" % i in record
                assert result.msg_id.encode() in record
        assert 0 < refused == before, "batches become small enough"
        cluster["a"].mode = code
        errors = await asyncio.gather(
            *(p.send(Message("T", b"x")) for _ in range(3)), return_exceptions=True
        )
    await cluster.stop()
    assert all(isinstance(error, SendError) for error in errors)


async def test_an_error_that_many_get_tells_the_way_to_one_of_them(cluster: FakeCluster) -> None:
    for broker in cluster.brokers.values():
        broker.mode = ResponseCode.NO_PERMISSION
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        *_, error = await asyncio.gather(
            *(p.send(Message("T", b"x")) for _ in range(50)), return_exceptions=True
        )
    assert isinstance(error, SendError)
    assert len(traceback.extract_tb(error.__traceback__)) < 10


async def test_who_stops_waiting_takes_no_other_send_along(cluster: FakeCluster) -> None:
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        tasks = [asyncio.create_task(p.send(Message("T", b"x"))) for _ in range(5)]
        await asyncio.sleep(0)
        tasks[2].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(done.pop(2), asyncio.CancelledError)
        assert all(isinstance(result, SendResult) for result in done)
        assert p.in_flight == 0


async def test_shutdown_sends_what_lingers(cluster: FakeCluster) -> None:
    async with Producer("PG", namesrv=cluster.namesrv, linger_ms=LONG * 1000) as p:
        posted = await p.post(Message("T", b"x"))
        with pytest.raises(InvalidMessage):
            await p.post(Message("T", b""))
        delayed = await p.post(Message("T", b"x", delay_level=1))
    assert (await delayed).status is SendStatus.SEND_OK
    assert (await posted).status is SendStatus.SEND_OK
    with pytest.raises(NotRunning):
        await p.post(Message("T", b"x"))


async def test_shutdown_gives_up_what_hangs(cluster: FakeCluster) -> None:
    for broker in cluster.brokers.values():
        broker.mode = "hang"
    p = Producer("PG", namesrv=cluster.namesrv, timeout=30.0)
    await p.start()
    await p.queues("T")  # the route is known, however slow this machine is
    posted = await p.post(Message("T", b"x"))
    p.timeout = 0.05
    await p.shutdown()
    with pytest.raises((SendError, RemotingClosed)):
        await posted


@pytest.mark.parametrize("delay", [0, 1])
async def test_who_stops_waiting_does_not_stop_what_was_posted(
    cluster: FakeCluster, delay: int
) -> None:
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        posted = await p.post(Message("T", b"x", delay_level=delay))

        async def wait() -> SendResult:
            return await posted

        hasty, patient = asyncio.create_task(wait()), asyncio.create_task(wait())
        await asyncio.sleep(0)
        assert not posted.done()  # type: ignore[attr-defined]
        hasty.cancel()
        await asyncio.wait((hasty, patient))
        assert hasty.cancelled()
        assert not patient.cancelled()
        assert patient.result().status is SendStatus.SEND_OK
        assert posted.done()  # type: ignore[attr-defined]
        assert await posted == patient.result()


async def test_what_goes_by_itself_fails_like_a_batch_at_a_shutdown(cluster: FakeCluster) -> None:
    for broker in cluster.brokers.values():
        broker.mode = "hang"
    p = Producer("PG", namesrv=cluster.namesrv, timeout=30.0)
    await p.start()
    await p.queues("T")  # the route, which a busy machine may not have in the timeout below
    posted = await p.post(Message("T", b"x", delay_level=1))
    p.timeout = 0.05
    await p.shutdown()
    for _ in range(2):
        with pytest.raises((SendError, RemotingClosed)):
            await posted


async def test_nobody_has_to_wait_for_what_fails(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    for broker in cluster.brokers.values():
        broker.mode = ResponseCode.NO_PERMISSION
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        await p.post(Message("T", b"x", delay_level=1))
        await p.flush()
        lengths = set()
        for _ in range(3):
            posted = await p.post(Message("T", b"x", delay_level=1))
            await p.flush()
            for _ in range(3):
                with pytest.raises(SendError) as error:
                    await posted
                lengths.add(len(traceback.extract_tb(error.tb)))
        assert len(lengths) == 1, "no wait adds its way to the error"
    gc.collect()
    told = [(r.levelname, r.message) for r in caplog.records if "posted message" in r.message]
    assert [level for level, _ in told] == ["WARNING"] * 2
    assert "topic T: 1 posted message was not stored, and nobody waits" in told[0][1]
    assert "topic T: 4 posted messages were not stored in the" in told[1][1]
    assert "never retrieved" not in caplog.text


async def test_a_flush_waits_for_what_was_posted_before_it(cluster: FakeCluster) -> None:
    async with Producer("PG", namesrv=cluster.namesrv, linger_ms=LONG * 1000) as p:
        before = [await p.post(Message("T", b"x")), await p.post(Message("T", b"x", delay=0.001))]
        flushing = asyncio.create_task(p.flush())
        await asyncio.sleep(0)
        after = await p.post(Message("T", b"x"))
        await flushing
        assert all(each.done() for each in before)  # type: ignore[attr-defined]
        assert not after.done()  # type: ignore[attr-defined]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 300)), max_size=60),
    st.integers(50, 600),
    st.sets(st.integers(0, 20)),
    st.booleans(),
)
@settings(max_examples=50, deadline=None)
async def test_order_holds_whatever_is_full_when(
    posts: list[tuple[int, int]], max_bytes: int, failing: set[int], hurry: bool
) -> None:
    """Messages of 4 queues (0: whichever) of some sizes; some batches fail, all are answered."""
    wire = Wire()
    accumulator = wire.accumulator(linger=0.0 if hurry else LONG, max_bytes=max_bytes)
    posted: list[tuple[int, bytes, Posted]] = []
    for number, (queue_id, size) in enumerate(posts):
        body = b"%d" % number + b"x" * size
        queue = MessageQueue("T", "a", queue_id) if queue_id else None
        posted.append((queue_id, body, accumulator.add(Message("T", body), queue)))
        if hurry and number % 3 == 0:
            await asyncio.sleep(0)
    flushing = asyncio.create_task(accumulator.flush())
    answered = 0
    while not flushing.done():
        await asyncio.sleep(0)
        busy = [queue for _, queue in wire.batches[answered:] if queue is not None]
        assert len(busy) == len(set(busy)), "two batches of one queue are on their way"
        if answered < len(wire.answers):
            error = RemotingTimeout("no answer") if answered in failing else None
            wire.answer(answered, error)
            answered += 1
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    await flushing
    assert accumulator.buffered == 0
    sent: dict[int, list[bytes]] = {}
    for bodies, queue in wire.batches:
        sent.setdefault(queue.queue_id if queue is not None else 0, []).extend(bodies)
    for queue_id in range(1, 4):
        assert sent.get(queue_id, []) == [body for q, body, _ in posted if q == queue_id]
    assert sorted(sent.get(0, [])) == sorted(body for q, body, _ in posted if q == 0)
    failed = {
        body
        for index, (bodies, _) in enumerate(wire.batches)
        if index in failing
        for body in bodies
    }
    for _, body, each in posted:
        assert each.done()
        assert (each.error is not None) == (body in failed)
        assert (each.result is None) == (body in failed)
