"""Real processes that write and are killed: every message they acknowledged is there afterwards."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pocketmq.message.record import decode
from pocketmq.store.errors import StoreLocked

PROJECT = Path(__file__).parents[2]

WRITER = """
import asyncio, os, sys
from pocketmq.message.batch_body import encode_batch
from pocketmq.store.config import FlushDiskType, StoreConfig
from pocketmq.store.message_store import MessageStore

root, flush, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])

async def main():
    store = MessageStore(
        StoreConfig(
            store_path_root_dir=root,
            mapped_file_size_commit_log=16384,
            mapped_file_size_consume_queue=400,
            flush_disk_type=FlushDiskType(flush),
            flush_interval_commit_log=5,
        ),
        store_host=bytes(8),
    )
    store.open()
    store.start()

    def acknowledge(queue_id, result, count, done=True):
        if done:
            # One write per line: what the parent read whole was acknowledged.
            os.write(1, b"%d %d %d %d\\n" % (seed, queue_id, result.queue_offset, count))

    number = 0
    waiting = []
    while True:
        number += 1
        queue_id = number % 3
        name = b"%d/%d/" % (seed, number)
        if number % 7:
            count = 1
            result = store.put("T", queue_id, name * (number % 90), "", born_timestamp=1,
                               born_host=bytes(8), tags_code=0)
        else:
            count = 5
            batch = encode_batch([(0, name * 20, b"")] * count)
            result = store.put_batch("T", queue_id, batch, "", born_timestamp=1,
                                     born_host=bytes(8))
        assert result.ok, result
        if flush == "SYNC_FLUSH":
            store.when_flushed(result.end_offset,
                lambda done, q=queue_id, r=result, c=count: acknowledge(q, r, c, done))
        else:
            waiting.append((queue_id, result, count))
            if len(waiting) > seed % 3:
                store.settle()
                for arguments in waiting:
                    acknowledge(*arguments)
                waiting.clear()
        await asyncio.sleep(0)

asyncio.run(main())
"""


def write_until_killed(root: Path, flush: str, seed: int, acknowledgements: int) -> list[list[int]]:
    """Start a writer, kill it when it acknowledged so many times, and return what it did."""
    arguments = [sys.executable, "-c", WRITER, str(root), flush, str(seed)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=PROJECT) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(acknowledgements)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    assert process.returncode == -signal.SIGKILL
    return [[int(part) for part in line.split()] for line in lines if line.endswith(b"\n")]


@pytest.mark.crash
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_killed_writers_lose_nothing(bench: Any, flush: str) -> None:
    """The next writer goes on in the same store, whose offsets it continues without a gap."""
    dice = random.Random(7)
    most = 400 if flush == "ASYNC_FLUSH" else 40  # each of these waits for the disk
    acknowledged: list[list[int]] = []
    for seed in range(3):
        acknowledged += write_until_killed(bench.root, flush, seed, dice.randint(1, most))
        store = bench.copy(f"after-{seed}").open()
        queues = [bench.bodies(store, "T", queue_id) for queue_id in range(3)]
        for writer, queue_id, offset, count in acknowledged:
            served = queues[queue_id][offset : offset + count]
            assert len(served) == count
            # A body begins with the number of its writer, or is empty.
            assert all(body.startswith(b"%d/" % writer) or not body for body in served)
        for queue_id, bodies in enumerate(queues):
            assert (store.min_offset("T", queue_id), store.max_offset("T", queue_id)) == (
                0,
                len(bodies),
            )
        await store.close()
    assert len({(queue_id, offset) for _, queue_id, offset, _ in acknowledged}) == len(acknowledged)


@pytest.mark.crash
def test_a_store_in_use_by_another_process(bench: Any) -> None:
    arguments = [sys.executable, "-c", WRITER, str(bench.root), "ASYNC_FLUSH", "1"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=PROJECT) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(StoreLocked, match=f"by process {process.pid}"):
            bench.open()
        process.kill()
    store = bench.open()
    assert bytes(decode(bytes(store.get("T", 1, 0, 1).buffers[0])).body) == b"1/1/"
