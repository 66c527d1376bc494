"""Tests of an application with a RocketMQ of their own: pytest examples/test_orders.py"""

from pocketmq import Message, Producer
from pocketmq.testing import RocketMQ

pytest_plugins = ["pocketmq.testing.plugin"]  # in a project of your own: nothing, or in conftest.py


async def test_a_busy_broker_is_asked_again(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("orders", queues=1)
    async with Producer("shop", namesrv=rocketmq.namesrv) as producer:
        with rocketmq.fail("SEND_MESSAGE_V2", "SYSTEM_BUSY", times=1):
            await producer.send(Message("orders", b"two coffees"))
    assert [message.body for message in await rocketmq.drain("orders")] == [b"two coffees"]


async def test_a_reminder_comes_after_ten_seconds(rocketmq: RocketMQ) -> None:
    async with Producer("shop", namesrv=rocketmq.namesrv) as producer:
        await producer.send(Message("reminders", b"wake up", delay_level=3))
    assert await rocketmq.drain("reminders") == []
    await rocketmq.advance(10)
    assert len(await rocketmq.drain("reminders")) == 1
