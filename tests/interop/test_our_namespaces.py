"""Our clients within a namespace, at brokers of both makes."""

from __future__ import annotations

from typing import Any

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.producer.producer import Producer
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.message.message import Message
from tests.client.waiting import until
from tests.interop.harness.cluster import Cluster


async def test_pull_and_push_consumers_see_plain_names(cluster: Cluster, topic: str) -> None:
    options: dict[str, Any] = {"namesrv": cluster.address, "namespace": "ns"}
    async with Producer("p", **options) as producer:
        for number in range(8):
            await producer.send(Message(topic, b"%d" % number))
    bodies = {b"%d" % number for number in range(8)}

    async with PullConsumer(f"pull_{topic}", start="begin", **options) as consumer:
        await consumer.subscribe(topic)
        got: list[Any] = []
        while len(got) < 8:
            got += await consumer.poll()
        assert {message.body for message in got} == bodies
        assert {message.queue for message in got} <= set(await consumer.queues(topic))
        await consumer.commit()
        queue = got[0].queue
        assert await consumer.committed(queue) == await consumer.end_offset(queue)
        await consumer.seek("begin", queue=queue)
        assert (await consumer.poll(timeout=10))[0].queue == queue
    async with PullConsumer(f"pull_{topic}", start="begin", **options) as consumer:
        await consumer.assign([queue])
        assert consumer.position(queue) in (await consumer.end_offset(queue), 1)

    seen: list[tuple[str, bytes, int]] = []

    async def handle(message: ConsumedMessage) -> None:
        seen.append((message.topic, message.body, message.reconsume_times))
        if message.body == b"3" and message.reconsume_times == 0:
            raise ReconsumeLater(delay_level=1)

    async with PushConsumer(
        f"push_{topic}", {topic: "*"}, handler=handle, start="begin", **options
    ):
        await until(lambda: (topic, b"3", 1) in seen and len(seen) == 9, 40)
    async with PullConsumer("outside", namesrv=cluster.address, start="begin") as consumer:
        assert await consumer.queues(topic) == ()
        assert len(await consumer.queues(f"ns%{topic}")) == 4
