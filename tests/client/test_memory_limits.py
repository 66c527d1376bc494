"""What consumers hold in memory, against their limits, where bodies grow when they are read."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from pocketmq import Message, Producer
from pocketmq.testing import RocketMQ
from tests.client import memory_reader

ROWS = [{"id": number, "name": f"customer {number % 50}", "paid": True} for number in range(3800)]
#: Of 194 KB and 4 MB; compressed, they have a fortieth and a thousandth of that.
BODIES = {"JSON": (json.dumps(ROWS).encode(), 384), "zeros": (bytes(4_000_000), 64)}
QUEUES = 64
MOST = 48 * 1024 * 1024


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.long("orderly", "batch")
@pytest.mark.parametrize("kind", ["pull", "push", "orderly", "batch"])
async def test_a_limit_of_bytes_holds_for_bodies_that_were_compressed(
    rocketmq: RocketMQ, kind: str, body: str
) -> None:
    content, count = BODIES[body]
    await rocketmq.create_topic("T", queues=QUEUES)
    async with Producer("P", namesrv=rocketmq.namesrv, accumulate=False) as producer:
        for queue in [*await producer.queues("T")] * (count // QUEUES):
            await producer.send(Message("T", content), queue=queue)
    arguments = (sys.executable, "-m", memory_reader.__name__, kind, rocketmq.namesrv, str(count))
    ran = await asyncio.to_thread(
        subprocess.run, arguments, capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) < MOST
