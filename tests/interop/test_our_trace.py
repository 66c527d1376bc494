"""What our producers and consumers record of a message, as the official tool decodes it."""

from __future__ import annotations

import asyncio
from typing import Any

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.producer.producer import Producer
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.message.message import Message
from tests.interop.harness.cluster import Cluster
from tests.interop.harness.official import JavaPeer


async def test_mqadmin_tells_what_became_of_a_message(
    cluster: Cluster, java: JavaPeer, topic: str
) -> None:
    done = asyncio.Event()
    options: dict[str, Any] = {"namesrv": cluster.address, "trace": True}

    async def handle(messages: list[ConsumedMessage]) -> None:
        if messages[0].reconsume_times == 0:
            raise ReconsumeLater("once more", delay_level=1)
        done.set()

    async with Producer(f"p_{topic}", **options) as producer:
        result = await producer.send(Message(topic, b"x", tags="t", keys=["k1"]))
    consumer = PushConsumer(f"c_{topic}", start="begin", **options)
    consumer.on(topic, max_batch=4)(handle)
    async with consumer, asyncio.timeout(40):
        await done.wait()

    def look() -> list[list[str]]:
        output = java.mqadmin("queryMsgTraceById", "-n", cluster.address, "-i", result.msg_id)
        return [line.split() for line in output.splitlines() if line.startswith(("Pub", "Sub"))]

    rows: list[list[str]] = []
    for _ in range(20):  # each look takes the tool a second or more
        rows = await asyncio.to_thread(look)
        if len(rows) == 3:
            break
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        ("Pub", f"p_{topic}", "success"),
        ("Sub", f"c_{topic}", "failed"),
        ("Sub", f"c_{topic}", "success"),
    ]
