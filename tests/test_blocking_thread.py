"""Calls that block, off the event loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from functools import partial

import pytest

from pocketmq.blocking_thread import BlockingThread
from tests.cli.running import PROJECT


async def test_results_and_exceptions_come_back_in_order() -> None:
    thread = BlockingThread("test")
    calls: list[int] = []

    def call(number: int) -> int:
        calls.append(number)
        if number == 2:
            raise KeyError(number)
        return number

    results = await asyncio.gather(
        *(thread.call(partial(call, n)) for n in range(4)), return_exceptions=True
    )
    thread.close()
    assert calls == [0, 1, 2, 3]
    assert results[:2] == [0, 1]
    assert isinstance(results[2], KeyError)
    assert results[3] == 3


async def test_a_caller_that_gives_up_leaves_the_others_alone() -> None:
    thread = BlockingThread("test")
    release = threading.Event()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await thread.call(release.wait)
    release.set()
    assert await thread.call(lambda: "next") == "next"
    thread.close()


def test_a_blocked_call_does_not_keep_the_process() -> None:
    program = (
        "import asyncio, threading\n"
        "from pocketmq.blocking_thread import BlockingThread\n"
        "async def main():\n"
        "    asyncio.ensure_future(BlockingThread('test').call(threading.Event().wait))\n"
        "    await asyncio.sleep(0)\n"
        "asyncio.run(main())\n"
        "print('ended')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ended\n", "")
