from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NameServer
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.monotonic import MonotonicClock, MonotonicMs


class Clock:
    """Milliseconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> MonotonicMs:
        return MonotonicMs(self.now)

    def advance(self, milliseconds: int) -> None:
        self.now += milliseconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def config(tmp_path: Path) -> NamesrvConfig:
    return NamesrvConfig(
        listen_port=0,
        kv_config_path=str(tmp_path / "namesrv" / "kvConfig.json"),
        config_store_path=str(tmp_path / "namesrv" / "namesrv.properties"),
        scan_not_active_broker_interval=10,
    )


@pytest.fixture
async def server(config: NamesrvConfig, clock: MonotonicClock) -> AsyncIterator[NameServer]:
    async with NameServer(config, clock=clock) as running:
        yield running


@pytest.fixture
async def connection(server: NameServer) -> AsyncIterator[Connection]:
    opened = await Connection.open(server.address)
    yield opened
    await opened.close()
