"""Server processes that start quickly: forked from a process that has the modules loaded.

Each is a process of its own that runs `pocketmq broker` or another command, with its own sockets
and files. It is spared half a second of imports.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pocketmq.remoting.connection import Connection
from pocketmq.remoting.errors import RemotingConnectError
from tests.interop.harness.official import write_properties

from .lies import LIES, MIXED_LIES

START_TIMEOUT: Final = 60.0
STOP_TIMEOUT: Final = 60.0

_CONTEXT: Final = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "numpy",
        "pocketmq.broker.broker",
        "pocketmq.cli.servers.broker",
        "pocketmq.cli.servers.namesrv",
        "pocketmq.cli.servers.proxy",
        "pocketmq.cluster_proxy",
        "pocketmq.namesrv.server",
        __name__,
    ]
)


class ServerFailed(AssertionError):
    """The server ended when it should not, or did not start or stop in time."""


class ServerProcess:
    """One server, from its start to its end."""

    def __init__(self, command: Sequence[str], port: int, log: Path, lie: str = "") -> None:
        """Start `pocketmq COMMAND`, which is to listen on `port`; its output goes to `log`.

        `lie`: a name of `LIES` or `MIXED_LIES`, or "" for an honest one.
        """
        self.address = f"127.0.0.1:{port}"
        self._name = command[0]
        self._log = log
        self._process = _CONTEXT.Process(
            target=_run, args=(list(command), str(log), lie), daemon=True
        )
        self._process.start()

    async def listening(self) -> Connection:
        """Wait until it takes connections; return one. Raises ServerFailed."""
        deadline = time.monotonic() + START_TIMEOUT
        while self._process.is_alive():
            try:
                return await Connection.open(self.address)
            except RemotingConnectError:
                if time.monotonic() > deadline:
                    raise self._failed("does not listen") from None
            await asyncio.sleep(0.005)
        raise self._failed(f"ended with exit code {self._process.exitcode}")

    def pause(self) -> None:
        """SIGSTOP it: it keeps its connections and answers nothing."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT it."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL it, and return when it is gone."""
        self._process.kill()
        self._process.join()

    async def stop(self) -> None:
        """SIGTERM it. Raises ServerFailed unless it ends with exit code 0."""
        self._process.terminate()
        await asyncio.to_thread(self._process.join, STOP_TIMEOUT)
        if self._process.exitcode != 0:
            raise self._failed(f"was stopped: exit code {self._process.exitcode}")

    def _failed(self, what: str) -> ServerFailed:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return ServerFailed(
            "\n".join([f"the {self._name} {what}; {self._log} ends with", *lines[-15:]])
        )


class BrokerProcess(ServerProcess):
    """A broker: the store is `directory`/store, the output goes to `directory`/output.log."""

    def __init__(
        self, directory: Path, port: int, settings: Mapping[str, object], lie: str = ""
    ) -> None:
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
        super().__init__(["broker", "-c", str(config)], port, directory / "output.log", lie)


def _run(command: list[str], log: str, lie: str) -> None:
    """What the process does."""
    from pocketmq.cli import main

    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(output, stream)
    if lie:
        (LIES | MIXED_LIES)[lie].tell()
    sys.exit(main(command))
