"""Long polls of many mostly idle queues: parents of the Batch-Protocol against one request each.

Part of `python -m bench.batch_protocol`. The consumers run in this process, the broker in its
own, whose CPU time is read from /proc.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import Connection

from .processes import cpu_seconds

TOPIC = "bench_idle"
SETTLE = 2.0  # seconds until the first polls wait at the broker
LATE = 5.0  # seconds after the last send until what has not arrived counts as missing

_POLLS = (RequestCode.PULL_MESSAGE, RequestCode.COMMON_BATCH_REQUEST)


@dataclass
class Waiting:
    """What waiting for messages took.

    Attributes:
        cpu: of the broker, in percent of a core.
        requests: pulls, or parents of them, per second on the wire.
        latencies: from send to arrival, microseconds.
        missing: messages that did not arrive.
    """

    cpu: float
    requests: float
    missing: int
    latencies: list[float] = field(default_factory=list)

    def quantile(self, part: float) -> float:
        """Latency below which this part of the messages arrived, microseconds."""
        ordered = sorted(self.latencies)
        return ordered[min(int(part * len(ordered)), len(ordered) - 1)]

    @property
    def p50(self) -> float:
        return statistics.median(self.latencies)


@contextmanager
def counted_polls() -> Iterator[list[int]]:
    """The codes of the polls that are sent in the meantime, by any client of this process."""
    seen: list[int] = []
    request = Connection.request

    async def counting(self: Connection, code: int, *arguments: Any, **options: Any) -> Any:
        if code in _POLLS:
            seen.append(code)
        return await request(self, code, *arguments, **options)

    Connection.request = counting  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        Connection.request = request  # type: ignore[method-assign]


async def wait(
    namesrv: str,
    broker_pid: int,
    *,
    consumers: int,
    shared: bool,
    seconds: float,
    suspend: float,
    rate: float,
) -> Waiting:
    """Have consumers wait for `seconds`, with `rate` messages per second to queues at random.

    Every consumer reads all queues of the topic, from their ends on.
    """
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(Producer("bench", namesrv=namesrv))
        queues = await producer.queues(TOPIC)
        readers = []
        for number in range(consumers):
            consumer = PullConsumer(
                f"bench_{number}_{shared}",
                namesrv=namesrv,
                suspend=suspend,
                share_polls=shared,
                auto_commit=False,
                instance_name=f"bench-{number}",
            )
            readers.append(await stack.enter_async_context(consumer))
        await asyncio.gather(*(reader.assign(TOPIC) for reader in readers))
        await asyncio.sleep(SETTLE)
        latencies: list[float] = []
        sent = 0
        tasks = [asyncio.create_task(_receive(reader, latencies)) for reader in readers]
        with counted_polls() as polls:
            cpu, begin = cpu_seconds(broker_pid), time.monotonic()
            until = begin + seconds
            while (left := until - time.monotonic()) > 0:
                pause = random.expovariate(rate) if rate else left
                await asyncio.sleep(min(pause, left))
                if pause < left:
                    message = Message(TOPIC, b"%d" % time.perf_counter_ns())
                    await producer.send(message, queue=random.choice(queues))
                    sent += 1
            elapsed = time.monotonic() - begin
            used = cpu_seconds(broker_pid) - cpu
        late = time.monotonic() + LATE
        while len(latencies) < sent * consumers and time.monotonic() < late:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(outcome, asyncio.CancelledError):
                raise RuntimeError("a consumer ended before its time") from outcome
    missing = sent * consumers - len(latencies)
    return Waiting(100 * used / elapsed, len(polls) / elapsed, missing, latencies)


async def _receive(consumer: PullConsumer, latencies: list[float]) -> None:
    async for message in consumer:
        now = time.perf_counter_ns()
        latencies.append((now - int(message.body)) / 1000)


async def create_topic(namesrv: str, queues: int) -> None:
    """The topic with so many queues, with one message in each."""
    async with Producer("bench", namesrv=namesrv, template_queues=queues) as producer:
        await producer.send(Message(TOPIC, b"0"))
        async with asyncio.timeout(10):
            while len(found := await producer.queues(TOPIC)) < queues:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        await asyncio.gather(*(producer.send(Message(TOPIC, b"0"), queue=queue) for queue in found))
