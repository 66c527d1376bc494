"""However messages arrive at a producer, the queues of a topic receive the same number of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import cycle

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from pocketmq import Admin, Message, Producer
from pocketmq.client.send_result import SendResult
from tests.client.real_cluster import RealCluster
from tests.client.simulation import differ_most

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


PATTERNS: tuple[Pattern, ...] = (one_by_one, in_bursts, by_workers, posted, in_batches)
#: What a program does over and over: a pattern, and how many messages it is given.
programs = st.lists(
    st.tuples(st.sampled_from(PATTERNS), st.sampled_from([1, 3, 10, 60, 200])),
    min_size=1,
    max_size=6,
)


async def test_any_thousand_messages_are_spread_evenly(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("one", queues=4, broker="b0")
        for broker in ("b0", "b1"):
            await admin.create_topic("two", queues=2, broker=broker)

    async def send(
        program: list[tuple[Pattern, int]], topic: str, linger_ms: int, messages: int
    ) -> None:
        results: list[SendResult] = []
        async with Producer(
            "shop",
            namesrv=real.namesrv,
            linger_ms=linger_ms,
            # A stall of this machine would move messages to the other broker, rightly:
            # test_even_spread has the selection by latency.
            send_latency_enable=False,
        ) as producer:
            for pattern, size in cycle(program):
                results += await pattern(producer, [Message(topic, b"x")] * size)
                if len(results) >= messages:
                    break
            queues = await producer.queues(topic)
        assert len(queues) == 4
        # No request carries more than one pattern was given.
        largest = max(size for _, size in program)
        used = [result.queue for result in results]
        assert differ_most(used, queues, len(used)) <= largest
        # The first of a thousand may find one queue ahead by a request, the last another.
        assert differ_most(used, queues, 1000) <= 2 * largest

    @settings(max_examples=10, phases=[Phase.explicit, Phase.generate])
    @given(programs, st.sampled_from(["one", "two"]), st.sampled_from([0, 5]), st.just(1200))
    @example([(pattern, 60) for pattern in PATTERNS], "two", 5, 3000)
    def spread(
        program: list[tuple[Pattern, int]], topic: str, linger_ms: int, messages: int
    ) -> None:
        asyncio.run(send(program, topic, linger_ms, messages))

    await asyncio.to_thread(spread)
