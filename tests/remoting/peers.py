"""Peers for tests of the asyncio part: raw socket client, fake transport, echo server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from pocketmq.remoting.frames.frame import Command, FrameSplitter, decode_command, encode_command
from pocketmq.remoting.headers.base import Header
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.remoting.serving.server import RemotingServer

ECHO = 9001
DEFER = 9002
SLOW = 9003
FAIL = 9004
TYPED = 9005
LARGE = 9006


class NumberHeader(Header):
    number: int


class Echo:
    """A processor with one handler of each kind, which remembers what it saw."""

    def __init__(self) -> None:
        self.seen: list[Request[Any]] = []
        self.deferred: list[Request[Any]] = []
        self.arrived = asyncio.Event()
        self.release = asyncio.Event()
        self.large = b"x" * (256 << 10)
        self.noted: Callable[[], object] = lambda: None

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.register(ECHO, self.echo)
        dispatcher.register(DEFER, self.defer)
        dispatcher.register(SLOW, self.slow)
        dispatcher.register(FAIL, self.fail)
        dispatcher.register(TYPED, self.typed, NumberHeader)
        dispatcher.register(LARGE, self.reply_large)

    def _note(self, request: Request[Any]) -> None:
        self.seen.append(request)
        self.arrived.set()
        self.noted()

    def echo(self, request: Request[Any]) -> Response:
        self._note(request)
        return Response(remark="echo", body=request.body, ext_fields=request.ext_fields)

    def defer(self, request: Request[Any]) -> None:
        self._note(request)
        self.deferred.append(request)

    async def slow(self, request: Request[Any]) -> Response:
        self._note(request)
        await self.release.wait()
        return Response(remark="slow")

    def fail(self, request: Request[Any]) -> Response:
        self._note(request)
        raise ZeroDivisionError("on purpose")

    def typed(self, request: Request[NumberHeader]) -> Response:
        self._note(request)
        return Response(header=NumberHeader(number=request.header.number + 1))

    def reply_large(self, request: Request[Any]) -> Response:
        self._note(request)
        half = memoryview(self.large)[: len(self.large) // 2]
        return Response(body=(half, half))


@contextlib.asynccontextmanager
async def echo_server(
    *, waiting_limit: int | None = None, **options: Any
) -> AsyncIterator[tuple[RemotingServer, Echo]]:
    dispatcher = Dispatcher(waiting_limit=waiting_limit)
    processor = Echo()
    processor.register(dispatcher)
    server = RemotingServer(dispatcher, **options)
    await server.start()
    try:
        yield server, processor
    finally:
        processor.release.set()
        await server.stop()


def frame(
    code: int,
    opaque: int,
    *,
    flag: int = 0,
    body: bytes = b"",
    ext_fields: Mapping[str, str] | None = None,
    serialize_type: int = 0,
) -> bytes:
    return encode_command(
        code,
        opaque,
        flag=flag,
        body=body,
        ext_fields=ext_fields,
        serialize_type=serialize_type,
    )


def raw_frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    """A frame with any bytes as its header."""
    words = (4 + len(header) + len(body)).to_bytes(4, "big") + bytes([kind])
    return words + len(header).to_bytes(3, "big") + header + body


class RawPeer:
    """A socket that sends any bytes and reads frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int) -> RawPeer:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def read_raw(self) -> bytes:
        """One frame without its length bytes."""
        length = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(length)

    async def read(self) -> Command:
        return decode_command(await self.read_raw())

    async def read_to_end(self) -> bytes:
        try:
            return await self.reader.read(-1)
        except ConnectionError:
            return b""

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


class FakeTransport(asyncio.Transport):
    """Keeps what is written, call by call; `unsent` is what it claims to hold."""

    def __init__(self, peername: tuple[object, ...] | None = ("192.0.2.7", 4711)) -> None:
        super().__init__()
        self.peername = peername
        self.writes: list[bytes] = []
        self.lines: list[int] = []
        self.unsent = 0
        self.reading = True
        self.ended = ""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.peername if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high, self.low = high, low

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def writelines(self, buffers: Any) -> None:
        self.lines.append(len(buffers))
        self.writes.append(b"".join(buffers))

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def commands(self) -> list[Command]:
        splitter = FrameSplitter()
        return [decode_command(f) for f in splitter.feed(b"".join(self.writes))]
