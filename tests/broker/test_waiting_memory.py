"""What a server process keeps for requests that wait, however large their clients make them."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.command import Command
from pocketmq.remoting.frames.frame import decode_command, encode_command
from pocketmq.remoting.headers import (
    BatchRequestHeader,
    NotificationRequestHeader,
    PopMessageRequestHeader,
    PullMessageRequestHeader,
)
from tests.broker.conftest import SUBSCRIPTION, SUSPEND
from tests.cli.running import TIMEOUT, Running

MB = 1 << 20
#: Nearly what a header may have.
LARGE = "x" * 200_000
TOPIC = "Waited"
#: What a process may grow by for what these tests send, some of which is a gigabyte as it was.
ALLOWED = 100 * MB
PULL = int(RequestCode.PULL_MESSAGE)
SERVE = ("serve", "--ephemeral", "--listen-port", "0", "--namesrv-port", "0", "--no-grpc",
         "--no-dashboard", "--set", "enablePropertyFilter=true")  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    if not Path("/proc/self/statm").exists():
        pytest.skip("no /proc/self/statm to read the resident memory from")
    with Running(*SERVE) as running:
        running.wait_for(r"broker on \S+:\d+")
        yield running


class Peer:
    """A connection that counts answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.answers: list[Command] = []
        self.opaque = 10_000_000

    async def send(self, frame: bytes) -> None:
        self._writer.write(frame)
        await self._writer.drain()

    async def settled(self) -> None:
        """All that was sent before was answered, or waits."""
        # Requests of a connection are executed in their order.
        self.opaque += 1
        await self.send(encode_command(RequestCode.GET_MAX_OFFSET, self.opaque, header=None))
        while (answer := await self.read()).opaque != self.opaque:
            self.answers.append(answer)

    async def answered(self, opaque: int) -> None:
        while not self.answers or self.answers[-1].opaque != opaque:
            self.answers.append(await self.read())

    async def read(self) -> Command:
        async with asyncio.timeout(TIMEOUT):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            return decode_command(await self._reader.readexactly(size))

    def close(self) -> None:
        self._writer.transport.abort()


@pytest.fixture
async def peer(server: Running) -> AsyncIterator[Peer]:
    port = int(server.wait_for(r"broker on \S+:(\d+)")[1])
    opened = Peer(*await asyncio.open_connection("127.0.0.1", port))
    properties = {"a": "c0", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1",
                  "h": "0", "i": "KEYS\x01k", "j": "0", "k": "false"}  # fmt: skip
    frame = encode_command(
        RequestCode.SEND_MESSAGE_V2, 1, ext_fields=properties | {"a": "PG"}, body=b"first"
    )
    await opened.send(frame)
    assert (await opened.read()).code == 0
    yield opened
    opened.close()


def resident(server: Running) -> int:
    pages = Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def pull(opaque: int, *, subscription: str = "*", kind: str = "TAG", **more: str) -> bytes:
    header = PullMessageRequestHeader(
        consumer_group="G",
        topic=TOPIC,
        queue_id=1,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=SUBSCRIPTION | SUSPEND,
        commit_offset=0,
        suspend_timeout_millis=600_000,
        sub_version=0,
        subscription=subscription,
        expression_type=kind,
    )
    fields = {name: str(value) for name, value in header.to_ext().items()} | more
    return encode_command(PULL, opaque, ext_fields=fields)


def pop(opaque: int, **more: str) -> bytes:
    header = PopMessageRequestHeader(
        consumer_group="G",
        topic=TOPIC,
        queue_id=1,
        max_msg_nums=1,
        invisible_time=60_000,
        poll_time=600_000,
        born_time=0,
        init_mode=1,
    )
    fields = {name: str(value) for name, value in header.to_ext().items()} | more
    return encode_command(RequestCode.POP_MESSAGE, opaque, ext_fields=fields)


def notification(opaque: int, **more: str) -> bytes:
    header = NotificationRequestHeader(
        consumer_group="G", topic=TOPIC, queue_id=1, poll_time=600_000, born_time=0
    )
    fields = {name: str(value) for name, value in header.to_ext().items()} | more
    return encode_command(RequestCode.NOTIFICATION, opaque, ext_fields=fields)


def parent(opaque: int, **more: str) -> bytes:
    body = pull(opaque) + pull(opaque + 1_000_000, **more)
    header = BatchRequestHeader(dispatch_code=PULL)
    return encode_command(RequestCode.COMMON_BATCH_REQUEST, opaque, header=header, body=body)


@pytest.mark.parametrize("shape", [pull, pop, notification])
async def test_unknown_fields_are_not_kept(
    server: Running, peer: Peer, shape: Callable[..., bytes]
) -> None:
    await peer.send(shape(2, unknown=LARGE))
    await peer.settled()
    before = resident(server)
    for opaque in range(100, 1_100):
        await peer.send(shape(opaque, unknown=LARGE))
    await peer.settled()

    assert peer.answers == []
    assert resident(server) - before < ALLOWED


def different_tags(number: int) -> bytes:
    return pull(number, subscription="||".join(f"{number}-{tag:020}" for tag in range(2_000)))


def different_filter(number: int) -> bytes:
    terms = " OR ".join(f"property = {number}{term:03}" for term in range(500))
    return pull(number, subscription=terms, kind="SQL92")


@pytest.mark.parametrize("shape", [different_tags, different_filter, parent])
async def test_what_has_to_be_kept_is_bounded(
    server: Running, peer: Peer, shape: Callable[..., bytes]
) -> None:
    more, count = ({"unknown": LARGE}, 1_000) if shape is parent else ({}, 200)
    await peer.send(shape(2, **more))
    await peer.settled()
    before = resident(server)
    for opaque in range(100, 100 + count):
        await peer.send(shape(opaque, **more))
    await peer.answered(opaque)

    # Some wait, and the others are answered: at once, or when their expression is compiled.
    assert 0 < len(peer.answers) < count
    assert resident(server) - before < ALLOWED
    said = r"held pulls: request from 127.0.0.1:\d+ is not held: the connection would use"
    assert re.search(said, server.everything())


async def test_subscriptions_with_very_many_tags_are_refused(peer: Peer) -> None:
    await peer.send(pull(2, subscription="||".join(map(str, range(2_049)))))
    await peer.settled()

    [answer] = peer.answers
    assert answer.code == 23
    assert "65536 and 2048 are allowed" in (answer.remark or "")
