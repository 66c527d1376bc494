"""Handlers that get several messages at once."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.observation.consume_hooks import ConsumeContext
from pocketmq.client.observation.trace_record import ConsumeReturn
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.client import ConsumeMessageDirectlyResultRequestHeader
from pocketmq.remoting.headers.offset import UpdateConsumerOffsetRequestHeader
from pocketmq.remoting.serving.request import Request, Response
from tests.client.fake_cluster import FakeCluster
from tests.client.waiting import until


def consumer(cluster: FakeCluster, **options: Any) -> PushConsumer:
    return PushConsumer("G", namesrv=cluster.namesrv, **({"start": "begin"} | options))


def fill(cluster: FakeCluster, count: int, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    """So many messages in one queue of broker "a"."""
    bodies = [b"%d" % number for number in range(count)]
    for body in bodies:
        cluster["a"].store(topic, queue_id, body, f"UNIQ_KEY\x01id{body.decode()}\x02")
    return bodies


def stored(cluster: FakeCluster, queue_id: int = 0) -> int | None:
    return cluster["a"].offsets.get(("G", "T", queue_id))


@pytest.mark.parametrize("orderly", [False, True])
async def test_lists_are_of_one_queue_in_its_order(cluster: FakeCluster, orderly: bool) -> None:
    fill(cluster, 20)
    fill(cluster, 3, queue_id=1)
    c = consumer(cluster, orderly=orderly, concurrency=1)
    calls: list[list[ConsumedMessage]] = []

    @c.on("T", max_batch=8)
    async def handle(messages: list[ConsumedMessage]) -> None:
        calls.append(list(messages))
        await asyncio.sleep(0)
        messages.clear()  # it is the handler's own

    async with c:
        await until(lambda: sum(map(len, calls)) == 23)
    assert max(map(len, calls)) == 8
    for queue_id, count in ((0, 20), (1, 3)):
        of_queue = [call for call in calls if call[0].queue.queue_id == queue_id]
        assert [m.queue_offset for call in of_queue for m in call] == list(range(count))
    assert all(len({message.queue for message in call}) == 1 for call in calls)
    assert (stored(cluster), stored(cluster, 1)) == (20, 3)


async def test_a_part_is_acknowledged(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 8)
    c = consumer(cluster)

    @c.on("T", max_batch=8)
    async def handle(messages: list[ConsumedMessage]) -> None:
        # The reference's ackIndex is 4 here; and two are given back at another time.
        for message in messages[:5]:
            message.ack()
        await messages[5].reconsume(7)
        raise RuntimeError("half way")

    async with c:
        await until(lambda: len(cluster["a"].sent_back) == 3)
    back = {header.origin_msg_id: header.delay_level for header in cluster["a"].sent_back}
    assert back == {"id5": 7, "id6": 0, "id7": 0}
    assert stored(cluster) == 8
    # One traceback for all.
    assert len([record for record in caplog.records if record.exc_info]) == 1


async def test_a_part_is_given_back(cluster: FakeCluster) -> None:
    fill(cluster, 4)
    c = consumer(cluster, commit_interval=0.01)

    @c.on("T", max_batch=4)
    async def handle(messages: list[ConsumedMessage]) -> None:
        await messages[2].reconsume(3)

    async with c:
        await until(lambda: stored(cluster) == 4)
    assert [header.origin_msg_id for header in cluster["a"].sent_back] == ["id2"]
    assert stored(cluster) == 4


async def test_the_delay_level_is_for_all(cluster: FakeCluster) -> None:
    fill(cluster, 3)
    c = consumer(cluster)

    @c.on("T", max_batch=3)
    def handle(messages: list[ConsumedMessage]) -> None:
        raise ReconsumeLater("later", delay_level=4)

    async with c:
        await until(lambda: len(cluster["a"].sent_back) == 3)
    assert {header.delay_level for header in cluster["a"].sent_back} == {4}


async def test_the_offset_stays_before_what_is_not_done(cluster: FakeCluster) -> None:
    fill(cluster, 6)
    cluster["a"].back_answer = Response(ResponseCode.SYSTEM_ERROR, "no")
    c = consumer(cluster)
    worked = asyncio.Event()

    @c.on("T", max_batch=6)
    async def handle(messages: list[ConsumedMessage]) -> None:
        for number in (0, 1, 4):
            messages[number].ack()
        worked.set()
        raise ReconsumeLater

    async with c:
        await worked.wait()
        await until(lambda: len(cluster["a"].sent_back) == 3)
    assert stored(cluster) == 2


async def test_orderly_what_is_not_acknowledged_comes_again_in_order(cluster: FakeCluster) -> None:
    fill(cluster, 8)
    c = consumer(cluster, orderly=True, suspend_current_queue=0.01, commit_interval=0.01)
    calls: list[list[tuple[int, int]]] = []

    @c.on("T", max_batch=4)
    async def handle(messages: list[ConsumedMessage]) -> None:
        calls.append([(m.queue_offset, m.reconsume_times) for m in messages])
        if len(calls) == 1:
            messages[0].ack()
            messages[2].ack()  # out of order, so that a hole is left
            # While it works nothing of the queue may be handed out.
            await until(lambda: stored(cluster) == 1)
            raise ReconsumeLater
        if len(calls) == 2:
            await messages[1].reconsume()
            await messages[0].reconsume()

    async with c:
        await until(lambda: stored(cluster) == 8)
    assert calls[0] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert calls[1] == [(1, 1), (3, 1), (4, 0), (5, 0)]
    assert calls[2] == [(1, 2), (3, 2), (6, 0), (7, 0)]
    assert stored(cluster) == 8


async def test_orderly_dead_letters_leave_the_others(cluster: FakeCluster) -> None:
    fill(cluster, 3)
    c = consumer(
        cluster, orderly=True, suspend_current_queue=0.001, max_reconsume_times=1,
        commit_interval=0.01,
    )  # fmt: skip
    calls: list[list[int]] = []

    @c.on("T", max_batch=3)
    async def handle(messages: list[ConsumedMessage]) -> None:
        calls.append([m.queue_offset for m in messages])
        for message in messages:
            if message.queue_offset != 1:
                message.ack()
        if 1 in calls[-1]:
            raise ReconsumeLater

    async with c:
        await until(lambda: stored(cluster) == 3)
    assert calls == [[0, 1, 2], [1]]
    (dead,) = cluster["a"].sent
    assert dead.topic == "%RETRY%G"
    assert "UNIQ_KEY\x01id1\x02" in dead.properties


async def test_retries_are_grouped_by_topic(cluster: FakeCluster) -> None:
    cluster.put("U")
    cluster.put("%RETRY%G", "a", queues=1)
    for topic in ("T", "T", "U", "T"):
        cluster["a"].store("%RETRY%G", 0, topic.encode(), f"RETRY_TOPIC\x01{topic}\x02")
    c = consumer(cluster, concurrency=1)
    calls: list[tuple[str, int]] = []
    for topic in "TU":
        c.on(topic, max_batch=10)(lambda messages: calls.append((messages[0].topic, len(messages))))
    async with c:
        await until(lambda: len(calls) == 3)
    assert calls == [("T", 2), ("U", 1), ("T", 1)]


async def test_a_batch_that_takes_too_long_comes_again_as_a_whole(cluster: FakeCluster) -> None:
    fill(cluster, 3)
    c = consumer(cluster, consume_timeout=0.05)
    contexts: list[ConsumeContext] = []

    class Hook:
        def before_consume(self, context: ConsumeContext) -> None:
            pass

        def after_consume(self, context: ConsumeContext) -> None:
            contexts.append(context)

    c.hooks.append(Hook())

    @c.on("T", max_batch=3)
    async def handle(messages: list[ConsumedMessage]) -> None:
        messages[0].ack()
        await asyncio.Event().wait()

    async with c:
        await until(lambda: len(cluster["a"].sent_back) == 2)
    assert {(h.origin_msg_id, h.delay_level) for h in cluster["a"].sent_back} == {
        ("id1", 0), ("id2", 0),
    }  # fmt: skip
    [context] = contexts
    assert (len(context.messages), context.returned) == (3, ConsumeReturn.TIME_OUT)


async def test_subscribing_while_running_and_wrong_numbers(cluster: FakeCluster) -> None:
    c = consumer(cluster)
    for wrong in (0, 1025):
        with pytest.raises(ValueError, match=f"not {wrong}"):
            c.on("T", max_batch=wrong)(lambda messages: None)
    sizes: list[int] = []
    cluster.put("U")
    c.on("U")(lambda message: None)
    async with c:
        fill(cluster, 5)
        with pytest.raises(ValueError, match="needs a handler"):
            await c.subscribe("T", max_batch=3)
        await c.subscribe("T", max_batch=3, handler=lambda messages: sizes.append(len(messages)))
        await until(lambda: sum(sizes) == 5)
    assert max(sizes) <= 3


async def test_a_message_that_is_worked_on_directly_is_a_list_of_one(cluster: FakeCluster) -> None:
    sizes: list[int] = []
    c = consumer(cluster)
    c.on("T", max_batch=3)(lambda messages: sizes.append(len(messages)))
    async with c:
        await until(lambda: cluster["a"].clients)
        fill(cluster, 1, topic="other")
        cluster["a"].store("T", 1, b"x")
        await until(lambda: sizes)
        await cluster["a"].ask_client(
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            ConsumeMessageDirectlyResultRequestHeader(
                consumer_group="G", client_id=c.client_id, broker_name="a"
            ),
            cluster["a"].records["T", 1][0],
        )
    assert sizes == [1, 1]


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_a_handler_does_order_and_offsets_hold(
    cluster: FakeCluster, seed: int
) -> None:
    """Orderly: a message comes before its successor is handed out for the first time, unless it is
    done; and the offset that could be stored never passes what is not done."""
    dice = random.Random(seed)
    count = 60
    fill(cluster, count)
    c = consumer(cluster, orderly=True, suspend_current_queue=0.0005, commit_interval=0.001)
    done: set[int] = set()
    seen: list[int] = []
    problems: list[str] = []  # what a handler raises would only have messages come again

    def check(holds: bool, what: str) -> None:
        if not holds:
            problems.append(what)

    update_offset = cluster["a"].update_offset

    def checked(request: Request[UpdateConsumerOffsetRequestHeader]) -> Response | None:
        header = request.header
        if (header.topic, header.queue_id) == ("T", 0):
            assert header.commit_offset is not None
            check(set(range(header.commit_offset)) <= done, f"stored {header.commit_offset}")
        return update_offset(request)

    cluster["a"].update_offset = checked  # type: ignore[method-assign]

    @c.on("T", max_batch=7)
    async def handle(messages: list[ConsumedMessage]) -> None:
        offsets = [m.queue_offset for m in messages]
        check(offsets == sorted(offsets), f"order {offsets}")
        check(set(range(offsets[0])) <= done, f"before {offsets}")
        check(not done & set(offsets), f"again {offsets}")
        seen.extend(offsets)
        unknown = dict(zip(offsets, messages, strict=True))
        for offset, message in list(unknown.items()):
            what = dice.random()
            if what < 0.3:
                done.add(unknown.pop(offset).queue_offset)
                message.ack()
            elif what < 0.5:
                await unknown.pop(offset).reconsume()
            if dice.random() < 0.3:
                await asyncio.sleep(dice.choice((0, 0.001)))
        if dice.random() < 0.4:
            raise ReconsumeLater
        done.update(unknown)

    async with c:
        await until(lambda: len(done) == count)
        await until(lambda: stored(cluster) == count)
    assert stored(cluster) == count
    assert set(seen) == set(range(count))
    assert problems == []
