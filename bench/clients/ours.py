"""`python -m bench.clients.ours`: our client under measurement, commands as peer.py says.

It runs under uvloop where that is installed, as docs/producer.md advises.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.errors import RemotingError
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message
from pocketmq.remoting.serving.service import event_loop_factory

BODY = bytes(1024)
#: Sends before the clock starts: the route and the connection are there then.
FIRST = 50
#: Of a send, seconds; the default is too short for the first one on a busy machine.
TIMEOUT = 10.0
LINGER_MS = 5.0
#: Messages posted before the event loop gets a turn, as by an application that makes them.
TURN = 100
LONGEST = 120.0


async def one(namesrv: str, topic: str, messages: int, _: int) -> tuple[float, int]:
    """One at a time."""
    async with Producer("bench_ours", namesrv=namesrv, timeout=TIMEOUT) as producer:
        for _ in range(FIRST):
            await producer.send(Message(topic, BODY))
        begin = time.perf_counter()
        for _ in range(messages):
            await producer.send(Message(topic, BODY))
        return time.perf_counter() - begin, 0


async def many(namesrv: str, topic: str, messages: int, in_flight: int) -> tuple[float, int]:
    """So many in flight."""
    return await _many(namesrv, topic, messages, in_flight, accumulate=True)


async def each(namesrv: str, topic: str, messages: int, in_flight: int) -> tuple[float, int]:
    """So many in flight, each by itself."""
    return await _many(namesrv, topic, messages, in_flight, accumulate=False)


async def _many(
    namesrv: str, topic: str, messages: int, in_flight: int, *, accumulate: bool
) -> tuple[float, int]:
    failed = 0
    left = iter(range(messages))

    async def work() -> None:
        nonlocal failed
        for _ in left:
            try:
                await producer.send(Message(topic, BODY))
            except RemotingError:
                failed += 1

    async with Producer(
        "bench_ours", namesrv=namesrv, timeout=TIMEOUT, accumulate=accumulate
    ) as producer:
        for _ in range(FIRST):
            await producer.send(Message(topic, BODY))
        begin = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(in_flight)))
        return time.perf_counter() - begin, failed


async def linger(namesrv: str, topic: str, messages: int, _: int) -> tuple[float, int]:
    """Posted, all but the FIRST; `topic` has exactly so many messages afterwards, if it was
    empty."""
    async with Producer(
        "bench_ours", namesrv=namesrv, timeout=TIMEOUT, linger_ms=LINGER_MS
    ) as producer:
        for _ in range(FIRST):
            await producer.send(Message(topic, BODY))
        begin = time.perf_counter()
        failed = 0
        waiting = []
        for number in range(messages - FIRST):
            waiting.append(await producer.post(Message(topic, BODY)))
            if number % TURN == 0:
                await asyncio.sleep(0)
        for posted in waiting:
            try:
                await posted
            except RemotingError:
                failed += 1
        return time.perf_counter() - begin, failed


async def consume(namesrv: str, topic: str, messages: int, _: int) -> tuple[float, int]:
    """From the first message to the last, in a group that has read nothing yet."""
    count = 0
    begin = end = 0.0
    ended = asyncio.Event()

    def handle(message: ConsumedMessage) -> None:
        nonlocal begin, count, end
        if not count:
            begin = time.perf_counter()
        count += 1
        if count == messages:
            end = time.perf_counter()
            ended.set()

    group = f"bench_ours_{time.monotonic_ns()}"
    async with PushConsumer(group, {topic: "*"}, handler=handle, namesrv=namesrv, start="begin"):
        async with asyncio.timeout(LONGEST):
            await ended.wait()
    return end - begin, 0


COMMANDS: dict[str, Callable[[str, str, int, int], Coroutine[Any, Any, tuple[float, int]]]] = {
    "one": one,
    "many": many,
    "each": each,
    "linger": linger,
    "consume": consume,
}


def main() -> None:
    for line in sys.stdin:
        name, namesrv, topic, messages, *more = line.split()
        in_flight = int(more[0]) if more else 0
        cpu = time.process_time()
        with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
            seconds, failed = runner.run(COMMANDS[name](namesrv, topic, int(messages), in_flight))
        cpu = time.process_time() - cpu
        answer = {"seconds": seconds, "cpu": cpu, "failed": failed}
        if name == "linger":
            answer["timed"] = int(messages) - FIRST
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
