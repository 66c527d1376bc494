"""Requests whose sender has given up before a consumer gets to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq import Admin, ConsumedMessage, Message, Producer, PushConsumer, RequestTimeout, sync
from pocketmq.message import properties as names
from pocketmq.message.message import MessageExt
from pocketmq.testing import RocketMQ
from tests.client.waiting import until


async def gives_up(rocketmq: RocketMQ, producer: Producer) -> None:
    """Send a request, and return when its deadline is over."""
    await rocketmq.create_topic("T", queues=1)
    with pytest.raises(RequestTimeout):
        await producer.request(Message("T", b'"old"'), timeout=0.5)
    async with Admin(namesrv=rocketmq.namesrv) as admin:
        [queue] = await admin.queues("T")
        message = await admin.message_at(queue, 0)
    assert message is not None
    deadline = message.deadline
    assert deadline is not None
    assert deadline >= message.born_timestamp
    await until(lambda: time.time() * 1000 > deadline)


def plain(consumer: PushConsumer, work: Callable[[Any], Any]) -> None:
    consumer.on("T")(work)


def typed(consumer: PushConsumer, work: Callable[[Any], Any]) -> None:
    @consumer.on("T", payload=str)
    async def handle(message: ConsumedMessage, body: str) -> None:
        await work(message)


def batched(consumer: PushConsumer, work: Callable[[Any], Any]) -> None:
    @consumer.on("T", max_batch=8)
    async def handle(messages: list[ConsumedMessage]) -> None:
        for message in messages:
            await work(message)


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("way", [plain, typed, batched])
async def test_a_handler_gets_no_request_of_an_earlier_run(
    rocketmq: RocketMQ, way: Callable[..., None], orderly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with Producer("P", namesrv=rocketmq.namesrv) as producer:
        handled: list[bytes] = []

        async def answer(message: ConsumedMessage) -> None:
            handled.append(message.body)
            if message.deadline is not None:
                await producer.reply(message, b"done")

        await gives_up(rocketmq, producer)
        await producer.send(Message("T", b'"no request"'))
        consumer = PushConsumer("G", namesrv=rocketmq.namesrv, start="begin", orderly=orderly)
        way(consumer, answer)
        async with consumer:
            reply = await producer.request(Message("T", b'"new"'))
            assert reply.body == b"done"
            await rocketmq.idle("G")
            assert consumer.dropped_requests == 1
    assert handled == [b'"no request"', b'"new"']
    assert "its sender stopped waiting" in caplog.text


async def test_a_loop_gets_no_request_of_an_earlier_run(rocketmq: RocketMQ) -> None:
    async with Producer("P", namesrv=rocketmq.namesrv) as producer:
        await gives_up(rocketmq, producer)
        await producer.send(Message("T", b"new"))
        consumer = PushConsumer("G", {"T": "*"}, namesrv=rocketmq.namesrv, start="begin")
        async with consumer:
            async with await anext(aiter(consumer)) as message:
                assert message.body == b"new"
            await rocketmq.idle("G")


async def test_a_sync_handler_gets_no_request_of_an_earlier_run(rocketmq: RocketMQ) -> None:
    async with Producer("P", namesrv=rocketmq.namesrv) as producer:
        await gives_up(rocketmq, producer)
        await producer.send(Message("T", b"new"))
    handled: list[bytes] = []
    consumer = sync.PushConsumer(
        "G", {"T": "*"}, handler=lambda message: handled.append(message.body),
        namesrv=rocketmq.namesrv, start="begin",
    )  # fmt: skip
    await asyncio.to_thread(consumer.start)
    try:
        await rocketmq.idle("G")
        assert handled == [b"new"]
    finally:
        await asyncio.to_thread(consumer.shutdown)


async def test_a_consumer_may_want_all_requests(rocketmq: RocketMQ) -> None:
    handled: list[bytes] = []
    consumer = PushConsumer(
        "G", {"T": "*"}, handler=lambda message: handled.append(message.body),
        namesrv=rocketmq.namesrv, start="begin", drop_expired_requests=False,
    )  # fmt: skip
    async with Producer("P", namesrv=rocketmq.namesrv) as producer:
        await gives_up(rocketmq, producer)
        async with consumer:
            await rocketmq.idle("G")
    assert handled == [b'"old"']


def received(born: int, stored: int, reconsumed: int, **properties: str) -> MessageExt:
    return MessageExt(
        "T", b"b", names.encode(properties).encode(), 0, 0, 0, 0, 0, born, bytes(8), stored,
        bytes(8), reconsumed, 0, 0, 0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("born", "stored", "reconsumed", "deadline"),
    [(1000, 1005, 0, 1505), (1000, 900, 0, 1500), (1000, 9000, 1, 1500)],
)
def test_the_deadline_of_a_request(born: int, stored: int, reconsumed: int, deadline: int) -> None:
    message = received(born, stored, reconsumed, TTL="500", REPLY_TO_CLIENT="c")
    assert message.deadline == deadline


@pytest.mark.parametrize(
    "properties",
    [{}, {"TTL": "500"}, {"REPLY_TO_CLIENT": "c"}]
    + [{"REPLY_TO_CLIENT": "c", "TTL": ttl} for ttl in ("-1", "soon", "٣", "1.5")],
)
def test_other_messages_have_no_deadline(properties: dict[str, str]) -> None:
    assert received(1, 1, 0, **properties).deadline is None
