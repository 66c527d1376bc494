"""Floods of a server process, and its resident memory."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.frame import Command, decode_command, encode_command
from tests.cli.running import TIMEOUT, Running

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="needs /proc to read the resident memory"
)
MB = 1 << 20
#: A character that takes four bytes in memory, and makes the others of its text do so, too.
WIDE = "\U0001f600"
#: Of this machine, from which clients can connect.
ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
SERVE = (
    "serve", "--ephemeral", "--listen-port", "0", "--namesrv-port", "0",
    "--set", "maxAutoCreatedGroups=1000", "--set", "enablePropertyFilter=true",
)  # fmt: skip


class Server:
    """A process of its own for each test: what one flood has freed would hide the next one."""

    def __init__(self, running: Running) -> None:
        found = running.wait_for(r"name server listening on \S+:(\d+), broker on \S+?:(\d+)")
        self.namesrv, self.broker = int(found[1]), int(found[2])
        self.line = running.wait_for("^name server listening on .*")[0]
        self._pid = running.process.pid
        self._before = self._resident()

    @property
    def grpc(self) -> int:
        """The port of its proxy."""
        return int(re.search(r"gRPC on port (\d+)", self.line)[1])  # type: ignore[index]

    @property
    def dashboard(self) -> str:
        """The address of its dashboard."""
        return re.search(r"dashboard on (http://\S+?),", self.line)[1]  # type: ignore[index]

    def _resident(self) -> int:
        pages = Path(f"/proc/{self._pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    @property
    def growth(self) -> int:
        """Bytes by which its resident memory has grown."""
        return self._resident() - self._before

    @property
    def peak(self) -> int:
        """Bytes by which it has been larger at most."""
        status = Path(f"/proc/{self._pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024 - self._before


LAST_OPAQUE = 1 << 30
LAST = encode_command(RequestCode.GET_BROKER_RUNTIME_INFO, LAST_OPAQUE)


class Peer:
    """A connection that counts the answers by their code."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def flood(
        self, frames: Iterable[bytes], answers: int, got: list[Command] | None = None
    ) -> dict[int, int]:
        """Send frames, and read so many answers, into `got` if that is given."""
        sending = asyncio.create_task(self._send(frames))
        codes: dict[int, int] = {}
        async with asyncio.timeout(TIMEOUT * 5):
            while answers:
                answer = await self._read()
                if answer.flag & 1:  # the broker also tells of changed groups
                    codes[answer.code] = codes.get(answer.code, 0) + 1
                    answers -= 1
                    if got is not None:
                        got.append(answer)
            await sending
        return codes

    async def through(self, frames: Iterable[bytes]) -> dict[int, int]:
        """Send frames of which some get no answer, and read up to that to one more request."""
        sending = asyncio.create_task(self._send(chain(frames, [LAST])))
        codes: dict[int, int] = {}
        async with asyncio.timeout(TIMEOUT * 5):
            while True:
                answer = await self._read()
                if answer.flag & 1:
                    if answer.opaque == LAST_OPAQUE:
                        break
                    codes[answer.code] = codes.get(answer.code, 0) + 1
            await sending
        return codes

    async def _read(self) -> Command:
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return decode_command(await self.reader.readexactly(size))

    async def _send(self, frames: Iterable[bytes]) -> None:
        buffer = bytearray()
        for frame in frames:
            buffer += frame
            if len(buffer) > 100_000:
                self.writer.write(bytes(buffer))
                await self.writer.drain()
                buffer.clear()
        self.writer.write(bytes(buffer))


Open = Callable[..., Awaitable[Peer]]
Serve = Callable[..., Server]


def send(
    number: int,
    topic: str,
    body: bytes = b"x",
    queue: int = 0,
    *,
    properties: str = "",
    code: int = RequestCode.SEND_MESSAGE_V2,
) -> bytes:
    fields = {
        "a": "P", "b": topic, "c": "TBW102", "d": "4", "e": str(queue), "f": "0", "g": "1",
        "h": "0", "i": properties, "j": "0", "k": "false",
    }  # fmt: skip
    return encode_command(code, number, ext_fields=fields, body=body)


def heartbeat(
    number: int, groups: Iterable[str], language: str = "JAVA", **subscription: Any
) -> bytes:
    subscriptions = [{"topic": "T", "subString": "*", "subVersion": 1} | subscription]
    consumers = [
        {"groupName": group, "subscriptionDataSet": subscriptions if subscription else []}
        for group in groups
    ]
    body = json.dumps({"clientID": "c", "consumerDataSet": consumers}).encode()
    return encode_command(RequestCode.HEART_BEAT, number, body=body, language=language)


def registration(number: int, body: Any, **header: str) -> bytes:
    fields = {"brokerName": f"b{number}", "brokerAddr": f"10.0.0.1:{number}", "clusterName": "c",
              "haServerAddr": "", "brokerId": "0", "compressed": "false"}  # fmt: skip
    return encode_command(
        RequestCode.REGISTER_BROKER,
        number,
        ext_fields=fields | header,
        body=json.dumps(body).encode(),
    )
