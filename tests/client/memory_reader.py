"""`python memory_reader.py KIND NAMESRV COUNT`: a consumer with a limit of 1 MiB reads the topic T.

It prints by how many bytes its resident memory has grown at most since it was started.
"""

from __future__ import annotations

import asyncio
import gc
import re
import sys
from pathlib import Path

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


async def push(namesrv: str, count: int) -> None:
    """With handlers that wait while others could begin."""
    done = 0

    async def handle(message: ConsumedMessage) -> None:
        nonlocal done
        await asyncio.sleep(0)
        done += 1

    consumer = PushConsumer(
        "G", {"T": "*"}, handler=handle, namesrv=namesrv, start="begin",
        pull_threshold_size_for_topic=1,
    )  # fmt: skip
    async with consumer:
        await until(lambda: done >= count)


async def main(kind: str, namesrv: str, count: str) -> None:
    gc.collect()
    before = memory("VmRSS")
    await {"pull": pull, "push": push}[kind](namesrv, int(count))
    print(memory("VmHWM") - before)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
