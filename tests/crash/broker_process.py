"""Broker processes that start quickly: forked from a server that has the modules loaded.

Each broker is a process of its own that runs `pocketmq broker`, with its own sockets and files. It
is spared half a second of imports.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pocketmq.remoting.connection import Connection
from pocketmq.remoting.errors import RemotingConnectError
from tests.interop.harness.official import write_properties

from .lies import LIES

START_TIMEOUT: Final = 60.0
STOP_TIMEOUT: Final = 60.0

_CONTEXT: Final = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["numpy", "pocketmq.cli.broker", "pocketmq.broker.broker", __name__]
)


class BrokerFailed(AssertionError):
    """The broker ended when it should not, or did not start or stop in time."""


class BrokerProcess:
    """One broker, from its start to its end. `lie`: a name of `LIES`, or "" for an honest one."""

    def __init__(
        self, directory: Path, port: int, settings: Mapping[str, object], lie: str = ""
    ) -> None:
        """Start it: the store is `directory`/store, the output goes to `directory`/output.log."""
        self.address = f"127.0.0.1:{port}"
        self._log = directory / "output.log"
        config = write_properties(
            directory / "broker.conf",
            {
                "storePathRootDir": directory / "store",
                "brokerName": "killed",
                "listenPort": port,
                "vipChannelEnable": False,
                **settings,
            },
        )
        self._process = _CONTEXT.Process(
            target=_run, args=(str(config), str(self._log), lie), daemon=True
        )
        self._process.start()

    async def listening(self) -> Connection:
        """Wait until it takes connections; return one. Raises BrokerFailed."""
        deadline = time.monotonic() + START_TIMEOUT
        while self._process.is_alive():
            try:
                return await Connection.open(self.address)
            except RemotingConnectError:
                if time.monotonic() > deadline:
                    raise self._failed("does not listen") from None
            await asyncio.sleep(0.005)
        raise self._failed(f"ended with exit code {self._process.exitcode}")

    def kill(self) -> None:
        """SIGKILL it, and return when it is gone."""
        self._process.kill()
        self._process.join()

    async def stop(self) -> None:
        """SIGTERM it. Raises BrokerFailed unless it ends with exit code 0."""
        self._process.terminate()
        await asyncio.to_thread(self._process.join, STOP_TIMEOUT)
        if self._process.exitcode != 0:
            raise self._failed(f"was stopped: exit code {self._process.exitcode}")

    def _failed(self, what: str) -> BrokerFailed:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return BrokerFailed("\n".join([f"the broker {what}; {self._log} ends with", *lines[-15:]]))


def _run(config: str, log: str, lie: str) -> None:
    """What the process does."""
    from pocketmq.cli import main

    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(output, stream)
    if lie:
        LIES[lie].tell()
    sys.exit(main(["broker", "-c", config]))
