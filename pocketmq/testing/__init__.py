"""A pytest plugin: a separate RocketMQ for each test, in the test's process.

    async def test_orders(rocketmq):
        await rocketmq.create_topic("orders", queues=1)
        async with Producer("shop", namesrv=rocketmq.namesrv) as producer:
            await producer.send(Message("orders", b"1"))
        assert [message.body for message in await rocketmq.drain("orders")] == [b"1"]

pytest finds the plugin (`pocketmq.testing.plugin`) where pocketmq is installed. docs/testing.md
shows what it can do.
"""

from __future__ import annotations

from pocketmq._lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    extras=dict.fromkeys(("Held", "MovableClock", "RocketMQ", "SyncRocketMQ"), "server"),
)
