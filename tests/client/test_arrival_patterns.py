"""However messages arrive at a producer, the queues of a topic receive the same number of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pocketmq import Admin, Message, Producer
from pocketmq.client.send_result import SendResult
from tests.client.real_cluster import RealCluster

Pattern = Callable[[Producer, list[Message]], Awaitable[list[SendResult]]]


async def one_by_one(producer: Producer, messages: list[Message]) -> list[SendResult]:
    return [await producer.send(message) for message in messages]


async def in_bursts(producer: Producer, messages: list[Message]) -> list[SendResult]:
    return await asyncio.gather(*map(producer.send, messages))


async def by_workers(producer: Producer, messages: list[Message]) -> list[SendResult]:
    left = iter(messages)

    async def work() -> list[SendResult]:
        return [await producer.send(message) for message in left]

    parts = await asyncio.gather(*(work() for _ in range(7)))
    return [result for part in parts for result in part]


async def posted(producer: Producer, messages: list[Message]) -> list[SendResult]:
    return [await each for each in [await producer.post(message) for message in messages]]


async def in_batches(producer: Producer, messages: list[Message]) -> list[SendResult]:
    return await producer.send_batch(messages)


async def bursts_between_singles(producer: Producer, messages: list[Message]) -> list[SendResult]:
    results = [await producer.send(message) for message in messages[:3]]
    return results + await in_bursts(producer, messages[3:])


PATTERNS = (one_by_one, in_bursts, by_workers, posted, in_batches, bursts_between_singles)


@pytest.mark.parametrize("brokers", [["b0"], ["b0", "b1"]], ids=["one broker", "two brokers"])
@pytest.mark.parametrize("linger_ms", [0, 5], ids=["at once", "lingering"])
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.__name__)
async def test_queues_receive_the_same_number_of_messages(
    real: RealCluster, pattern: Pattern, linger_ms: int, brokers: list[str]
) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        for broker in brokers:
            await admin.create_topic("orders", queues=4, broker=broker)
    async with Producer(
        "shop",
        namesrv=real.namesrv,
        linger_ms=linger_ms,
        # A stall of this machine would move messages to the other broker, rightly:
        # test_even_spread has the selection by latency.
        send_latency_enable=False,
    ) as producer:
        for _ in range(10):
            results = await pattern(producer, [Message("orders", b"%d" % n) for n in range(200)])
            assert len(results) == 200
        queues = await producer.queues("orders")
    async with Admin(namesrv=real.namesrv) as admin:
        ends = [await admin.max_offset(queue) for queue in queues]
    assert len(ends) == 4 * len(brokers)
    assert sum(ends) == 2000
    # One request carries a burst of 200 at most.
    assert max(ends) - min(ends) <= 200
