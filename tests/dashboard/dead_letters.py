"""Groups with dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from pocketmq.client.admin import Admin
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.producer.producer import Producer
from pocketmq.message import properties as names
from pocketmq.message.message import Message, MessageExt, MessageQueue
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.headers import SendMessageRequestHeaderV2

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


async def bury(admin: Admin, group: str, properties: Mapping[str, str], sys_flag: int = 0) -> None:
    """Store a dead letter as a client may make it: one that no handler has seen."""
    header = SendMessageRequestHeaderV2(
        producer_group="PG",
        topic=f"%RETRY%{group}",
        default_topic="TBW102",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=sys_flag,
        born_timestamp=1,
        flag=0,
        properties=names.encode(properties),
        reconsume_times=1,
        max_reconsume_times=0,
    )
    address = (await admin.cluster_info()).broker_addr_table["broker-a"].broker_addrs[0]
    connection = await Connection.open(address)
    try:
        sent = await connection.request(RequestCode.SEND_MESSAGE_V2, header, b"b")
        assert sent.code == 0
    finally:
        await connection.close()
