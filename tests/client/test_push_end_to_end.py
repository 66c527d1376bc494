"""Push consumers, our own servers and producer, while brokers restart and consumers come and go."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from pocketmq.client.admin import Admin
from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.errors import SendError
from pocketmq.client.producer.producer import Producer
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.message.message import Message, MessageQueue
from tests.client.real_cluster import RealCluster
from tests.client.waiting import until

MESSAGES = 400


async def send_all(producer: Producer, sent: set[bytes]) -> None:
    """Keeps on sending while brokers are away; what is acknowledged is in `sent`."""
    for i in range(MESSAGES):
        try:
            await producer.send(Message("T", b"%d" % i))
        except SendError:
            continue
        sent.add(b"%d" % i)
        await asyncio.sleep(0.001)


async def create_topic(real: RealCluster, producer: Producer) -> None:
    """On both brokers, with a message each."""
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("T", queues=4)
    for name in ("b0", "b1"):
        await producer.send(Message("T", name.encode()), queue=MessageQueue("T", name, 0))


@pytest.mark.parametrize("orderly", [False, True])
async def test_nothing_acknowledged_is_lost_through_restarts(
    real: RealCluster, orderly: bool
) -> None:
    sent: set[bytes] = set()
    seen: set[bytes] = set()
    order: dict[MessageQueue, list[int]] = defaultdict(list)

    async def handle(message: ConsumedMessage) -> None:
        await asyncio.sleep(0)
        if message.body.endswith(b"7") and message.reconsume_times == 0 and not orderly:
            raise ReconsumeLater(delay_level=1)
        seen.add(message.body)
        order[message.queue].append(message.queue_offset)

    def consumer() -> PushConsumer:
        options: dict[str, Any] = {"commit_interval": 0.05, "shutdown_timeout": 1.0}
        return PushConsumer(
            "G", {"T": "*"}, handler=handle, namesrv=real.namesrv, start="begin", orderly=orderly,
            **options,
        )  # fmt: skip

    async with Producer("PG", namesrv=real.namesrv) as producer:
        await create_topic(real, producer)
        lasting = consumer()
        await lasting.start()
        await until(lambda: {b"b0", b"b1"} <= seen)
        sending = asyncio.create_task(send_all(producer, sent))
        for name in ("b0", "b1"):
            async with consumer() as passing:
                await until(lambda c=passing: c.assignment)  # type: ignore[misc]
                await real.stop_broker(name)
                before = len(sent)
                await until(lambda n=before: sending.done() or len(sent) > n + 5)  # type: ignore[misc]
                await real.start_broker(name)
        await sending
        await until(lambda: sent <= seen, timeout=30.0)
        await until(lambda: len(lasting.assignment) == 8)
        await lasting.shutdown()
    assert len(sent) > MESSAGES / 2
    if orderly:
        for offsets in order.values():
            for at, offset in enumerate(offsets):
                assert offset <= max(offsets[:at], default=-1) + 1


async def test_a_new_group_gets_what_is_sent_once_it_has_started(real: RealCluster) -> None:
    async with Producer("PG", namesrv=real.namesrv) as producer:
        await create_topic(real, producer)
        for n in range(10):
            body = b"after the start of %d" % n
            async with PushConsumer(f"G{n}", {"T": "*"}, namesrv=real.namesrv) as consumer:
                await producer.send(Message("T", body))
                async with asyncio.timeout(30):
                    message = await anext(consumer)
                assert message.body == body
                message.ack()
