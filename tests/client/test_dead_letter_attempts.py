"""What a dead letter says of the attempts to consume it, as docs/consumer.md tells."""

from __future__ import annotations

import asyncio
import logging

import pytest

from pocketmq.client.admin import Admin
from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.producer.producer import Producer
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.message.message import Message, MessageQueue
from pocketmq.testing import RocketMQ


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_dead_letter_counts_its_attempts(
    orderly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pocketmq.client.consumer")
    attempts: list[int] = []
    last = asyncio.Event()

    async def refuse(message: ConsumedMessage) -> None:
        attempts.append(message.reconsume_times)
        if len(attempts) == 3:
            last.set()
        raise ReconsumeLater("never")

    async with RocketMQ() as rocketmq:
        await rocketmq.create_topic("orders", queues=1)
        async with Producer("shop", namesrv=rocketmq.namesrv) as producer:
            await producer.send(Message("orders", b"42"))
        async with PushConsumer(
            "billing",
            {"orders": "*"},
            handler=refuse,
            namesrv=rocketmq.namesrv,
            start="begin",
            orderly=orderly,
            max_reconsume_times=2,
            suspend_current_queue=0.01,
        ):
            if not orderly:
                await rocketmq.advance(10 + 30)
            async with asyncio.timeout(10):
                await last.wait()
        # The consumer has sent its dead letter when it is shut down.
        async with Admin(namesrv=rocketmq.namesrv) as admin:
            queue = MessageQueue("%DLQ%billing", "broker-a", 0)
            dead = await admin.message_at(queue, 0)
    lines = [f"{r.levelname} {r.message}" for r in caplog.records if "delivery " in r.message]
    assert [line.partition(" message")[0] for line in lines] == [
        "INFO group billing: redelivering",
        "INFO group billing: redelivering",
        "WARNING group billing: giving up",
    ]
    assert lines[-1].endswith("delivery 3), which goes to the dead letters: never")
    assert attempts == [0, 1, 2]
    assert dead is not None
    assert dead.reconsume_times == 3
    assert dead.origin is not None
    assert (dead.origin.topic, dead.origin.group) == ("orders", "billing")


@pytest.mark.parametrize("level", [-2, 19, 99])
def test_delay_levels_that_there_are_not_are_refused(level: int) -> None:
    with pytest.raises(ValueError, match="delay_level must be a whole number from -1 to 18"):
        ReconsumeLater("later", delay_level=level)
