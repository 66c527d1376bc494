from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import socket
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import HeaderError, RemotingClosed, RemotingTimeout
from pocketmq.remoting.frames.first_bytes import PROTOCOL_VERSION_ALERT
from pocketmq.remoting.frames.frame import SerializeType
from pocketmq.remoting.frames.frame_memory import FrameMemory
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.frame_stream import FLUSH_SIZE, HIGH_WATER, MAX_TASKS
from pocketmq.remoting.serving.light_clients import ACTIVE_SECONDS
from pocketmq.remoting.serving.listening import PortInUse
from pocketmq.remoting.serving.request import MAX_REQUEST_HEADER, Request, Response
from pocketmq.remoting.serving.server import (
    FREE_SMALL_READS,
    LARGE_ANSWERS,
    LARGE_READ,
    LIGHT_READ,
    MOST_TOGETHER,
    SHORTEST_REST,
    SMALL_READ,
    TURN,
    RemotingServer,
    ServerConnection,
)
from pocketmq.remoting.socket_options import MOST_UNSENT
from tests.remoting.peers import (
    DEFER,
    ECHO,
    FAIL,
    LARGE,
    SLOW,
    TYPED,
    Echo,
    FakeTransport,
    RawPeer,
    echo_server,
    frame,
    raw_frame,
)


async def test_answers_come_in_the_serialization_of_the_request() -> None:
    async with echo_server() as (server, _):
        peer = await RawPeer.open(server.port)
        for kind in (0, 1):
            peer.send(frame(ECHO, 7, body=b"hello", ext_fields={"a": "1"}, serialize_type=kind))
            raw = await peer.read_raw()
            assert raw[0] == kind
        peer.send(frame(ECHO, 8, body=b"hello", ext_fields={"a": "1"}))
        answer = await peer.read()
        assert (answer.code, answer.opaque, answer.flag) == (0, 8, 1)
        assert bytes(answer.body) == b"hello"
        assert answer.ext_fields == {"a": "1"}
        assert answer.remark == "echo"
        await peer.close()


async def test_typed_headers_reach_the_handler_and_come_back() -> None:
    async with echo_server() as (server, _):
        peer = await RawPeer.open(server.port)
        for opaque in (1, 2):
            peer.send(frame(TYPED, opaque, ext_fields={"number": "41"}))
            assert (await peer.read()).ext_fields == {"number": "42"}
        await peer.close()


async def test_a_frame_may_come_byte_by_byte() -> None:
    async with echo_server() as (server, echo):
        peer = await RawPeer.open(server.port)
        data = frame(ECHO, 1, body=b"slowly") + frame(ECHO, 2)
        for byte in data[:-1]:
            peer.send(bytes([byte]))
            await peer.writer.drain()
            await asyncio.sleep(0)
        assert (await peer.read()).opaque == 1
        assert len(echo.seen) == 1
        peer.send(data[-1:])
        assert (await peer.read()).opaque == 2
        await peer.close()


async def test_unknown_codes_and_failing_handlers_are_answered() -> None:
    async with echo_server() as (server, _):
        peer = await RawPeer.open(server.port)
        peer.send(frame(4242, 1) + frame(FAIL, 2) + frame(ECHO, 3))
        unknown, failed, fine = [await peer.read() for _ in range(3)]
        assert unknown.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "4242" in (unknown.remark or "")
        assert failed.code == ResponseCode.SYSTEM_ERROR
        assert "ZeroDivisionError" in (failed.remark or "")
        assert fine.code == 0
        await peer.close()


async def test_oneway_requests_are_executed_and_never_answered() -> None:
    async with echo_server() as (server, echo):
        peer = await RawPeer.open(server.port)
        echo.release.set()
        for code in (ECHO, FAIL, SLOW, TYPED, 4242):
            peer.send(frame(code, 1, flag=2))
        peer.send(frame(DEFER, 2, flag=2))
        peer.send(frame(ECHO, 99))
        assert (await peer.read()).opaque == 99
        echo.deferred[0].reply(Response(remark="nobody listens"))
        peer.send(frame(ECHO, 100))
        assert (await peer.read()).opaque == 100
        # The slow one is a task, which runs at some time after the others have begun.
        await turns_until(lambda: SLOW in [request.code for request in echo.seen])
        quick = [request.code for request in echo.seen if request.code != SLOW]
        assert quick == [ECHO, FAIL, DEFER, ECHO, ECHO]
        assert len(echo.seen) == 6
        await peer.close()


async def test_an_answer_that_can_not_be_written_fails_its_request_only() -> None:
    server = serving(Echo())
    connection, transport = connect(server)

    def wrong(request: Request[Any]) -> Response:
        return Response(ext_fields={"key": object()}, body=b"x")  # type: ignore[dict-item]

    server.dispatcher.register(78, wrong)
    await received(connection, frame(78, 1) + frame(ECHO, 2))
    failed, fine = transport.commands()
    assert (failed.opaque, failed.code) == (1, ResponseCode.SYSTEM_ERROR)
    assert not failed.body
    assert (fine.opaque, fine.code) == (2, 0)


# What a broken client can send


async def close_reason(caplog: pytest.LogCaptureFixture, port: int, data: bytes) -> str:
    """Sends `data` on a connection of its own and returns the line logged at its end."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="pocketmq.remoting"):
        peer = await RawPeer.open(port)
        peer.send(data)
        # A client that begins TLS understands nothing but its alerts.
        answer = PROTOCOL_VERSION_ALERT if data.startswith(b"\x16") else b""
        assert await peer.read_to_end() == answer
        await peer.close()
    (record,) = caplog.records
    return record.getMessage()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xff\xff\xff\xff rubbish", "length"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "length"),
        ((16_777_213).to_bytes(4, "big") + b"rest", "16777213"),
        ((3).to_bytes(4, "big") + b"abc", "3"),
        ((8).to_bytes(4, "big") + b"\x00\x00\xff\xff" + b"1234", "header"),
        ((8).to_bytes(4, "big") + b"\x07\x00\x00\x02" + b"{}xx", "7"),
        (raw_frame(b"not json at all"), "header"),
        (raw_frame(b"\x00\x01", kind=1), "header"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "gRPC"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", "TLS"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", "PROXY"),
    ],
)
async def test_garbage_closes_the_connection_with_one_log_line(
    caplog: pytest.LogCaptureFixture, data: bytes, words: str
) -> None:
    async with echo_server(name="broker") as (server, _):
        bystander = await RawPeer.open(server.port)
        assert words in await close_reason(caplog, server.port, data)
        bystander.send(frame(ECHO, 1))
        assert (await bystander.read()).opaque == 1
        await bystander.close()


async def test_first_bytes_are_recognised_across_reads(caplog: pytest.LogCaptureFixture) -> None:
    async with echo_server() as (server, _):
        with caplog.at_level(logging.WARNING, logger="pocketmq.remoting"):
            peer = await RawPeer.open(server.port)
            for byte in b"POST":
                peer.send(bytes([byte]))
                await peer.writer.drain()
                await asyncio.sleep(0)
            assert not caplog.records
            peer.send(b" /x")
            assert await peer.read_to_end() == b""
            await peer.close()
        assert f"port {server.port}" in caplog.text


async def test_a_flood_of_garbage_leaves_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with echo_server() as (server, _):
        for number in range(50):
            peer = await RawPeer.open(server.port)
            peer.send(frame(ECHO, 1) + raw_frame(b"no header %d" % number))
            await peer.read_to_end()
            await peer.close()
    (line,) = caplog.messages
    assert "closed: broken JSON header" in line


@pytest.mark.parametrize(
    "broken",
    [
        b'{"flag":1,"opaque":%d,"code":"x"}',
        b'{"code":9005,"flag":1,"opaque":%d,"extFields":7}',
        b'{"code":0,"flag":1,"opaque":%d,"version":"x"}',
    ],
)
async def test_an_answer_that_cannot_be_read_fails_its_request_only(
    caplog: pytest.LogCaptureFixture, broken: bytes
) -> None:
    async with echo_server() as (server, _):
        peer = await RawPeer.open(server.port)
        connection = await server_side(server, peer)
        question = asyncio.ensure_future(connection.send_request(307, timeout=60.0))
        pushed = await peer.read()
        peer.send(raw_frame(broken % pushed.opaque) + frame(ECHO, 5))
        assert (await peer.read()).opaque == 5
        with pytest.raises(HeaderError):
            await question
        await peer.close()
    assert not caplog.records


async def test_requests_before_the_garbage_are_answered() -> None:
    async with echo_server() as (server, _):
        peer = await RawPeer.open(server.port)
        peer.send(frame(ECHO, 5) + b"\xff\xff\xff\xff")
        assert (await peer.read()).opaque == 5
        assert await peer.read_to_end() == b""
        await peer.close()


async def test_a_bad_header_with_an_opaque_is_answered_and_the_connection_lives() -> None:
    async with echo_server() as (server, _):
        peer = await RawPeer.open(server.port)
        peer.send(frame(TYPED, 11, ext_fields={"number": "many"}))
        peer.send(frame(TYPED, 12))
        peer.send(frame(TYPED, 13, flag=2))
        peer.send(raw_frame(b'{"code":9001,"opaque":14,"extFields":[1]}'))
        peer.send(frame(TYPED, 15, ext_fields={"number": "x"}, serialize_type=1))
        peer.send(frame(ECHO, 16))
        answers = [await peer.read() for _ in range(5)]
        assert [a.opaque for a in answers] == [11, 12, 14, 15, 16]
        assert [a.code for a in answers] == [ResponseCode.SYSTEM_ERROR] * 4 + [0]
        assert "number" in (answers[0].remark or "")
        assert answers[3].serialize_type == 1
        await peer.close()


async def test_a_half_frame_and_a_goodbye_leave_nothing() -> None:
    async with echo_server() as (server, echo):
        lost = asyncio.Event()
        server.on_connection_lost.append(lambda _: lost.set())
        peer = await RawPeer.open(server.port)
        peer.send(frame(ECHO, 1, body=b"x" * 1000)[:500])
        await peer.writer.drain()
        await peer.close()
        await lost.wait()
        assert not server.connections
        assert not echo.seen


@pytest.mark.parametrize("by_peer", [True, False])
async def test_a_connection_knows_which_end_closed_it(by_peer: bool) -> None:
    async with echo_server() as (server, _):
        peer = await RawPeer.open(server.port)
        connection = await server_side(server, peer)
        await (peer.close() if by_peer else closed(connection))
        await connection.wait_closed()
        assert connection.ended_by_peer is by_peer
        if not by_peer:
            await peer.close()


async def closed(connection: ServerConnection) -> None:
    connection.close()


async def test_a_reader_that_never_reads_is_not_served_further_and_costs_others_nothing() -> None:
    async with echo_server() as (server, echo):
        greedy = await RawPeer.open(server.port)
        count = 2000
        greedy.send(b"".join(frame(LARGE, i) for i in range(1, count + 1)))
        other = await RawPeer.open(server.port)
        for i in range(200):
            other.send(frame(ECHO, i))
            assert (await other.read()).opaque == i
        served = sum(r.code == LARGE for r in echo.seen)
        assert 0 < served < count / 4, "half a gigabyte of answers was made for nobody"
        unsent = sum(connection.unsent for connection in server.connections)
        assert unsent < HIGH_WATER + FLUSH_SIZE + 2 * len(echo.large)
        # Once it reads, it gets everything.
        for i in range(1, count + 1):
            answer = await greedy.read()
            assert answer.opaque == i
            assert len(answer.body) == len(echo.large)
        await greedy.close()
        await other.close()


async def test_deferred_answers_over_the_write_limit_drop_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with echo_server(write_limit=4 << 20) as (server, echo):
        lost = asyncio.Event()
        server.on_connection_lost.append(lambda _: lost.set())
        peer = await RawPeer.open(server.port)
        count = 400
        peer.send(b"".join(frame(DEFER, i) for i in range(count)))
        while len(echo.deferred) < count:
            echo.arrived.clear()
            await echo.arrived.wait()
        with caplog.at_level(logging.WARNING, logger="pocketmq.remoting"):
            for request in echo.deferred:
                request.reply(Response(body=echo.large))
            await lost.wait()
        (record,) = caplog.records
        assert "unread" in record.getMessage()
        assert not server.connections
        await peer.close()


def read_to_end(peer: socket.socket) -> None:
    while peer.recv(1 << 20):
        pass


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="Linux has it, and macOS")
async def test_the_kernel_keeps_little_for_who_does_not_read() -> None:
    """What it keeps counts in no limit, and its memory for that is one for the whole machine."""
    async with echo_server() as (server, echo):
        with socket.create_connection(("127.0.0.1", server.port)) as peer:
            count = 40
            peer.sendall(b"".join(frame(DEFER, n) for n in range(count)))
            await turns_until(lambda: len(echo.deferred) == count)
            [connection] = server.connections
            for request in echo.deferred:
                request.reply(Response(body=echo.large))
            await turns_until(lambda: connection in server.unread)
            sent = count * len(echo.large) - connection.unsent
            receiving = peer.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            assert sent < MOST_UNSENT + len(echo.large) + receiving
            # What it keeps goes with the connection.
            connection.abort("it does not read")
            await connection.wait_closed()
            with pytest.raises(ConnectionResetError):
                read_to_end(peer)


async def test_unread_answers_of_all_connections_are_bounded() -> None:
    async with echo_server(unread_limit=24 << 20) as (server, echo):
        lost: asyncio.Queue[object] = asyncio.Queue()
        server.on_connection_lost.append(lost.put_nowait)
        peers = []
        for requests in (20, 160, 20):
            peers.append(peer := await RawPeer.open(server.port))
            before = len(echo.deferred)
            peer.send(b"".join(frame(DEFER, i) for i in range(requests)))
            while len(echo.deferred) < before + requests:
                echo.arrived.clear()
                await echo.arrived.wait()
        for request in echo.deferred:
            request.reply(Response(body=echo.large))
        greedy = echo.deferred[20].connection
        assert await lost.get() is greedy
        assert len(server.connections) == 2
        assert server.unread <= server.connections
        for peer in peers:
            await peer.close()


async def test_many_connections_with_few_unread_answers_are_bounded() -> None:
    """Five thousand connections of an address could keep 1 MiB each."""
    async with echo_server(unread_limit=900 << 10, few_connections=3) as (server, echo):
        lost: asyncio.Queue[object] = asyncio.Queue()
        server.on_connection_lost.append(lost.put_nowait)
        peers = [await RawPeer.open(server.port) for _ in range(4)]
        for peer in peers:
            before = len(echo.deferred)
            peer.send(b"".join(frame(DEFER, i) for i in range(1000)))
            while len(echo.deferred) < before + 1000:
                echo.arrived.clear()
                await echo.arrived.wait()
        body = bytes(64 << 10)
        for first in range(0, 4000, 1000):
            connection = echo.deferred[first].connection
            assert isinstance(connection, ServerConnection)
            for request in echo.deferred[first : first + 1000]:
                if connection.closed or connection.unsent > 256 << 10:
                    break
                request.reply(Response(body=body))
                await asyncio.sleep(0)
        assert not server.unread, "none has more than the high water"
        assert (await lost.get()) in {echo.deferred[n].connection for n in (0, 1000, 2000, 3000)}
        for peer in peers:
            await peer.close()


async def test_an_answer_for_a_connection_that_is_gone_is_dropped() -> None:
    async with echo_server() as (server, echo):
        lost = asyncio.Event()
        peer = await RawPeer.open(server.port)
        peer.send(frame(DEFER, 1) + frame(SLOW, 2))
        while len(echo.seen) < 2:
            echo.arrived.clear()
            await echo.arrived.wait()
        (request,) = echo.deferred
        request.connection.add_close_callback(lambda _: lost.set())
        await peer.close()
        await lost.wait()
        assert request.connection.closed
        request.reply(Response())
        assert len(server.tasks) == 1, "an operation that began is carried through"
        echo.release.set()
        await asyncio.gather(*server.tasks)
        called: list[object] = []
        request.connection.add_close_callback(called.append)
        assert called == [request.connection]


# Any bytes, in any pieces


def serve(pieces: list[bytes]) -> tuple[FakeTransport, list[Request[Any]]]:
    """What a connection that receives `pieces` answers and executes."""

    async def run() -> tuple[FakeTransport, list[Request[Any]]]:
        connection, transport = connected(echo := Echo())
        for piece in pieces:
            if not transport.ended:
                connection.data_received(piece)
        for request in echo.deferred:
            request.reply(Response())
        await asyncio.sleep(0)
        return transport, echo.seen

    return asyncio.run(run())


FRAMES = st.builds(
    frame,
    st.sampled_from([ECHO, DEFER, FAIL, TYPED, LARGE, 4242]),
    st.integers(0, 2**31 - 1),
    flag=st.sampled_from([0, 1, 2, 3]),
    body=st.binary(max_size=64),
    ext_fields=st.none() | st.dictionaries(st.sampled_from(["number", "x"]), st.text(max_size=8)),
    serialize_type=st.sampled_from([0, 1]),
)


@settings(deadline=None)
@given(st.lists(FRAMES, max_size=6), st.data())
def test_the_answers_do_not_depend_on_how_frames_are_cut(
    frames: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    bounds = [0, *cuts, len(stream)]
    pieces = [stream[a:b] for a, b in itertools.pairwise(bounds) if a < b]
    whole, _ = serve([stream] if stream else [])
    cut, _ = serve(pieces)
    assert b"".join(cut.writes) == b"".join(whole.writes)
    assert not cut.ended


@settings(deadline=None)
@given(st.lists(st.binary(min_size=1) | FRAMES, max_size=6))
def test_no_bytes_do_more_than_close_the_connection(pieces: list[bytes]) -> None:
    transport, _ = serve(pieces)
    assert transport.ended in ("", "closed")
    for command in transport.commands():
        assert command.flag == 1


@settings(deadline=None)
@given(FRAMES, st.data())
def test_a_changed_byte_does_no_more_than_close_the_connection(
    good: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[at] = data.draw(st.integers(0, 255))
    transport, _ = serve([bytes(bad), good])
    assert transport.ended in ("", "closed")
    assert len(transport.commands()) <= 3


# Writes


def serving(processor: Echo, **options: Any) -> RemotingServer:
    """A server that does not listen; its clock stands still, unless the test is about turns."""
    dispatcher = Dispatcher()
    processor.register(dispatcher)
    return RemotingServer(dispatcher, **{"clock": lambda: 0.0, **options})


def connect(
    server: RemotingServer, transport: FakeTransport | None = None
) -> tuple[ServerConnection, FakeTransport]:
    """A client's connection to it."""
    transport = transport or FakeTransport()
    connection = ServerConnection(server)
    connection.connection_made(transport)
    return connection, transport


def connected(processor: Echo, **options: Any) -> tuple[ServerConnection, FakeTransport]:
    return connect(serving(processor, **options))


async def turns_until(condition: Callable[[], bool]) -> None:
    """Let the event loop take turns until the condition holds."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("not within 1000 turns")


async def received(connection: ServerConnection, data: bytes) -> None:
    """A read, and the end of its turn of the event loop."""
    connection.data_received(data)
    await asyncio.sleep(0)


async def test_all_answers_of_one_read_leave_in_one_write() -> None:
    connection, transport = connected(Echo())
    await received(connection, b"".join(frame(ECHO, i, body=b"x" * i) for i in range(100)))
    assert len(transport.writes) == 1
    assert [c.opaque for c in transport.commands()] == list(range(100))
    await received(connection, frame(ECHO, 100)[:9])
    assert len(transport.writes) == 1


async def test_answers_leave_at_the_end_of_the_turn() -> None:
    """Two reads of one connection, and a read of another: each connection is answered in one
    write, and what comes before the answers is done once, when all have been read."""
    events: list[str] = []
    server = serving(echo := Echo(), before_answers=lambda: events.append("before"))
    one, transport = connect(server)
    other, other_transport = connect(server)
    for connection, opaque in ((one, 1), (other, 2), (one, 3)):
        connection.data_received(frame(ECHO, opaque))
        events.append("read")
    assert not transport.writes
    assert not other_transport.writes
    await asyncio.sleep(0)
    assert events == ["read"] * 3 + ["before"]
    assert len(transport.writes) == len(other_transport.writes) == 1
    assert [c.opaque for c in transport.commands()] == [1, 3]
    assert [c.opaque for c in other_transport.commands()] == [2]
    assert len(echo.seen) == 3


async def test_large_answers_do_not_wait_for_the_end_of_the_turn() -> None:
    """What comes before answers is still done first."""
    events: list[str] = []
    server = serving(Echo(), before_answers=lambda: events.append("before"))
    connection, transport = connect(server)
    for opaque in range(3):
        connection.data_received(frame(ECHO, opaque, body=bytes(LARGE_ANSWERS // 2)))
    assert [c.opaque for c in transport.commands()] == [0, 1]
    assert events == ["before"]
    await asyncio.sleep(0)
    assert [c.opaque for c in transport.commands()] == [0, 1, 2]
    assert events == ["before"] * 2


async def test_a_transport_that_fails_keeps_no_other_connection_from_its_answers() -> None:
    class Failing(FakeTransport):
        def write(self, data: Any) -> None:
            raise RuntimeError("on purpose")

    server = serving(Echo())
    working, transport = connect(server)
    broken, failing = connect(server, Failing())
    for connection in (broken, working):
        connection.data_received(frame(ECHO, 1))
    await asyncio.sleep(0)
    assert failing.ended == "aborted"
    assert [c.opaque for c in transport.commands()] == [1]


async def test_a_reply_during_the_read_joins_its_write() -> None:
    server = serving(processor := Echo())
    connection, transport = connect(server)

    def reply_at_once(request: Request[Any]) -> None:
        request.reply(Response(remark="at once"))

    server.dispatcher.register(77, reply_at_once)
    await received(connection, frame(77, 1) + frame(ECHO, 2) + frame(77, 3))
    assert len(transport.writes) == 1
    assert [c.opaque for c in transport.commands()] == [1, 2, 3]
    await asyncio.sleep(0)
    assert len(transport.writes) == 1
    assert processor.seen


async def test_deferred_answers_of_one_turn_leave_in_one_write() -> None:
    connection, transport = connected(echo := Echo())
    connection.data_received(b"".join(frame(DEFER, i) for i in range(50)))
    assert not transport.writes
    for request in echo.deferred:
        request.reply(Response(body=b"late"))
    assert not transport.writes
    await asyncio.sleep(0)
    assert len(transport.writes) == 1
    assert len(transport.commands()) == 50


class Many:
    """A handler that takes up to `most` requests at once, and one that takes them alone."""

    CODE, OTHER = 9100, 9101

    def __init__(self, most: int) -> None:
        self.most = most
        self.calls: list[list[int]] = []

    def register(self, dispatcher: Dispatcher) -> None:
        for code in (self.CODE, self.OTHER):
            dispatcher.register(code, self.alone, many=self.together)
        dispatcher.register(ECHO, self.alone)

    def alone(self, request: Request[Any]) -> Response:
        self.calls.append([request.opaque])
        return Response()

    def together(self, requests: Sequence[Request[Any]]) -> list[Response]:
        if self.most < 0:
            raise ZeroDivisionError("on purpose")
        code = requests[0].code
        alike = list(itertools.takewhile(lambda request: request.code == code, requests))
        taken = alike[: self.most]
        if taken:
            self.calls.append([request.opaque for request in taken])
        return [Response() for _ in taken]


@given(
    codes=st.lists(
        st.sampled_from([Many.CODE] * 4 + [Many.OTHER] * 2 + [ECHO]), min_size=1, max_size=90
    ),
    most=st.sampled_from([-1, 0, 1, 2, MOST_TOGETHER]),
    garbage=st.booleans(),
)
def test_requests_that_may_go_together_are_executed_once_and_in_order(
    codes: list[int], most: int, garbage: bool
) -> None:
    async def run() -> None:
        dispatcher = Dispatcher()
        many = Many(most)
        many.register(dispatcher)
        server = RemotingServer(dispatcher, clock=lambda: 0.0)
        connection, transport = connect(server)
        data = b"".join(frame(code, number) for number, code in enumerate(codes))
        connection.data_received(data + b"\xff\xff\xff\xff" * garbage)
        await asyncio.sleep(0)
        assert [answer.opaque for answer in transport.commands()] == list(range(len(codes)))
        assert [opaque for call in many.calls for opaque in call] == list(range(len(codes)))
        assert connection.closed == garbage

    asyncio.run(run())


@given(
    reads=st.lists(
        st.lists(
            st.sampled_from([Many.CODE] * 6 + [Many.OTHER] * 2 + [ECHO]), min_size=1, max_size=60
        ),
        min_size=1,
        max_size=3,
    ),
    most=st.sampled_from([-1, 0, 1, 2, MOST_TOGETHER]),
    tick=st.sampled_from([TURN / 16, TURN / 4, 2 * TURN]),
)
def test_requests_that_take_longer_than_a_turn_are_executed_once_and_in_order(
    reads: list[list[int]], most: int, tick: float
) -> None:
    """Also if the transport had read more already when it was paused."""

    async def run() -> None:
        dispatcher = Dispatcher()
        many = Many(most)
        many.register(dispatcher)
        server = RemotingServer(dispatcher, clock=itertools.count(0.0, tick).__next__)
        connection, transport = connect(server)
        numbers = itertools.count()
        for codes in reads:
            connection.data_received(b"".join(frame(code, next(numbers)) for code in codes))
            await asyncio.sleep(0)
        count = next(numbers)
        await turns_until(lambda: sum(map(len, many.calls)) == count)
        await turns_until(lambda: transport.reading)
        connection.flush()
        assert [answer.opaque for answer in transport.commands()] == list(range(count))
        assert [opaque for call in many.calls for opaque in call] == list(range(count))

    asyncio.run(run())


async def test_requests_that_go_together_end_with_the_turn() -> None:
    """If their handler takes few of them, because they are much work."""
    dispatcher = Dispatcher()
    many = Many(1)
    many.register(dispatcher)
    connection, _ = connect(RemotingServer(dispatcher, clock=ticking()))
    connection.data_received(b"".join(frame(Many.CODE, n) for n in range(40)))
    assert sum(map(len, many.calls)) < 10


async def test_requests_of_one_read_go_together() -> None:
    dispatcher = Dispatcher()
    many = Many(MOST_TOGETHER)
    many.register(dispatcher)
    connection, _ = connect(RemotingServer(dispatcher, clock=lambda: 0.0))
    connection.data_received(b"".join(frame(Many.CODE, n) for n in range(40)))
    assert [len(call) for call in many.calls] == [1, MOST_TOGETHER, 7]


async def test_requests_of_several_codes_go_together_by_runs_of_one_code() -> None:
    dispatcher = Dispatcher()
    many = Many(2)
    many.register(dispatcher)
    connection, _ = connect(RemotingServer(dispatcher, clock=lambda: 0.0))
    codes = [Many.CODE] * 4 + [Many.OTHER] * 2 + [Many.CODE] * 2
    connection.data_received(b"".join(frame(code, n) for n, code in enumerate(codes)))
    assert many.calls == [[0], [1, 2], [3], [4, 5], [6, 7]]


async def test_few_large_buffers_are_not_joined() -> None:
    connection, transport = connected(echo := Echo())
    await received(connection, frame(LARGE, 1))
    assert transport.lines == [3]
    (answer,) = transport.commands()
    assert bytes(answer.body) == echo.large


async def test_requests_wait_while_the_transport_is_full() -> None:
    connection, transport = connected(echo := Echo())
    connection.pause_writing()
    assert not transport.reading
    assert not connection.writable
    # What the transport had read already still comes in.
    await received(connection, frame(ECHO, 1) + frame(ECHO, 2))
    assert not echo.seen
    connection.resume_writing()
    assert connection.writable
    await turns_until(lambda: transport.reading)
    connection.flush()
    assert [c.opaque for c in transport.commands()] == [1, 2]


async def test_a_lost_connection_is_no_work_for_the_garbage_collector() -> None:
    """It stops a server for a second when it finds thirty thousand of them."""
    server = serving(echo := Echo())
    connection, _ = connect(server)
    connection.data_received(frame(ECHO, 1))
    connection.connection_lost(None)
    await asyncio.sleep(0)
    echo.seen.clear()
    left = weakref.ref(connection)
    gc.disable()
    try:
        del connection
        assert left() is None
    finally:
        gc.enable()


# Fairness


def ticking() -> Callable[[], float]:
    """A clock that shows a quarter of a turn more each time it is read."""
    return itertools.count(0.0, TURN / 4).__next__


async def test_a_client_that_sends_ahead_leaves_turns_to_others() -> None:
    server = serving(echo := Echo(), clock=ticking())
    flood, transport = connect(server)
    other, other_transport = connect(server)

    flood.data_received(b"".join(frame(ECHO, n) for n in range(100)))
    assert len(echo.seen) < 10
    assert not transport.reading
    other.data_received(frame(ECHO, 4711))
    assert echo.seen[-1].opaque == 4711
    # What the transport had read already comes after what waits.
    flood.data_received(frame(ECHO, 100))

    await turns_until(lambda: transport.reading)
    flood.flush()
    assert [c.opaque for c in transport.commands()] == list(range(101))
    assert [c.opaque for c in other_transport.commands()] == [4711]


@pytest.mark.parametrize(
    "flood_of",
    [
        pytest.param(frame(ECHO, 1, flag=2), id="oneway"),
        pytest.param(frame(ECHO, 1, flag=1), id="answers that nobody waits for"),
        pytest.param(frame(TYPED, 1, ext_fields={"number": "many"}), id="bad headers"),
    ],
)
async def test_a_turn_ends_whatever_is_sent(flood_of: bytes) -> None:
    flood, transport = connected(Echo(), clock=ticking())
    flood.data_received(flood_of * 100)
    assert not transport.reading
    await turns_until(lambda: transport.reading)


async def test_clients_that_send_ahead_take_turns() -> None:
    server = serving(echo := Echo(), clock=ticking())
    one, transport = connect(server)
    other, other_transport = connect(server)

    for connection in (one, other):
        connection.data_received(b"".join(frame(ECHO, n) for n in range(40)))
    await turns_until(lambda: transport.reading and other_transport.reading)

    turns = [
        (who, len(list(run))) for who, run in itertools.groupby(r.connection for r in echo.seen)
    ]
    assert {who for who, _ in turns[::2]} == {one}
    assert {who for who, _ in turns[1::2]} == {other}
    assert max(count for _, count in turns) < 10


async def test_turns_are_short_while_others_send_little() -> None:
    now = 0.0
    server = serving(echo := Echo(), clock=lambda: now)
    flood, transport = connect(server)
    other, _ = connect(server)

    async def turn(step: float) -> int:
        """How many requests the flood gets in a turn if each takes `step` seconds."""
        nonlocal now
        before = len(echo.seen)
        echo.noted = lambda: advance(step)
        await asyncio.sleep(0)
        return len(echo.seen) - before

    def advance(step: float) -> None:
        nonlocal now
        now += step

    echo.noted = lambda: advance(TURN)
    flood.data_received(b"".join(frame(ECHO, n) for n in range(1000)))
    assert await turn(TURN / 20) > 15
    echo.noted = lambda: None
    other.data_received(frame(ECHO, 1))
    assert await turn(TURN / 20) < 5
    now += ACTIVE_SECONDS
    assert await turn(TURN / 20) > 15
    assert not transport.reading


async def test_heavy_requests_of_many_connections_share_turns() -> None:
    """A request cannot be divided: with one connection for each, all of them were executed before
    anybody else was read."""
    now = 0.0
    server = serving(echo := Echo(), clock=lambda: now)
    light, _ = connect(server)
    crowd = [connect(server) for _ in range(10)]
    large = frame(ECHO, 1, body=bytes(LARGE_READ))

    def advance() -> None:
        nonlocal now
        now += 5 * TURN

    counted = 0

    async def turn() -> int:
        """How many of them were executed since the light client was last read, which is read again
        now."""
        nonlocal counted
        await asyncio.sleep(0)
        executed = len(echo.seen) - counted
        echo.noted = lambda: None
        light.data_received(frame(ECHO, 0))
        echo.noted = advance
        counted = len(echo.seen)
        return executed

    await turn()
    for connection, _ in crowd:
        connection.data_received(large)
    assert len(echo.seen) == 2
    assert not any(transport.reading for _, transport in crowd)
    # They rest as long as the first one took, and others are served meanwhile.
    assert [await turn() for _ in range(3)] == [1, 0, 0]
    most = 0
    while not all(transport.reading for _, transport in crowd):
        most = max(most, await turn())
        now += ACTIVE_SECONDS - TURN  # the light client is still active
        await asyncio.sleep(TURN)
    assert most == 1
    assert len([request for request in echo.seen if request.opaque]) == 10


async def test_heavy_requests_do_not_rest_if_nobody_sends_little() -> None:
    """But the sockets are looked at in between: somebody may have sent little meanwhile."""
    now = 0.0
    server = serving(echo := Echo(), clock=lambda: now)
    crowd = [connect(server) for _ in range(10)]

    def advance() -> None:
        nonlocal now
        now += 5 * TURN

    echo.noted = advance
    for connection, _ in crowd:
        connection.data_received(frame(ECHO, 1, body=bytes(LARGE_READ)))
    for executed in range(1, 10):
        assert len(echo.seen) == executed
        await asyncio.sleep(0)
    assert len(echo.seen) == 10


async def test_little_requests_of_very_many_connections_wait_if_there_are_several_owners() -> None:
    now = 0.0

    def advance() -> None:
        nonlocal now
        now += LIGHT_READ / 2

    server = serving(echo := Echo(), clock=lambda: now)
    echo.noted = advance
    victim, _ = connect(server)
    victim.owner = "a user"
    crowd = [connect(server)[0] for _ in range(1000)]
    for number, connection in enumerate(crowd):
        connection.data_received(frame(ECHO, number))
    assert len(echo.seen) == 1000  # of one owner: whose turn would it be?
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    echo.seen.clear()
    victim.data_received(frame(ECHO, 4711))
    for number, connection in enumerate(crowd):
        connection.data_received(frame(ECHO, number))
    most = 4 * TURN / (LIGHT_READ / 2)
    assert len(echo.seen) < most
    # It is read in each turn of the event loop, and each of the others in time.
    while len(echo.seen) < 1000:
        before = len(echo.seen)
        victim.data_received(frame(ECHO, 4711))
        assert len(echo.seen) == before + 1
        await asyncio.sleep(0)
        assert before + 1 < len(echo.seen) < before + most
    await turns_until(lambda: {request.opaque for request in echo.seen} == {4711, *range(1000)})
    opaques = [request.opaque for request in echo.seen if request.opaque != 4711]
    assert opaques == list(range(1000))


async def test_first_requests_of_very_many_connections_share_turns() -> None:
    """Nobody knows before that they take long. Each owner has its turn, with any number of
    connections; a write of an answer is work as well."""
    now = 0.0

    def advance(seconds: float) -> None:
        nonlocal now
        now += seconds

    class SlowTransport(FakeTransport):
        """Takes time to take an answer, and is full then."""

        def writelines(self, buffers: Any) -> None:
            super().writelines(buffers)
            advance(5 * TURN)
            connection.pause_writing()

    server = serving(echo := Echo(), clock=lambda: now)
    for number in range(20):
        connection, _ = connect(server, SlowTransport())
        connection.owner = "a user"
        connection.data_received(frame(LARGE, number))
    assert len(echo.seen) == 1
    victim, _ = connect(server)
    victim.data_received(frame(ECHO, 4711))
    for _ in range(2):
        await asyncio.sleep(0)
    assert 4711 in [request.opaque for request in echo.seen]
    assert len(echo.seen) < 5


@pytest.mark.parametrize("serialize_type", SerializeType)
def test_a_long_header_is_refused_before_it_is_decoded(serialize_type: SerializeType) -> None:
    fields = {f"field{n}": "x" for n in range(MAX_REQUEST_HEADER // 16)}
    long = frame(ECHO, 7, ext_fields=fields, serialize_type=serialize_type)
    transport, seen = serve([long, frame(ECHO, 8)])
    refused, answer = transport.commands()
    assert (refused.opaque, refused.code) == (7, ResponseCode.SYSTEM_ERROR)
    assert f"{MAX_REQUEST_HEADER} are allowed" in (refused.remark or "")
    assert answer.opaque == 8
    assert [request.opaque for request in seen] == [8]


async def test_a_connection_that_sends_a_frame_in_small_pieces_is_read_less_and_less_often() -> (
    None
):
    class Resting(FakeTransport):
        def __init__(self) -> None:
            super().__init__()
            self.resumed = asyncio.Event()

        def resume_reading(self) -> None:
            super().resume_reading()
            self.resumed.set()

    loop = asyncio.get_running_loop()
    connection, transport = connect(serving(echo := Echo()), resting := Resting())
    data = frame(ECHO, 1, body=bytes(10 * SMALL_READ))
    pieces = iter(range(len(data)))

    def bring_a_piece() -> None:
        place = next(pieces)
        connection.data_received(data[place : place + 1])

    for _ in range(4 + FREE_SMALL_READS):
        bring_a_piece()
        assert transport.reading
    for rest in (2, 4, 8, 16):
        begin = loop.time()
        bring_a_piece()
        assert not transport.reading
        resting.resumed.clear()
        await resting.resumed.wait()
        assert loop.time() - begin > SHORTEST_REST * (rest / 2 - 1)  # a coarse clock

    # A large piece ends that.
    place = next(pieces)
    connection.data_received(data[place : place + SMALL_READ])
    assert transport.reading
    connection.data_received(data[place + SMALL_READ :])
    await asyncio.sleep(0)
    assert transport.reading
    assert [request.opaque for request in echo.seen] == [1]


async def test_what_waits_for_its_turn_ends_with_the_connection() -> None:
    flood, transport = connected(echo := Echo(), clock=ticking())
    flood.data_received(b"".join(frame(ECHO, n) for n in range(100)))
    seen = len(echo.seen)
    flood.close("test")
    await asyncio.sleep(0)
    flood.connection_lost(None)
    await asyncio.sleep(0)
    assert len(echo.seen) == seen
    assert transport.ended


@pytest.mark.parametrize(
    ("peername", "peer", "packed"),
    [
        (("192.0.2.7", 4711), ("192.0.2.7", 4711), "c0000207 00001267"),
        (("::ffff:192.0.2.7", 4711, 0, 0), ("192.0.2.7", 4711), "c0000207 00001267"),
        (("fe80::1%eth0", 5, 0, 2), ("fe80::1", 5), "fe80" + 13 * "00" + "01 00000005"),
        (None, ("0.0.0.0", 0), 16 * "0"),
    ],
)
async def test_the_packed_peer_is_what_records_store(
    peername: tuple[object, ...] | None, peer: tuple[str, int], packed: str
) -> None:
    connection = ServerConnection(RemotingServer(Dispatcher()))
    connection.connection_made(FakeTransport(peername))
    assert connection.peer == peer
    assert connection.peer_packed == bytes.fromhex(packed)


# Tasks


async def test_too_many_unfinished_requests_of_one_connection_are_refused() -> None:
    server = serving(echo := Echo())
    connection, transport = connect(server)
    limit = MAX_TASKS
    await received(connection, b"".join(frame(SLOW, i) for i in range(limit + 2)))
    answers = transport.commands()
    assert [a.opaque for a in answers] == [limit, limit + 1]
    assert {a.code for a in answers} == {ResponseCode.SYSTEM_BUSY}
    await received(connection, frame(ECHO, 5000))
    assert transport.commands()[-1].code == ResponseCode.SYSTEM_BUSY
    echo.release.set()
    await asyncio.gather(*server.tasks)
    await received(connection, frame(ECHO, 6000))
    assert transport.commands()[-1].code == 0
    assert len(transport.commands()) == limit + 4


# Requests to the client


async def server_side(server: RemotingServer, peer: RawPeer) -> ServerConnection:
    """The server's end of `peer`, once it has answered."""
    peer.send(frame(ECHO, 1))
    await peer.read()
    (connection,) = server.connections
    return connection


async def test_the_server_asks_the_client_while_the_client_asks_the_server() -> None:
    async with echo_server() as (server, _):
        peer = await RawPeer.open(server.port)
        connection = await server_side(server, peer)
        question = asyncio.ensure_future(connection.send_request(307, None, b"who", 5.0))
        pushed = await peer.read()
        assert (pushed.code, pushed.flag, bytes(pushed.body)) == (307, 0, b"who")
        # The client's own request under the same opaque, then the answer: the flag decides. Its
        # code, 9005, is also that of a request with a mandatory header field.
        peer.send(frame(ECHO, pushed.opaque) + frame(TYPED, pushed.opaque, flag=1, body=b"me"))
        assert (await peer.read()).opaque == pushed.opaque
        answer = await question
        assert (answer.code, bytes(answer.body)) == (TYPED, b"me")
        await peer.close()


async def test_a_pushed_request_times_out_and_its_late_answer_is_ignored() -> None:
    async with echo_server() as (server, echo):
        peer = await RawPeer.open(server.port)
        connection = await server_side(server, peer)
        with pytest.raises(RemotingTimeout):
            await connection.send_request(307, timeout=0.05)
        pushed = await peer.read()
        peer.send(frame(0, pushed.opaque, flag=1) + frame(ECHO, 2))
        assert (await peer.read()).opaque == 2
        assert len(echo.seen) == 2
        await peer.close()


async def test_a_pushed_request_fails_when_the_client_goes() -> None:
    async with echo_server() as (server, _):
        peer = await RawPeer.open(server.port)
        connection = await server_side(server, peer)
        question = asyncio.ensure_future(connection.send_request(307, timeout=60.0))
        await peer.read()
        await peer.close()
        with pytest.raises(RemotingClosed):
            await question
        with pytest.raises(RemotingClosed):
            await connection.send_request(307)
        with pytest.raises(RemotingClosed):
            connection.send_oneway(40)


async def test_a_oneway_push_has_the_oneway_flag() -> None:
    async with echo_server() as (server, _):
        peer = await RawPeer.open(server.port)
        connection = await server_side(server, peer)
        connection.send_oneway(40, None, b"", {"consumerGroup": "G"})
        pushed = await peer.read()
        assert (pushed.code, pushed.flag) == (40, 2)
        assert pushed.ext_fields == {"consumerGroup": "G"}
        await peer.close()


# Life of the server


async def test_a_taken_port_is_said_in_plain_words() -> None:
    async with echo_server() as (server, _):
        second = RemotingServer(Dispatcher(), port=server.port, name="name server")
        with pytest.raises(PortInUse, match=f"name server.*{server.port}.*in use"):
            await second.start()


async def test_an_idle_connection_is_closed() -> None:
    async with echo_server(idle_timeout=0.1) as (server, _):
        peer = await RawPeer.open(server.port)
        assert await peer.read_to_end() == b""
        await peer.close()


async def test_only_idle_connections_are_closed() -> None:
    async with echo_server(idle_timeout=2.0) as (server, _):
        idle = await RawPeer.open(server.port)
        idle_connection = await server_side(server, idle)
        busy = await RawPeer.open(server.port)
        busy.send(frame(ECHO, 1))
        await busy.read()
        idle_connection.last_active -= 2.5
        assert await idle.read_to_end() == b""
        busy.send(frame(ECHO, 2))
        assert (await busy.read()).opaque == 2
        await idle.close()
        await busy.close()


async def test_connections_over_the_maximum_are_closed() -> None:
    async with echo_server(max_connections=2) as (server, _):
        peers = [await RawPeer.open(server.port) for _ in range(2)]
        for peer in peers:
            peer.send(frame(ECHO, 1))
            await peer.read()
        refused = await RawPeer.open(server.port)
        assert await refused.read_to_end() == b""
        gone = asyncio.Event()
        server.on_connection_lost.append(lambda _: gone.set())
        await peers[0].close()
        await gone.wait()
        again = await RawPeer.open(server.port)
        again.send(frame(ECHO, 2))
        assert (await again.read()).opaque == 2
        for peer in (*peers, refused, again):
            await peer.close()


async def test_stop_sends_what_is_answered_and_closes_everything() -> None:
    async with echo_server() as (server, echo):
        peer = await RawPeer.open(server.port)
        peer.send(frame(SLOW, 1))
        await echo.arrived.wait()
        stopping = asyncio.ensure_future(server.stop())
        await asyncio.sleep(0)
        echo.release.set()
        assert (await peer.read()).opaque == 1
        assert await peer.read_to_end() == b""
        await stopping
        assert not server.connections
        with pytest.raises(ConnectionRefusedError):
            await RawPeer.open(server.port)
        await server.stop()
        await peer.close()


async def test_stop_does_not_wait_for_a_client_that_does_not_read() -> None:
    async with echo_server() as (server, echo):
        peer = await RawPeer.open(server.port)
        peer.send(b"".join(frame(LARGE, i) for i in range(100)))
        await echo.arrived.wait()
        async with asyncio.timeout(20):
            await server.stop()
        assert not server.connections
        await peer.close()


async def test_a_failing_callback_does_not_keep_others_from_being_called() -> None:
    async with echo_server() as (server, echo):
        called = asyncio.Event()

        def fail(_: object) -> None:
            raise RuntimeError("on purpose")

        server.on_connection_lost += [fail, lambda _: called.set()]
        peer = await RawPeer.open(server.port)
        peer.send(frame(ECHO, 1))
        await peer.read()
        echo.seen[0].connection.add_close_callback(fail)
        await peer.close()
        await called.wait()


async def test_a_thousand_idle_connections_cost_others_nothing() -> None:
    async with echo_server() as (server, _):
        idle = [await RawPeer.open(server.port) for _ in range(1000)]
        peer = await RawPeer.open(server.port)
        for i in range(100):
            peer.send(frame(ECHO, i))
            assert (await peer.read()).opaque == i
        assert len(server.connections) == 1001
        for each in (*idle, peer):
            each.writer.close()


async def test_what_answers_acknowledge_is_stored_before_they_leave() -> None:
    written: list[int] = []
    transport: FakeTransport
    connection, transport = connected(
        Echo(), before_answers=lambda: written.append(len(transport.writes))
    )
    await received(connection, frame(ECHO, 1) + frame(ECHO, 2))
    await received(connection, frame(ECHO, 3))
    assert written == [0, 1]
    assert [c.opaque for c in transport.commands()] == [1, 2, 3]


async def test_answers_that_would_lie_are_not_given(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise OSError("the disk is broken")

    connection, transport = connected(Echo(), before_answers=fail)
    await received(connection, frame(ECHO, 1))
    assert transport.commands() == []
    assert transport.ended == "aborted"
    assert "the disk is broken" in caplog.text


async def test_connections_of_one_address_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    async with echo_server(max_connections_per_address=2) as (server, _):
        first, second = [await RawPeer.open(server.port) for _ in range(2)]
        for peer in (first, second):
            peer.send(frame(ECHO, 1))
            await peer.read()
        with caplog.at_level(logging.WARNING):
            assert await (await RawPeer.open(server.port)).read_to_end() == b""
        assert "has 2 connections to the broker already" in caplog.text
        await first.close()
        second.send(frame(ECHO, 2))
        await second.read()  # by then the server knows that the first one has gone
        third = await RawPeer.open(server.port)
        third.send(frame(ECHO, 1))
        assert (await third.read()).opaque == 1
        await third.close()
        await second.close()


async def test_who_holds_the_most_of_begun_frames_is_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    memory = FrameMemory(limit=100_000)
    async with echo_server(frame_memory=memory) as (server, _):
        small, large = [await RawPeer.open(server.port) for _ in range(2)]
        whole = frame(ECHO, 1, body=b"s" * 40_000)
        small.send(whole[:30_000])
        while memory.used < 29_000:  # noqa: ASYNC110
            await asyncio.sleep(0)
        with caplog.at_level(logging.WARNING):
            large.send(frame(ECHO, 1, body=b"l" * 200_000)[:-1])
            assert await large.read_to_end() == b""
        assert "without its end" in caplog.text
        assert memory.used <= 30_000
        small.send(whole[30_000:])
        assert len((await small.read()).body) == 40_000
        assert memory.used == 0
        small.send(whole[:30_000])
        await small.close()
        await large.close()
    assert memory.used == 0


async def test_a_frame_has_to_be_complete_in_time(caplog: pytest.LogCaptureFixture) -> None:
    async with echo_server(idle_timeout=0.2) as (server, _):
        peer = await RawPeer.open(server.port)
        peer.send((1000).to_bytes(4, "big"))
        ended = asyncio.ensure_future(peer.read_to_end())
        with caplog.at_level(logging.WARNING):
            while not ended.done():
                peer.send(b"x")  # it is not idle
                await asyncio.wait([ended], timeout=0.02)
        assert "not complete after 0.2 s" in caplog.text
        await peer.close()


async def test_the_bytes_of_requests_that_wait_are_bounded() -> None:
    async with echo_server(waiting_limit=1_000_000) as (server, echo):
        peer, other = [await RawPeer.open(server.port) for _ in range(2)]
        for opaque in range(3):
            peer.send(frame(SLOW, opaque, body=bytes(40_000)))
        # A tenth of the limit for each connection; what takes no time or little memory is served.
        assert ((busy := await peer.read()).opaque, busy.code) == (2, ResponseCode.SYSTEM_BUSY)
        peer.send(frame(ECHO, 3, body=bytes(40_000)))
        assert (await peer.read()).opaque == 3
        peer.send(frame(SLOW, 4))
        other.send(frame(SLOW, 5, body=bytes(40_000)))
        while len(echo.seen) < 5:  # noqa: ASYNC110
            await asyncio.sleep(0)
        echo.release.set()
        assert {(await peer.read()).opaque for _ in range(3)} == {0, 1, 4}
        assert (await other.read()).remark == "slow"
        for opaque in range(6, 16):
            peer.send(frame(SLOW, opaque, body=bytes(40_000)))
            assert (await peer.read()).remark == "slow"
        await peer.close()
        await other.close()
