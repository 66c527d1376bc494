from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from pocketmq.remoting.connection import Connection, split_address
from pocketmq.remoting.errors import (
    HeaderError,
    RemotingClosed,
    RemotingConnectError,
    RemotingTimeout,
    SystemBusy,
)
from pocketmq.remoting.frames.frame import decode_command
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.frame_stream import FrameStream
from pocketmq.remoting.serving.request import Request, RequestDecoder, Response
from tests.remoting.peers import (
    DEFER,
    ECHO,
    SLOW,
    TYPED,
    FakeTransport,
    NumberHeader,
    RawPeer,
    echo_server,
    frame,
    raw_frame,
)


def address(port: int) -> str:
    return f"127.0.0.1:{port}"


def transport_of(peer: RawPeer) -> asyncio.Transport:
    return cast(asyncio.Transport, peer.writer.transport)  # a socket's reads as well as it writes


class RawServer:
    """A server that does what a test tells it to; its one connection is `peer`."""

    def __init__(self) -> None:
        self.accepted: asyncio.Queue[RawPeer] = asyncio.Queue()
        self.peers: list[RawPeer] = []

    async def __aenter__(self) -> RawServer:
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = RawPeer(reader, writer)
        self.peers.append(peer)
        self.accepted.put_nowait(peer)

    async def open(self, **options: Any) -> tuple[Connection, RawPeer]:
        connection = await Connection.open(address(self.port), **options)
        return connection, await self.accepted.get()

    async def __aexit__(self, *exc: object) -> None:
        for peer in self.peers:
            peer.writer.transport.abort()
        self.server.close()


@pytest.fixture
async def raw() -> AsyncIterator[RawServer]:
    async with RawServer() as server:
        yield server


async def test_a_request_and_its_answer() -> None:
    async with echo_server() as (server, _):
        connection = await Connection.open(address(server.port))
        answer = await connection.request(ECHO, None, b"body", ext_fields={"k": "v"})
        assert (answer.code, bytes(answer.body), answer.ext_fields) == (0, b"body", {"k": "v"})
        answer = await connection.request(TYPED, NumberHeader(number=1), ext_fields={"more": "x"})
        assert answer.ext_fields == {"number": "2"}
        assert not connection.closed
        await connection.close()
        await connection.close()
        assert connection.closed


async def test_an_error_answer_is_an_answer() -> None:
    async with echo_server() as (server, _):
        connection = await Connection.open(address(server.port))
        assert (await connection.request(4242)).code == 3
        await connection.close()


async def test_answers_come_in_any_order(raw: RawServer) -> None:
    connection, peer = await raw.open()
    asked = [asyncio.ensure_future(connection.request(10, None, b"%d" % i)) for i in range(100)]
    frames = [await peer.read() for _ in asked]
    for command in reversed(frames):
        peer.send(frame(0, command.opaque, flag=1, body=bytes(command.body)))
    answers = await asyncio.gather(*asked)
    assert [bytes(a.body) for a in answers] == [b"%d" % i for i in range(100)]
    await connection.close()


async def test_requests_of_one_turn_leave_in_one_write() -> None:
    dispatcher = Dispatcher()
    stream = FrameStream(dispatcher, RequestDecoder(dispatcher.header_types))
    stream.connection_made(transport := FakeTransport())
    asked = [asyncio.ensure_future(stream.send_request(10, None, b"x")) for _ in range(50)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(transport.writes) == 1
    assert len(transport.commands()) == 50
    stream.connection_lost(None)
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(answer) for answer in answers} == {RemotingClosed}


async def test_a_request_without_an_answer_times_out(raw: RawServer) -> None:
    connection, peer = await raw.open()
    with pytest.raises(RemotingTimeout, match=r"0\.05 s"):
        await connection.request(10, timeout=0.05)
    late = await peer.read()
    asked = asyncio.ensure_future(connection.request(11))
    peer.send(frame(0, late.opaque, flag=1, body=b"late"))
    command = await peer.read()
    peer.send(frame(0, command.opaque, flag=1, body=b"in time"))
    assert bytes((await asked).body) == b"in time"
    await connection.close()


async def test_a_cancelled_request_leaves_nothing(raw: RawServer) -> None:
    connection, peer = await raw.open()
    asked = asyncio.ensure_future(connection.request(10, timeout=60.0))
    command = await peer.read()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert connection.pending == 0
    peer.send(frame(0, command.opaque, flag=1))
    follow = asyncio.ensure_future(connection.request(11))
    command = await peer.read()
    peer.send(frame(0, command.opaque, flag=1))
    assert (await follow).code == 0
    await connection.close()


async def test_pending_requests_end_when_the_server_goes(raw: RawServer) -> None:
    connection, peer = await raw.open()
    closed: list[Connection] = []
    connection.on_close(closed.append)
    asked = [asyncio.ensure_future(connection.request(10, timeout=60.0)) for _ in range(5)]
    for _ in asked:
        await peer.read()
    peer.writer.transport.abort()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(r) for r in results] == [RemotingClosed] * 5
    assert closed == [connection]
    with pytest.raises(RemotingClosed):
        await connection.request(10)
    with pytest.raises(RemotingClosed):
        await connection.send_oneway(10)
    connection.on_close(closed.append)
    assert len(closed) == 2


@pytest.mark.parametrize("end", ["closes", "resets"])
async def test_only_a_server_that_closes_at_the_first_bytes_may_expect_tls(
    raw: RawServer, end: str
) -> None:
    """One that was killed resets the connection; one that answered speaks the protocol."""
    connection, peer = await raw.open()
    asked = asyncio.ensure_future(connection.request(10, timeout=60.0))
    await peer.read()
    if end == "resets":
        linger = struct.pack("ii", 1, 0)
        peer.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        peer.writer.transport.abort()
    else:
        peer.writer.close()
    with pytest.raises(RemotingClosed) as raised:
        await asked
    assert ("TLS" in str(raised.value)) == (end == "closes")


async def test_a_client_that_closes_itself_says_nothing_of_tls(raw: RawServer) -> None:
    connection, peer = await raw.open()
    asked = asyncio.ensure_future(connection.request(10, timeout=60.0))
    await peer.read()
    await connection.close()
    with pytest.raises(RemotingClosed) as raised:
        await asked
    assert "TLS" not in str(raised.value)


async def test_ten_thousand_requests_at_once() -> None:
    async with echo_server() as (server, echo):
        connection = await Connection.open(address(server.port))
        asked = [
            asyncio.ensure_future(connection.request(DEFER, None, b"%d" % i, timeout=60.0))
            for i in range(10_000)
        ]
        while len(echo.deferred) < 10_000:
            echo.arrived.clear()
            await echo.arrived.wait()
        for request in reversed(echo.deferred):
            request.reply(Response(body=bytes(request.body)))
        answers = await asyncio.gather(*asked)
        assert [bytes(a.body) for a in answers] == [b"%d" % i for i in range(10_000)]
        await connection.close()


async def test_pending_requests_are_bounded(raw: RawServer) -> None:
    connection, peer = await raw.open(max_pending=2)
    asked = [asyncio.ensure_future(connection.request(10)) for _ in range(2)]
    commands = [await peer.read() for _ in asked]
    with pytest.raises(SystemBusy):
        await connection.request(10)
    for command in commands:
        peer.send(frame(0, command.opaque, flag=1))
    await asyncio.gather(*asked)
    third = asyncio.ensure_future(connection.request(10))
    peer.send(frame(0, (await peer.read()).opaque, flag=1))
    await third
    await connection.close()


async def test_oneway_requests_carry_the_flag(raw: RawServer) -> None:
    connection, peer = await raw.open()
    await connection.send_oneway(15, NumberHeader(number=3), b"x")
    command = await peer.read()
    assert (command.code, command.flag, command.ext_fields) == (15, 2, {"number": "3"})
    await connection.close()


@pytest.mark.parametrize("kind", ["request", "oneway"])
async def test_a_server_that_does_not_read_makes_senders_wait(raw: RawServer, kind: str) -> None:
    connection, peer = await raw.open()
    block = b"x" * (1 << 20)

    async def send() -> None:
        if kind == "oneway":
            await connection.send_oneway(10, None, block, timeout=60.0)
        else:
            await connection.request(10, None, block, timeout=60.0)

    transport_of(peer).pause_reading()
    senders = [asyncio.ensure_future(send())]
    while connection.writable:
        senders.append(asyncio.ensure_future(send()))
        await asyncio.sleep(0)
    blocked = connection.unsent
    late = asyncio.ensure_future(send())
    with pytest.raises(RemotingTimeout):
        await connection.request(10, timeout=0.05)
    assert not late.done()
    assert connection.unsent == blocked
    transport_of(peer).resume_reading()
    for _ in range(len(senders) + 1):
        command = await peer.read()
        peer.send(frame(0, command.opaque, flag=1))
    await asyncio.gather(*senders, late)
    await connection.close()


async def test_senders_that_wait_end_when_the_server_goes(raw: RawServer) -> None:
    connection, peer = await raw.open()
    transport_of(peer).pause_reading()
    while connection.writable:
        await connection.send_oneway(10, None, b"x" * (1 << 20))
        await asyncio.sleep(0)
    waiting = asyncio.ensure_future(connection.request(10, timeout=60.0))
    await asyncio.sleep(0)
    peer.writer.transport.abort()
    with pytest.raises(RemotingClosed):
        await waiting


# What the server asks


async def test_a_pushed_request_is_executed_and_answered(raw: RawServer) -> None:
    dispatcher = Dispatcher()
    seen: list[Request[NumberHeader]] = []

    def handle(request: Request[NumberHeader]) -> Response:
        seen.append(request)
        return Response(body=b"done", header=NumberHeader(number=request.header.number * 2))

    dispatcher.register(307, handle, NumberHeader)
    connection, peer = await raw.open(dispatcher=dispatcher)
    asked = asyncio.ensure_future(connection.request(10))
    mine = await peer.read()
    # The same opaque both ways, and the push before the answer.
    peer.send(frame(307, mine.opaque, ext_fields={"number": "21"}))
    pushed = await peer.read()
    assert (pushed.flag, pushed.opaque, bytes(pushed.body)) == (1, mine.opaque, b"done")
    assert pushed.ext_fields == {"number": "42"}
    assert not asked.done()
    peer.send(frame(0, mine.opaque, flag=1))
    await asked
    assert seen[0].connection.peer[1] == raw.port
    await connection.close()


async def test_an_asynchronous_push_handler(raw: RawServer) -> None:
    dispatcher = Dispatcher()
    release = asyncio.Event()

    async def handle(request: Request[Any]) -> Response:
        await release.wait()
        return Response(body=b"later")

    dispatcher.register(309, handle)
    connection, peer = await raw.open(dispatcher=dispatcher)
    peer.send(frame(309, 5))
    peer.send(frame(311, 6))
    assert (await peer.read()).code == 3
    release.set()
    assert bytes((await peer.read()).body) == b"later"
    await connection.close()


async def test_a_oneway_push_is_not_answered(raw: RawServer) -> None:
    dispatcher = Dispatcher()
    arrived = asyncio.Event()

    def handle(request: Request[Any]) -> Response:
        arrived.set()
        return Response()

    dispatcher.register(40, handle)
    connection, peer = await raw.open(dispatcher=dispatcher)
    peer.send(frame(40, 1, flag=2))
    await arrived.wait()
    await connection.send_oneway(77)
    assert (await peer.read()).code == 77
    await connection.close()


# Servers that misbehave


async def test_an_answer_that_can_not_be_read_fails_its_request_only(raw: RawServer) -> None:
    connection, peer = await raw.open()
    asked = asyncio.ensure_future(connection.request(10))
    opaque = (await peer.read()).opaque
    peer.send(raw_frame(b'{"code":"zero","flag":1,"opaque":%d}' % opaque))
    with pytest.raises(HeaderError):
        await asked
    again = asyncio.ensure_future(connection.request(10))
    peer.send(frame(0, (await peer.read()).opaque, flag=1))
    await again
    await connection.close()


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        raw_frame(b"\xff\xfe"),
        b"\x00\x00\x00\x04\x05\x00\x00\x00",
    ],
)
async def test_garbage_from_the_server_closes_with_a_log_line(
    raw: RawServer, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    connection, peer = await raw.open()
    asked = asyncio.ensure_future(connection.request(10, timeout=60.0))
    await peer.read()
    with caplog.at_level(logging.WARNING, logger="pocketmq.remoting"):
        peer.send(data)
        with pytest.raises(RemotingClosed):
            await asked
    (record,) = caplog.records
    assert str(raw.port) in record.getMessage()
    assert connection.closed


async def test_requests_of_the_server_that_can_not_be_read_are_passed_over(
    raw: RawServer, caplog: pytest.LogCaptureFixture
) -> None:
    dispatcher = Dispatcher()
    dispatcher.register(307, lambda request: Response(), NumberHeader)
    connection, peer = await raw.open(dispatcher=dispatcher)
    peer.send(frame(307, 1) * 100)
    peer.send(frame(307, 2, ext_fields={"number": "1"}))
    answers = [await peer.read()]
    while answers[-1].opaque != 2:
        answers.append(await peer.read())
    assert answers[-1].code == 0
    assert len(caplog.messages) == 1
    await connection.close()


# Connecting


async def test_no_server_is_a_connect_error() -> None:
    async with RawServer() as gone:
        port = gone.port
    with pytest.raises(RemotingConnectError, match=str(port)):
        await Connection.open(address(port))


async def test_a_connect_that_takes_too_long_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
    with pytest.raises(RemotingConnectError, match=r"0\.05 s"):
        await Connection.open("127.0.0.1:1", timeout=0.05)


@pytest.mark.parametrize("bad", ["", "host", ":9876", "host:", "host:x", "host:0", "host:70000"])
async def test_a_bad_address_is_a_connect_error_that_names_it(bad: str) -> None:
    with pytest.raises(RemotingConnectError, match="is not an address"):
        await Connection.open(bad)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876)),
        (" broker-a:10911 ", ("broker-a", 10911)),
        ("[::1]:9876", ("::1", 9876)),
    ],
)
def test_split_address(text: str, parts: tuple[str, int]) -> None:
    assert split_address(text) == parts


async def test_slow_answers_do_not_delay_others() -> None:
    async with echo_server() as (server, echo):
        connection = await Connection.open(address(server.port))
        slow = asyncio.ensure_future(connection.request(SLOW))
        await echo.arrived.wait()
        assert (await connection.request(ECHO)).code == 0
        assert not slow.done()
        echo.release.set()
        assert (await slow).remark == "slow"
        await connection.close()


async def test_frames_are_understood_by_the_decoder_of_either_side() -> None:
    for kind in (0, 1):
        data = frame(TYPED, 3, ext_fields={"number": "1"}, serialize_type=kind)
        assert decode_command(data[4:]).code == TYPED
