"""Cancelled calls, and full disks, with our own servers: nothing stays behind, and all goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pocketmq.client.admin import Admin
from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.errors import SendError
from pocketmq.client.producer.producer import Producer
from pocketmq.client.producer.transaction import TransactionProducer, TransactionState
from pocketmq.message.message import Message
from tests.client.real_cluster import RealCluster
from tests.client.test_cancellation import cancel_after
from tests.client.waiting import until

TOPIC = "orders"


@pytest.fixture(autouse=True)
async def topic(real: RealCluster) -> None:
    for broker in real.brokers.values():
        broker.config.recall_message_enable = True
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic(TOPIC, queues=2)


async def post_and_flush(producer: Producer) -> None:
    posted = [await producer.post(Message(TOPIC, b"x")) for _ in range(3)]
    posted.append(await producer.post(Message(TOPIC, b"x", delay=60)))
    await producer.flush()
    for each in posted:
        await each


async def recall(producer: Producer) -> None:
    result = await producer.send(Message(TOPIC, b"x", delay=60))
    assert result.recall_handle is not None
    await producer.recall(TOPIC, result.recall_handle)


async def transact(producer: Producer) -> None:
    assert isinstance(producer, TransactionProducer)
    await producer.send_in_transaction(Message(TOPIC, b"x"), lambda *_: TransactionState.COMMIT)


@pytest.mark.parametrize("call", [post_and_flush, recall, transact])
async def test_producers(real: RealCluster, call: Callable[[Producer], Awaitable[None]]) -> None:
    cancelled = 0
    async with TransactionProducer(
        "PG", check=lambda _: TransactionState.COMMIT, namesrv=real.namesrv, linger_ms=1
    ) as producer:
        for turns in range(30):
            cancelled += await cancel_after(turns, call(producer))
            await call(producer)
            # What was cancelled may be at the other broker, whose answer it waits for.
            await until(lambda: (producer.in_flight, producer.buffered_bytes) == (0, 0))
    assert cancelled > 0


async def test_requests(real: RealCluster) -> None:
    async with (
        Producer("PG", namesrv=real.namesrv) as producer,
        Producer("RG", namesrv=real.namesrv) as replier,
        PushConsumer("G", namesrv=real.namesrv, start="begin") as consumer,
    ):

        async def answer(message: ConsumedMessage) -> None:
            await replier.reply(message, message.body.upper())

        await consumer.subscribe(TOPIC, handler=answer)
        await until(lambda: len(consumer.assignment) == 4)
        for turns in range(0, 40, 2):
            await cancel_after(turns, producer.request(Message(TOPIC, b"given up"), timeout=10))
            reply = await producer.request(Message(TOPIC, b"asked"), timeout=10)
            assert reply.body == b"ASKED"
            assert producer.in_flight == 0


async def test_administration(real: RealCluster) -> None:
    calls: tuple[Callable[[Admin], Awaitable[Any]], ...] = (
        lambda admin: admin.create_topic("made", queues=3),
        lambda admin: admin.topics(),
        lambda admin: admin.reset_offsets("G", TOPIC, "begin"),
        lambda admin: admin.put_config("NS", "key", "value"),
    )
    async with (
        Admin(namesrv=real.namesrv) as admin,
        PushConsumer("G", {TOPIC: "*"}, handler=lambda _: None, namesrv=real.namesrv),
    ):
        for call in calls:
            for turns in range(0, 24, 3):
                await cancel_after(turns, call(admin))
            await call(admin)
        assert "made" in await admin.topics()


async def test_a_full_broker_takes_no_send_from_the_others(real: RealCluster) -> None:
    real.brokers["b0"].store.refuse("no space left on the disk")
    async with Producer("PG", namesrv=real.namesrv) as producer:
        results = [await producer.send(Message(TOPIC, b"x")) for _ in range(20)]
        results += await producer.send_batch([Message(TOPIC, b"x") for _ in range(20)])
        assert {result.queue.broker_name for result in results} == {"b1"}

        real.brokers["b1"].store.refuse("no space left on the disk")
        with pytest.raises(SendError, match="no space left") as caught:
            await producer.send(Message(TOPIC, b"x"))
        assert caught.value.retriable
        assert {attempt.queue.broker_name for attempt in caught.value.tries} == {"b0", "b1"}

        for broker in real.brokers.values():
            broker.store.accept()
        results = [await producer.send(Message(TOPIC, b"x")) for _ in range(20)]
        assert all(result.queue_offset >= 0 for result in results)
