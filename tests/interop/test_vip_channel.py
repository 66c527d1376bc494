"""Our clients on the VIP channel of brokers of both makes."""

from __future__ import annotations

from pocketmq.client.admin import Admin
from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.producer.producer import Producer
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.message.message import Message
from tests.client.waiting import until
from tests.interop.harness.cluster import BROKER_NAME, Cluster


async def test_all_clients_use_it(cluster: Cluster, topic: str) -> None:
    seen: list[bytes] = []
    async with Producer("vip", namesrv=cluster.address, vip_channel=True) as producer:
        await producer.send(Message(topic, b"0"))
        consumer = PushConsumer(
            f"vip_{topic}", namesrv=cluster.address, vip_channel=True, start="begin", orderly=True
        )

        @consumer.on(topic)
        async def handle(message: ConsumedMessage) -> None:
            seen.append(message.body)
            if message.body == b"1" and len(seen) < 3:
                raise ReconsumeLater

        async with consumer:
            await until(lambda: len(consumer.assignment) == 4 and seen == [b"0"], 40)
            await producer.send(Message(topic, b"1"), key="k")
            await until(lambda: len(seen) >= 3, 40)
    assert seen == [b"0", b"1", b"1"]
    async with Admin(namesrv=cluster.address, vip_channel=True) as admin:
        assert await admin.lag(f"vip_{topic}", topic) == 0
        assert (await admin.broker_config(BROKER_NAME))["brokerName"] == BROKER_NAME
