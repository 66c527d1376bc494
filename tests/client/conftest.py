from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.client.fake_cluster import FakeCluster
from tests.client.real_cluster import RealCluster


@pytest.fixture(autouse=True)
async def nothing_is_left_behind() -> AsyncIterator[None]:
    """After each test: no task but the test's own is alive."""
    before = asyncio.all_tasks()
    yield
    # What was cancelled or answered in the test's last moment may need a turn to end.
    for _ in range(100):
        left = {task for task in asyncio.all_tasks() - before if task is not asyncio.current_task()}
        if not left:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"tasks left behind: {left}")


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Brokers "a" and "b" with topic "T" of two queues on each."""
    fakes = FakeCluster("a", "b")
    await fakes.start()
    fakes.put("T")
    yield fakes
    await fakes.stop()


@pytest.fixture
def unused_port() -> str:
    """An address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[RealCluster]:
    """Our own name server with brokers "b0" and "b1"."""
    servers = RealCluster(tmp_path, "b0", "b1")
    await servers.start()
    yield servers
    await servers.stop()
