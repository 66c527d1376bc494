"""The gRPC port: plain and encrypted, health and reflection, and clients that mean no good."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from h2.connection import H2Connection

from pocketmq.cluster_proxy import ClusterProxy
from pocketmq.embedded import EmbeddedServer
from pocketmq.local_proxy import LocalProxy
from pocketmq.proxy.config import ProxyConfig
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.proxy.rpc import Call, Unary
from pocketmq.proxy.transport.http2 import PREFACE
from pocketmq.proxy.transport.server import GrpcConnection, GrpcServer
from pocketmq.remoting.serving.listening import PortInUse
from pocketmq.remoting.tls.tls_config import TlsConfig
from tests.certificates import Authority
from tests.proxy.conftest import grpc_port
from tests.proxy.grpc_client import GrpcClient, message
from tests.proxy.raw_frames import Kind, frame, header_fields, literal


def send_request() -> pb.SendMessageRequest:
    return pb.SendMessageRequest(messages=[message()])


async def test_one_port_is_plain_and_encrypted(server: EmbeddedServer, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.sign("localhost")
    tls = TlsConfig(cert_path=str(certificate.chain), key_path=str(certificate.key))
    proxy = LocalProxy(server.broker, port=0, tls=tls)
    await proxy.start()
    trusted = grpc.ssl_channel_credentials(authority.certificate.chain.read_bytes())
    try:
        for credentials in (None, trusted):
            async with GrpcClient(proxy.port, credentials=credentials) as client:
                answer = await client.call("SendMessage", send_request())
                assert answer.status.code == pb.OK
    finally:
        await proxy.stop()


async def test_health(client: GrpcClient) -> None:
    # Both messages are empty, or have one field: SERVING is 1.
    answer = await client.call("/grpc.health.v1.Health/Check", Empty(), response=Empty)
    assert answer.SerializeToString() == b"\x08\x01"


class Echo:
    """Answers with what it got."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @classmethod
    def FromString(cls, data: bytes, /) -> Echo:
        return cls(data)

    def SerializeToString(self) -> bytes:
        return self.data


async def echo(call: Call, request: Echo) -> Echo:
    return request


async def never(call: Call, request: Echo) -> Echo:
    await asyncio.Event().wait()
    return request


METHODS = {b"/a.B/Echo": Unary(Echo, echo), b"/a.B/Never": Unary(Echo, never)}


class Raw:
    """A connection that sends whatever the test says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, server: GrpcServer, data: bytes = PREFACE) -> Raw:
        raw = cls(*await asyncio.open_connection("127.0.0.1", server.port))
        raw.writer.write(data + (frame(Kind.SETTINGS, 0, 0) if data == PREFACE else b""))
        return raw

    def call(
        self,
        stream_id: int,
        path: bytes = b"/a.B/Echo",
        *,
        ended: bool = False,
        metadata: Mapping[bytes, bytes] | None = None,
    ) -> None:
        block = b"\x83\x86" + literal(b":path", path)
        block += literal(b"content-type", b"application/grpc")
        block += b"".join(literal(name, value) for name, value in (metadata or {}).items())
        self.writer.write(frame(Kind.HEADERS, 5 if ended else 4, stream_id, block))

    def data(self, stream_id: int, data: bytes, *, ended: bool = False) -> None:
        self.writer.write(frame(Kind.DATA, ended, stream_id, data))

    async def until_closed(self) -> bytes:
        async with asyncio.timeout(60):
            return await self.reader.read()

    async def status(self) -> str:
        """The gRPC status of the only call, once it has ended."""
        got = b""
        async with asyncio.timeout(60):
            while "grpc-status" not in (fields := dict(header_fields(got))):
                more = await self.reader.read(65_536)
                assert more, f"closed after {fields}"
                got += more
        return fields["grpc-status"]

    async def until(self, *wanted: bytes) -> bytes:
        got = b""
        async with asyncio.timeout(60):
            while not all(each in got for each in wanted):
                more = await self.reader.read(65_536)
                assert more, f"closed before {wanted!r}"
                got += more
        return got


@pytest.fixture
async def echoing() -> Any:
    server = GrpcServer(METHODS, request_timeout=0.2, max_message=1 << 20)
    await server.start()
    yield server
    await server.stop()


async def test_an_echo(echoing: GrpcServer) -> None:
    raw = await Raw.open(echoing)
    raw.call(1)
    raw.data(1, b"\0\0\0\0\5hello", ended=True)
    await raw.until(b"hello")


async def test_a_client_that_says_goodbye_gets_the_answers_to_its_calls() -> None:
    """As Node.js stops: a stream ends, then GOAWAY and PING, in one piece with a call."""
    held: asyncio.Future[Echo] = asyncio.get_running_loop().create_future()

    async def later(call: Call, request: Echo) -> Echo:
        return await held

    server = GrpcServer({**METHODS, b"/a.B/Later": Unary(Echo, later)})
    await server.start()
    try:
        raw = await Raw.open(server)
        raw.call(1, b"/a.B/Later")
        raw.data(1, b"\0\0\0\0\0", ended=True)
        raw.call(3)
        raw.data(3, b"\0\0\0\0\5hello", ended=True)
        raw.writer.write(frame(Kind.GOAWAY, 0, 0, bytes(8)) + frame(Kind.PING, 0, 0, bytes(8)))
        got = await raw.until(b"hello", frame(Kind.PING, 1, 0, bytes(8)))
        held.set_result(Echo(b"late"))
        got += await raw.until(b"late")
        raw.writer.write(frame(Kind.PING, 0, 0, b"12345678"))
        got += await raw.until(b"12345678")
        assert header_fields(got).count(("grpc-status", "0")) == 2
    finally:
        await server.stop()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
async def test_the_address_of_every_interface_takes_ipv4_as_well() -> None:
    server = GrpcServer(METHODS, host="::")
    await server.start()
    try:
        await test_an_echo(server)
        with pytest.raises(PortInUse, match="grpcServerPort"):
            await GrpcServer(METHODS, host="::", port=server.port).start()
    finally:
        await server.stop()


async def test_a_method_that_is_not_there(echoing: GrpcServer) -> None:
    raw = await Raw.open(echoing)
    raw.call(1, b"/a.B/Missing", ended=True)
    assert await raw.status() == "12"


async def test_another_protocol_is_sent_away(echoing: GrpcServer) -> None:
    raw = await Raw.open(echoing, b"GET / HTTP/1.1\r\n\r\n")
    assert await raw.until_closed() == b""


async def test_a_lost_connection_is_freed_at_once(echoing: GrpcServer) -> None:
    """A collection of many of them stops the server, and the header fields may take 100 KB."""

    def left() -> int:
        of_a_connection = (GrpcConnection, H2Connection)
        return sum(isinstance(thing, of_a_connection) for thing in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = left()
        for _ in range(3):
            raw = await Raw.open(echoing)
            raw.call(1, b"/a.B/Never", ended=True)
            raw.writer.write(frame(Kind.PING, 0, 0, b"12345678"))
            await raw.until(b"12345678")
            assert left() == before + 2
            raw.writer.close()
            async with asyncio.timeout(10):
                while left() != before:  # noqa: ASYNC110 - nobody is told
                    await asyncio.sleep(0)
    finally:
        gc.enable()


async def test_half_a_request_is_given_up(echoing: GrpcServer) -> None:
    raw = await Raw.open(echoing)
    raw.call(1)
    raw.data(1, b"\0\0\0\1\0half")
    await raw.until(frame(Kind.RST_STREAM, 0, 1, (8).to_bytes(4, "big")))


async def test_a_silent_connection_is_closed(echoing: GrpcServer) -> None:
    raw = await Raw.open(echoing, b"P")
    await raw.until_closed()


async def test_a_message_above_the_limit_is_refused(echoing: GrpcServer) -> None:
    raw = await Raw.open(echoing)
    raw.call(1)
    raw.data(1, b"\0\x7f\xff\xff\xff")
    assert await raw.status() == "8"


async def test_a_client_that_never_reads_stops_being_read(echoing: GrpcServer) -> None:
    raw = await Raw.open(echoing)
    raw.writer.transport.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_RCVBUF, 4096
    )
    # Windows without end, so that only the socket can hold the answers back.
    raw.writer.write(frame(Kind.WINDOW_UPDATE, 0, 0, (1 << 30).to_bytes(4, "big")))
    raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
    body = b"\0" + (60_000).to_bytes(4, "big") + bytes(60_000)
    sent = 0
    for stream_id in range(1, 2_000, 2):
        raw.call(stream_id)
        for at in range(0, len(body), 16_384):
            raw.data(stream_id, body[at : at + 16_384], ended=at + 16_384 >= len(body))
        sent += len(body)
        try:
            async with asyncio.timeout(1):
                await raw.writer.drain()
        except TimeoutError:
            break
    assert sent < 60 << 20
    other = await Raw.open(echoing)
    other.call(1)
    other.data(1, b"\0\0\0\0\5hello", ended=True)
    await other.until(b"hello")
    raw.writer.transport.abort()


async def test_a_call_in_progress_ends_with_the_server() -> None:
    server = GrpcServer(METHODS)
    await server.start()
    raw = await Raw.open(server)
    raw.call(1, b"/a.B/Never")
    raw.data(1, b"\0\0\0\0\0", ended=True)
    await asyncio.sleep(0.1)
    await server.stop()
    assert ("grpc-status", "1") in header_fields(await raw.until_closed())


async def test_a_call_that_ignores_its_end_does_not_hold_up_the_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    called, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def ignore(call: Call, request: Echo) -> Echo:
        called.set()
        while not may_end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await may_end.wait()
        ended.set()
        return request

    server = GrpcServer({b"/a.B/Ignore": Unary(Echo, ignore)})
    await server.start()
    raw = await Raw.open(server)
    raw.call(1, b"/a.B/Ignore")
    raw.data(1, b"\0\0\0\0\0", ended=True)
    await called.wait()
    try:
        async with asyncio.timeout(60):
            await server.stop()
        await raw.until_closed()
        assert "1 calls have not ended within 1 s of their cancellation" in caplog.text
        assert "Ignore" in caplog.text
    finally:
        may_end.set()
        await ended.wait()


async def test_new_connections_get_the_certificate_of_changed_files(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    before, after = old.sign("localhost"), new.sign("localhost")
    tls = TlsConfig(cert_path=str(before.chain), key_path=str(before.key))
    proxy = LocalProxy(server.broker, port=0, tls=tls)
    await proxy.start()

    async def status(authority: Authority) -> grpc.StatusCode:
        """Return how a call ends for a client that trusts this authority alone."""
        trusted = grpc.ssl_channel_credentials(authority.certificate.chain.read_bytes())
        async with GrpcClient(proxy.port, credentials=trusted) as client:
            code: grpc.StatusCode = await client.call("SendMessage", send_request()).code()
            return code

    ok, refused = grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE

    try:
        assert [await status(old), await status(new)] == [ok, refused]
        after.key.replace(before.key)
        after.chain.replace(before.chain)
        deadline = monotonic() + 30
        while await status(new) is refused:
            assert monotonic() < deadline
        assert await status(old) is refused
    finally:
        await proxy.stop()


#: A request of grpc.reflection: list_services is "*".
LIST_SERVICES = b"\x3a\x01*"


REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


async def test_reflection_is_a_setting(server: EmbeddedServer) -> None:
    config = ProxyConfig(
        grpc_server_port=0, namesrv_addr=server.namesrv, enable_grpc_reflection=True
    )
    symbol = b"apache.rocketmq.v2.SendMessageRequest"
    questions = [LIST_SERVICES, b"\x22" + bytes((len(symbol),)) + symbol, b"\x22\x03a.B"]
    async with ClusterProxy(config) as proxy, GrpcClient(proxy.grpc_port) as client:
        stream: Any = client.channel.stream_stream(REFLECTION)
        services, described, unknown = [answer async for answer in stream(iter(questions))]
    assert b"apache.rocketmq.v2.MessagingService" in services
    assert pb.DESCRIPTOR.serialized_pb in described
    assert b"is not known" in unknown
    async with GrpcClient(grpc_port(server)) as client:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.call(REFLECTION, Empty(), response=Empty)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
