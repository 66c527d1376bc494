"""Handlers that do not wait: many messages are worked on in one turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from itertools import groupby

import pytest

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.dispatch.workers import BURST
from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.observation.consume_hooks import ConsumeContext
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.serving.request import Response
from tests.client.fake_cluster import FakeCluster
from tests.client.impatient import impatient
from tests.client.waiting import until

QUEUES = [MessageQueue("T", broker, number) for broker in "ab" for number in range(2)]


def fill(cluster: FakeCluster, count: int, topic: str = "T") -> list[bytes]:
    """`count` messages in the first queue of broker a."""
    bodies = [b"%d" % number for number in range(count)]
    for body in bodies:
        cluster["a"].store(topic, 0, body, f"UNIQ_KEY\x01id{body.decode()}\x02")
    return bodies


def consumer(cluster: FakeCluster, pauses: Pauses | None = None, **options: object) -> PushConsumer:
    return impatient(PushConsumer, pauses)("G", namesrv=cluster.namesrv, start="begin", **options)  # type: ignore[arg-type]


async def test_the_event_loop_has_its_turns_in_between(cluster: FakeCluster) -> None:
    bodies = fill(cluster, 10 * BURST)
    seen: list[bytes] = []
    turns: list[int] = []
    c = consumer(cluster)
    loop = asyncio.get_running_loop()

    def tick() -> None:
        turns.append(len(seen))
        if len(seen) < len(bodies):
            loop.call_soon(tick)

    @c.on("T")
    def handle(message: ConsumedMessage) -> None:
        if not seen:
            loop.call_soon(tick)
        seen.append(message.body)

    async with c:
        await until(lambda: len(seen) == len(bodies))
    assert seen == bodies
    assert max(b - a for a, b in zip([0, *turns], turns, strict=False)) <= BURST
    assert cluster["a"].offsets["G", "T", 0] == len(bodies)


async def test_all_queues_have_their_turns(cluster: FakeCluster) -> None:
    each = 3 * BURST
    for queue in QUEUES:
        for _ in range(each):
            cluster[queue.broker_name].store("T", queue.queue_id, b"x")
    seen: list[MessageQueue] = []
    gate = asyncio.Event()
    c = consumer(cluster, concurrency=1)

    @c.on("T")
    def handle(message: ConsumedMessage) -> Awaitable[object] | None:
        seen.append(message.queue)
        return gate.wait() if len(seen) == 1 else None

    async with c:
        # The first one waits until all others are there.
        await until(lambda: all(len(broker.held) == 2 for broker in cluster.brokers.values()))
        gate.set()
        await until(lambda: len(seen) == 4 * each)
    assert {queue: seen.count(queue) for queue in QUEUES} == dict.fromkeys(QUEUES, each)
    assert max(len(list(run)) for _, run in groupby(seen)) <= BURST


async def test_what_a_handler_does_to_its_consumer_holds_from_the_next_message_on(
    cluster: FakeCluster,
) -> None:
    fill(cluster, 20)
    seen: list[bytes] = []
    c = consumer(cluster)

    @c.on("T")
    def handle(message: ConsumedMessage) -> None:
        seen.append(message.body)
        if len(seen) == 5:
            c.pause()

    async with c:
        await until(lambda: len(seen) == 5)
        for _ in range(3):  # meanwhile it could have handed out more
            await cluster["a"].running_info(c.client_id)
        assert len(seen) == 5
        c.resume()
        await until(lambda: len(seen) == 20)
    assert seen == [b"%d" % number for number in range(20)]


async def test_a_pause_holds_for_messages_whose_second_turn_has_come(cluster: FakeCluster) -> None:
    fill(cluster, 5)
    cluster["a"].back_answer = Response(ResponseCode.SYSTEM_ERROR, "as the test says")
    again: list[bytes] = []
    c = consumer(cluster, Pauses(local_retry=0.01))

    @c.on("T")
    async def handle(message: ConsumedMessage) -> None:
        if not message.reconsume_times:
            raise ReconsumeLater
        again.append(message.body)
        c.pause()

    async with c:
        for count in range(1, 6):
            await until(lambda count=count: len(again) >= count)  # type: ignore[misc]
            # The second turns of the others are due first: timers of one loop end in their order.
            await asyncio.sleep(0.02)
            assert len(again) == count
            c.resume()
    assert sorted(again) == [b"%d" % number for number in range(5)]
    assert cluster["a"].offsets["G", "T", 0] == 5


async def test_a_hook_that_a_handler_adds_is_called_from_the_next_message_on(
    cluster: FakeCluster,
) -> None:
    bodies = fill(cluster, 20)
    seen: list[bytes] = []
    observed: list[bytes] = []
    c = consumer(cluster)

    class Hook:
        def before_consume(self, context: ConsumeContext) -> None:
            observed.extend(message.body for message in context.messages)

        def after_consume(self, context: ConsumeContext) -> None:
            pass

    @c.on("T")
    def handle(message: ConsumedMessage) -> None:
        seen.append(message.body)
        if len(seen) == 5:
            c.hooks.append(Hook())

    async with c:
        await until(lambda: len(seen) == 20)
    assert seen == bodies
    assert observed == bodies[5:]


async def test_a_failure_concerns_its_message_only(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    bodies = fill(cluster, 20)
    seen: list[bytes] = []
    c = consumer(cluster)

    @c.on("T")
    def handle(message: ConsumedMessage) -> None:
        if message.body == b"7" and not message.reconsume_times:
            raise ReconsumeLater
        if message.body == b"9":
            message.ack()
            raise RuntimeError("it is acknowledged already")
        seen.append(message.body)

    async with c:
        await until(lambda: len(seen) == 18)
        await until(lambda: len(cluster["a"].sent_back) == 1)
    assert seen == [body for body in bodies if body not in (b"7", b"9")]
    assert cluster["a"].offsets["G", "T", 0] == 20


async def test_some_messages_wait_and_others_do_not(cluster: FakeCluster) -> None:
    bodies = fill(cluster, 100)
    seen: list[bytes] = []
    gate = asyncio.Event()
    c = consumer(cluster, concurrency=4, commit_interval=0.01)

    async def later(message: ConsumedMessage) -> None:
        await gate.wait()
        seen.append(message.body)

    @c.on("T")
    def handle(message: ConsumedMessage) -> Awaitable[None] | None:
        if int(message.body) % 40 == 10:
            return later(message)
        seen.append(message.body)
        return None

    async with c:
        # Three of the four workers wait; the last one does all the rest.
        await until(lambda: len(seen) == 97)
        await until(lambda: cluster["a"].offsets.get(("G", "T", 0)) == 10)
        gate.set()
        await until(lambda: len(seen) == 100)
    assert sorted(seen) == sorted(bodies)
    assert cluster["a"].offsets["G", "T", 0] == 100
