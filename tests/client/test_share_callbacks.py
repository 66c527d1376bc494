"""`on_assigned` and `on_revoked`: an application hears of its share in time to act on it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from pocketmq import Message, MessageQueue, Producer, PullConsumer, PushConsumer
from pocketmq.client.consumer.pauses import Pauses
from pocketmq.testing import RocketMQ
from tests.client.impatient import impatient
from tests.client.waiting import until


@pytest.fixture
async def topic(rocketmq: RocketMQ) -> str:
    await rocketmq.create_topic("T", queues=2)
    async with Producer("P", namesrv=rocketmq.namesrv) as producer:
        for queue in await producer.queues("T"):
            await producer.send_batch([Message("T", b"%d" % n) for n in range(4)], queue=queue)
    return "T"


async def test_a_pull_consumer_commits_before_its_queue_goes(
    rocketmq: RocketMQ, topic: str
) -> None:
    told: list[tuple[str, list[MessageQueue]]] = []

    async def revoked(queues: list[MessageQueue]) -> None:
        assert set(queues) <= set(first.assignment)
        await first.commit(dict.fromkeys(queues, 3))
        told.append(("revoked", queues))

    def assigned(queues: list[MessageQueue]) -> None:
        told.append(("assigned", queues))

    options: dict[str, Any] = {"namesrv": rocketmq.namesrv, "auto_commit": False, "start": "begin"}
    first = PullConsumer("G", on_assigned=assigned, on_revoked=revoked, **options)
    async with first:
        await first.subscribe(topic)
        await until(lambda: len(first.assignment) == 2)
        both = first.assignment
        await first.poll(2)
        async with PullConsumer("G", **options) as second:
            await second.subscribe(topic)
            await until(lambda: second.assignment)
            # The second one may read it before: nothing is locked.
            await until(lambda: len(first.assignment) == 1)
            [taken] = second.assignment
            [kept] = first.assignment
            assert await second.committed(taken) == 3
            assert told == [("assigned", both), ("revoked", [taken])]
        await until(lambda: len(first.assignment) == 2)
        assert told[2:] == [("assigned", [taken])]
        await first.unassign(topic)
        assert told[3:] == [("revoked", both)]
        assert await first.committed(kept) == 3


async def test_assigned_queues_may_be_sought_before_they_are_read(
    rocketmq: RocketMQ, topic: str
) -> None:
    async def assigned(queues: list[MessageQueue]) -> None:
        for queue in queues:
            await consumer.seek(2, queue=queue)

    consumer = PullConsumer("G", namesrv=rocketmq.namesrv, start="end", on_assigned=assigned)
    async with consumer:
        await consumer.subscribe(topic)
        found: list[int] = []
        async with asyncio.timeout(10):
            while len(found) < 4:
                found += [message.queue_offset for message in await consumer.poll()]
    assert sorted(found) == [2, 2, 3, 3]


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
async def test_a_push_consumer_waits_for_the_callback(
    rocketmq: RocketMQ, topic: str, orderly: bool
) -> None:
    """While it runs, the queue is not handed to another client of the group."""
    waiting, go_on = asyncio.Event(), asyncio.Event()
    told: list[list[MessageQueue]] = []

    async def revoked(queues: list[MessageQueue]) -> None:
        told.append(queues)
        waiting.set()
        await go_on.wait()

    def consumer(**options: Any) -> PushConsumer:
        return PushConsumer(
            "G",
            {topic: "*"},
            handler=lambda _: None,
            namesrv=rocketmq.namesrv,
            start="begin",
            orderly=orderly,
            **options,
        )

    async with consumer(on_revoked=revoked) as first:
        both = first.assignment
        assert len(both) == 2
        async with consumer() as second:
            await waiting.wait()
            assert first.assignment == both
            go_on.set()
            await until(lambda: len(first.assignment) == len(second.assignment) == 1)
            assert told == [second.assignment]
        await until(lambda: len(first.assignment) == 2)
    assert told[1:] == [both]  # at the shutdown


@pytest.mark.parametrize("fault", ["raises", "takes too long"])
async def test_a_callback_stops_no_consumer(
    rocketmq: RocketMQ, topic: str, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def assigned(queues: list[MessageQueue]) -> None:
        if fault == "raises":
            raise LookupError("no such shard")
        await asyncio.Event().wait()

    consumer = impatient(PullConsumer, Pauses(share_callback=0.1))(
        "G", namesrv=rocketmq.namesrv, start="begin", on_assigned=assigned
    )
    async with consumer:
        await consumer.subscribe(topic)
        assert await consumer.poll(timeout=10)
    [record] = [each for each in caplog.records if "on_assigned" in each.getMessage()]
    assert record.levelno == (logging.ERROR if fault == "raises" else logging.WARNING)
