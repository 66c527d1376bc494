"""What a server process keeps for clients that send as much as they can of one thing: by its
resident memory, since a limit in entries says little about bytes."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.frame import decode_command, encode_command
from tests.cli.running import TIMEOUT, Running

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="needs /proc to read the resident memory"
)
MB = 1 << 20
#: A character that takes four bytes in memory, and makes the others of its text do so, too.
WIDE = "\U0001f600"
SERVE = ("serve", "--ephemeral", "--listen-port", "0", "--namesrv-port", "0", "--no-grpc",
         "--no-dashboard", "--set", "maxAutoCreatedGroups=1000",
         "--set", "enablePropertyFilter=true")  # fmt: skip


class Server:
    """A process of its own for each test: what one flood has freed would hide the next one."""

    def __init__(self, running: Running) -> None:
        found = running.wait_for(r"name server listening on \S+:(\d+), broker on \S+?:(\d+)")
        self.namesrv, self.broker = int(found[1]), int(found[2])
        self._pid = running.process.pid
        self._before = self._resident()

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


@pytest.fixture
def server() -> Iterator[Server]:
    with Running(*SERVE) as running:
        yield Server(running)


class Peer:
    """A connection that counts the answers by their code."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    async def flood(self, frames: Iterable[bytes], answers: int) -> dict[int, int]:
        """Send frames, and read so many answers."""
        sending = asyncio.create_task(self._send(frames))
        codes: dict[int, int] = {}
        async with asyncio.timeout(TIMEOUT * 5):
            while answers:
                size = int.from_bytes(await self._reader.readexactly(4), "big")
                answer = decode_command(await self._reader.readexactly(size))
                if answer.flag & 1:  # the broker also tells of changed groups
                    codes[answer.code] = codes.get(answer.code, 0) + 1
                    answers -= 1
            await sending
        return codes

    async def _send(self, frames: Iterable[bytes]) -> None:
        for frame in frames:
            self.writer.write(frame)
            await self.writer.drain()


Open = Callable[[int], Awaitable[Peer]]


@pytest.fixture
async def open_peer() -> AsyncIterator[Open]:
    opened: list[Peer] = []

    async def open_one(port: int) -> Peer:
        opened.append(Peer(*await asyncio.open_connection("127.0.0.1", port)))
        return opened[-1]

    yield open_one
    for peer in opened:
        peer.writer.transport.abort()


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


def languages(number: int) -> bytes:
    return heartbeat(number, [f"G{number}"], language="x" * 200_000)


def expression_types(number: int) -> bytes:
    return heartbeat(number, [f"G{number}"], expressionType="x" * 400_000)


@pytest.mark.parametrize("shape", [languages, expression_types])
async def test_what_a_heartbeat_says_is_bounded(
    server: Server, open_peer: Open, shape: Callable[[int], bytes]
) -> None:
    peer = await open_peer(server.broker)
    await peer.flood(map(shape, range(1_000)), 1_000)
    # 200 to 400 MB were sent; the subscriptions of all groups may have 64.
    assert server.growth < 90 * MB


async def test_locks_are_bounded(server: Server, open_peer: Open) -> None:
    def locks(number: int) -> bytes:
        queues = [
            {"brokerName": "b", "queueId": 0, "topic": f"{number}-{n}".ljust(900, WIDE)}
            for n in range(60)
        ]
        fields = {"clientId": "c", "consumerGroup": "G", "mqSet": queues}
        body = json.dumps(fields, ensure_ascii=False).encode()
        return encode_command(RequestCode.LOCK_BATCH_MQ, number, body=body)

    peer = await open_peer(server.broker)
    assert await peer.flood(map(locks, range(250)), 250) == {0: 250}
    # Names of 54 MB.
    assert server.growth < 20 * MB


async def test_queries_that_wait_keep_no_bodies(server: Server, open_peer: Open) -> None:
    fields = {"topic": "T", "key": "k", "maxNum": "64", "beginTimestamp": "0", "endTimestamp": "9"}

    def query(number: int) -> bytes:
        return encode_command(RequestCode.QUERY_MESSAGE, number, ext_fields=fields, body=bytes(MB))

    peers = [await open_peer(server.broker) for _ in range(8)]
    await asyncio.gather(*(peer.flood(map(query, range(100)), 100) for peer in peers))
    assert server.peak < 60 * MB


def registration(number: int, body: Any, **header: str) -> bytes:
    fields = {"brokerName": f"b{number}", "brokerAddr": f"10.0.0.1:{number}", "clusterName": "c",
              "haServerAddr": "", "brokerId": "0", "compressed": "false"}  # fmt: skip
    return encode_command(
        RequestCode.REGISTER_BROKER,
        number,
        ext_fields=fields | header,
        body=json.dumps(body).encode(),
    )


def addresses(number: int) -> bytes:
    return registration(number, {}, haServerAddr="h" * 200_000)


def zones(number: int) -> bytes:
    return registration(number, {}, __ZONE_NAME="z" * 200_000)


@pytest.mark.parametrize("shape", [addresses, zones])
async def test_what_a_broker_says_of_itself_is_bounded(
    server: Server, open_peer: Open, shape: Callable[[int], bytes]
) -> None:
    peer = await open_peer(server.namesrv)
    assert await peer.flood(map(shape, range(300)), 300) == {1: 300}
    assert server.growth < 20 * MB
