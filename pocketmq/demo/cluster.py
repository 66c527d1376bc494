"""A name server and two brokers as processes, as a user starts them, in one directory."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
from pathlib import Path
from typing import Self

START_TIMEOUT = 20.0
STOP_TIMEOUT = 10.0

_ADDRESS = re.compile(r"listen\w* on (\S+:\d+)")


class ServerFailed(Exception):
    """A server process ended, or did not report in time that it listens; the text has its
    output."""


class ServerProcess:
    """One `python -m pocketmq ...`, with its stderr in `log`."""

    def __init__(self, name: str, arguments: list[str], log: Path) -> None:
        self.name = name
        self.address = ""
        self._arguments = arguments
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The process's id; raises ServerFailed before `start`."""
        if self._process is None:
            raise ServerFailed(f"{self.name} is not started")
        return self._process.pid

    async def start(self) -> str:
        """Start it; return the line that it prints when it listens, which sets `address`."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "pocketmq",
                *self._arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(START_TIMEOUT):
                line = await self._process.stdout.readline()
        except TimeoutError:
            line = b""
        match = _ADDRESS.search(line.decode())
        if match is None:
            await self.stop()
            raise ServerFailed(f"{self.name} did not start: {self._last_words()}")
        self.address = match[1]
        return line.decode().strip()

    async def kill(self) -> None:
        """Kill it with SIGKILL, like a crash."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        """Send SIGTERM, and SIGKILL if it takes too long. Does nothing if it is not running."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_TIMEOUT):
                await process.wait()
        except TimeoutError:
            await self.kill()

    def _last_words(self) -> str:
        text = self._log.read_text(errors="replace").strip()
        return text[-2000:] or "it said nothing"


class Cluster:
    """`async with Cluster(directory) as cluster`; the processes end with the block."""

    def __init__(self, directory: Path, broker_names: tuple[str, ...]) -> None:
        self._directory = directory
        self.name_server = ServerProcess(
            "name server",
            ["namesrv", "--listen-port", "0", "-c", str(directory / "namesrv.conf")],
            directory / "namesrv.log",
        )
        self.brokers: dict[str, ServerProcess] = {}
        self._broker_names = broker_names

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    @property
    def namesrv(self) -> str:
        """The name server's address."""
        return self.name_server.address

    def store(self, broker_name: str) -> Path:
        """The directory of that broker's store."""
        return self._directory / broker_name

    async def _start(self) -> None:
        conf = self._directory / "namesrv.conf"
        conf.write_text(f"kvConfigPath={self._directory / 'kvConfig.json'}\n")
        await self.name_server.start()
        for name in self._broker_names:
            self._write_conf(name, listen_port=0)
            broker = ServerProcess(
                name,
                ["broker", "-n", self.namesrv, "-c", str(self._directory / f"{name}.conf")],
                self._directory / f"{name}.log",
            )
            self.brokers[name] = broker
            await broker.start()
            # A restart keeps the port, as a configured broker would.
            self._write_conf(name, listen_port=int(broker.address.rpartition(":")[2]))

    def _write_conf(self, name: str, *, listen_port: int) -> None:
        (self._directory / f"{name}.conf").write_text(
            f"brokerClusterName=demo\nbrokerName={name}\nlistenPort={listen_port}\n"
            f"storePathRootDir={self.store(name)}\n"
            # Small segments, so that Spark has several to read.
            f"mappedFileSizeCommitLog={4 << 20}\nmappedFileSizeConsumeQueue=40000\n"
            "vipChannelEnable=false\n"
        )

    async def stop(self) -> None:
        """Stop the brokers, then the name server."""
        await asyncio.gather(*(broker.stop() for broker in self.brokers.values()))
        await self.name_server.stop()
