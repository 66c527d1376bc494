"""`python memory_reader.py KIND NAMESRV COUNT`: a consumer with a limit of 1 MiB reads the topic T.

It prints by how many bytes its resident memory has grown at most since it was started.
"""

from __future__ import annotations

import asyncio
import gc
import re
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from pocketmq import ConsumedMessage, PullConsumer, PushConsumer
from tests.client.waiting import until

LIMIT = 1024 * 1024


def memory(name: str) -> int:
    """VmRSS or VmHWM (the most so far) of this process, bytes."""
    [size] = re.findall(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(size) * 1024


async def pull(namesrv: str, count: int) -> None:
    """With a full buffer first, then message by message."""
    consumer = PullConsumer("G", namesrv=namesrv, start="begin", max_buffered_bytes=LIMIT)
    async with consumer:
        await consumer.assign("T")
        await until(lambda: consumer.buffered_bytes >= LIMIT)
        while count:
            count -= len(await consumer.poll(1))


async def push(namesrv: str, count: int, **options: Any) -> None:
    """With handlers that wait until the buffer is full, and then for a turn each."""
    done = 0
    full = asyncio.Event()

    async def handle(work: ConsumedMessage | list[ConsumedMessage]) -> None:
        nonlocal done
        await full.wait()
        await asyncio.sleep(0)
        done += len(work) if isinstance(work, list) else 1

    batch = options.pop("batch", None)
    consumer = PushConsumer(
        "G", namesrv=namesrv, start="begin", max_buffered_bytes=LIMIT, **options
    )
    async with consumer:
        await consumer.subscribe("T", handler=handle, max_batch=batch)
        await until(lambda: sum(size for _, size in consumer.cached.values()) >= LIMIT)
        full.set()
        await until(lambda: done >= count, timeout=120)


KINDS: dict[str, Callable[[str, int], Awaitable[None]]] = {
    "pull": pull,
    "push": push,
    "orderly": partial(push, orderly=True),
    "batch": partial(push, batch=16),
}


async def main(kind: str, namesrv: str, count: str) -> None:
    gc.collect()
    before = memory("VmRSS")
    await KINDS[kind](namesrv, int(count))
    print(memory("VmHWM") - before)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
