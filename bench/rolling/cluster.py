"""A name server and three brokers of one make, which can be restarted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import msgspec

from bench.rolling.load import BROKERS, Kind
from pocketmq.client.admin import Admin
from tests.interop.harness import official, ours
from tests.interop.harness.official import Server

__all__ = ["Cluster", "Restart"]

#: Queues of each topic on each broker.
QUEUES = 4
#: A broker that does not end within so many seconds of SIGTERM is an error.
PATIENCE = 90.0
#: Much smaller than the default: the official broker allocates whole files.
SETTINGS = {"mappedFileSizeCommitLog": 128 << 20}


#: Of the official brokers' virtual machines.
MEMORY = ("-Xms256m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m")


class Restart(msgspec.Struct, frozen=True):
    """When a broker was told to end, had ended, and was routable again; CLOCK_MONOTONIC s."""

    broker: str
    begin: float
    ended: float
    back: float


class Cluster:
    """The servers; `make` is "ours" or "official", which raises Unavailable without Java; `java`:
    more flags of the official brokers' virtual machines."""

    def __init__(self, make: str, directory: Path, java: Sequence[str] = ()) -> None:
        self._make = make
        self._memory = (*MEMORY, *java)
        self._directory = directory
        self._brokers: dict[str, Server] = {}
        self._namesrv: Server | None = None

    @property
    def namesrv(self) -> str:
        """The name server's address."""
        assert self._namesrv is not None
        return self._namesrv.address

    async def __aenter__(self) -> Self:
        servers = official if self._make == "official" else ours
        self._namesrv = await asyncio.to_thread(servers.start_name_server, self._directory)
        try:
            async with asyncio.TaskGroup() as group:
                for name in BROKERS:
                    group.create_task(self._begin(name))
            async with Admin(namesrv=self.namesrv) as admin:
                for kind in Kind:
                    await admin.create_topic(str(kind), queues=QUEUES)
        except BaseException:
            self._kill()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        self._kill()

    async def _begin(self, name: str) -> None:
        self._brokers[name] = await asyncio.to_thread(self._start, name, None)

    def _kill(self) -> None:
        assert self._namesrv is not None
        for server in (*self._brokers.values(), self._namesrv):
            server.process.kill()

    def _start(self, name: str, port: int | None) -> Server:
        if self._make == "official":
            return official.start_broker(
                self._directory,
                self.namesrv,
                name=name,
                port=port,
                settings=SETTINGS,
                flags=self._memory,
            )
        return ours.start_broker(
            self._directory, self.namesrv, name=name, port=port, settings=SETTINGS
        )

    def restart(self, name: str, *, kill: bool = False) -> Restart:
        """Stop a broker with SIGTERM, or SIGKILL, and start it again at once; blocks."""
        server = self._brokers[name]
        begin = time.monotonic()
        if kill:
            server.process.kill()
        else:
            server.process.terminate(PATIENCE)
        ended = time.monotonic()
        self._brokers[name] = self._start(name, int(server.address.rpartition(":")[2]))
        return Restart(name, begin, ended, time.monotonic())

    def logs(self) -> Iterable[str]:
        """The ends of the servers' logs."""
        return (server.process.tail(20) for server in self._brokers.values())
