"""A group with dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pocketmq.client.admin import Admin
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message, MessageExt, MessageQueue

TIMEOUT = 60.0


async def make_dead_letters(
    admin: Admin, producer: Producer, namesrv: str, group: str, topic: str, bodies: Sequence[bytes]
) -> None:
    """Send messages that the group refuses in its only attempt."""

    async def refuse(message: MessageExt) -> None:
        raise ValueError("refused")

    await admin.create_topic(topic, queues=1)
    for number, body in enumerate(bodies):
        await producer.send(Message(topic, body, keys=[f"k-{number}"]))
    consumer = PushConsumer(group, namesrv=namesrv, start="begin", max_reconsume_times=0)
    consumer.on(topic)(refuse)
    dead = MessageQueue(f"%DLQ%{group}", "broker-a", 0)
    async with asyncio.timeout(TIMEOUT), consumer:
        # The broker creates the topic with the first dead letter; no event tells.
        while dead.topic not in await admin.topics():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        while await admin.max_offset(dead) < len(bodies):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
