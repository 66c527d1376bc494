"""The gRPC port: one port for plaintext HTTP/2 and for TLS, which the first byte tells apart.

The way of a call: `data_received` gets what the socket has, `Http2Connection` makes events of it,
and the complete request goes to the method's handler. The answers of one turn of the event loop
leave in one write for each connection.

Fairness and bounds are those of the remoting port (`pocketmq.remoting.server`): the frames of one
connection are taken for two milliseconds at most in one turn, and connections that have more wait
for their next turn one after another. A client that does not read its answers is not read either,
and is dropped when too much waits for it. Requests that are begun and not complete may take a
limited amount of memory, and time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from time import perf_counter
from typing import Any, Final, cast

from pocketmq.limited_log import LimitedLog
from pocketmq.proxy.rpc import (
    Call,
    Duplex,
    GrpcError,
    GrpcStatus,
    Incoming,
    Message,
    Method,
    Methods,
    ServerStream,
    Unary,
)
from pocketmq.proxy.transport.grpc_codec import (
    CONTENT_TYPE,
    OK_TRAILERS,
    RESPONSE_HEADERS,
    MessageReader,
    RequestHeaders,
    error_trailers,
    http_error,
    message_frame,
)
from pocketmq.proxy.transport.http2 import (
    MAX_WAITING,
    PREFACE,
    DataReceived,
    Event,
    Http2Connection,
    ProtocolError,
    Reason,
    StreamOpened,
)
from pocketmq.remoting.address_counts import AddressCounts
from pocketmq.remoting.connection import find_dead_peer
from pocketmq.remoting.listening import listen
from pocketmq.remoting.tls_context import ServerTls
from pocketmq.remoting.tls_layer import Handshakes, TlsLayer

log = logging.getLogger("pocketmq.proxy")

#: Seconds that a connection without an open stream is kept (`grpcClientIdleTimeMills`).
IDLE_TIMEOUT: Final = 120.0
#: Seconds within which a request that has begun must be complete, and a client must have said what
#: it speaks.
REQUEST_TIMEOUT: Final = 60.0
MAX_CONNECTIONS: Final = 20_000
MAX_CONNECTIONS_PER_ADDRESS: Final = 5_000
#: Bytes of one message (`grpcMaxInboundMessageSize`).
MAX_MESSAGE: Final = 130 << 20
#: Bytes of the begun requests of all connections.
MAX_BEGUN: Final = 512 << 20
#: Bytes that the kernel may not have taken yet before a connection is read no more.
HIGH_WATER: Final = 1 << 20
#: Seconds of one connection's frames in one turn.
TURN: Final = 0.002
_STOP_GRACE: Final = 1.0

_TLS_BYTE: Final = 0x16


class _Stream:
    """A call that is not over."""

    __slots__ = ("answered", "began", "call", "incoming", "method", "reader", "work")

    def __init__(self, call: Call, method: Method, reader: MessageReader, began: float) -> None:
        self.call = call
        self.method = method
        self.reader = reader
        self.began = began
        self.incoming: Incoming | None = None
        self.work: asyncio.Future[Any] | None = None
        self.answered = False  # the response headers are sent


class _Outgoing:
    """The server's side of a duplex stream."""

    __slots__ = ("_connection", "_stream_id")

    def __init__(self, connection: GrpcConnection, stream_id: int) -> None:
        self._connection = connection
        self._stream_id = stream_id

    def send(self, message: Message) -> None:
        self._connection.send_message(self._stream_id, message)

    def end(self, error: Exception | None = None) -> None:
        self._connection.end_stream(self._stream_id, error)


class GrpcConnection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, server: GrpcServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._http2 = Http2Connection()
        self._streams: dict[int, _Stream] = {}
        self._transport: asyncio.Transport
        self._begun = False
        self._events: Iterator[Event | None] | None = None
        self._more: list[bytes] = []
        self.peer = ("", 0)
        self.closed = False
        self.writable = True
        self.last_active = 0.0
        self.flushing = False
        self.queued = False

    def __str__(self) -> str:
        return f"{self.peer[0]}:{self.peer[1]}"

    # --- the socket -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        host, port = (transport.get_extra_info("peername") or ("0.0.0.0", 0))[:2]
        self.peer = (host.removeprefix("::ffff:").partition("%")[0], port)
        self.last_active = self._loop.time()
        self._transport.set_write_buffer_limits(high=HIGH_WATER)
        # An open Telemetry stream keeps a connection for ever, and may send nothing.
        find_dead_peer(transport.get_extra_info("socket"))
        self._server.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.writable = False
        self._events = None
        self._more.clear()
        for stream_id in tuple(self._streams):
            self._abandon(stream_id)
        self._server.count_begun(-self._http2.unread)
        self._server.connection_lost(self)

    def data_received(self, data: bytes) -> None:
        self.last_active = self._loop.time()
        if not self._begun:
            self._begun = True
            encrypted = isinstance(self._transport, TlsLayer)
            tls = self._server.tls
            if data[0] == _TLS_BYTE and not encrypted and tls is not None:
                self._begun = False
                self._begin_tls(tls, data)
                return
            if not PREFACE.startswith(data[: len(PREFACE)]):
                self._http2.take_output()  # it would not be understood
                self.close(
                    "it speaks neither HTTP/2 nor TLS, which this port serves"
                    if tls is not None
                    else "it does not speak plaintext HTTP/2, the only protocol of this port",
                    "first bytes",
                )
                return
            if tls is not None and tls.required and not encrypted:
                self.close("it does not use TLS, which this port demands", "plain")
                return
            self.flush_soon()
        if self._events is not None or self.queued:
            self._more.append(data)
        else:
            self._take(self._http2.receive(data))

    def _begin_tls(self, tls: ServerTls, data: bytes) -> None:
        handshakes = self._server.handshakes
        refusal = handshakes.refusal(self.peer[0])
        if refusal is not None:
            self.close(*refusal)
            return
        layer = TlsLayer(
            tls.context(), self._transport, self, handshakes, self.peer[0], self._tls_failed
        )
        self._transport = layer.as_transport()
        layer.data_received(data)

    def _tls_failed(self, why: str) -> None:
        self.close(f"TLS: {why}", ("tls", why))

    def pause_writing(self) -> None:
        self.writable = False
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.writable = True
        self._go_on()

    def _go_on(self) -> None:
        if self._events is not None or self._more:
            self._server.queue(self)
        elif not self.closed:
            self._transport.resume_reading()

    def take_turn(self) -> None:
        """Go on with the frames that wait."""
        self.queued = False
        if self.closed or not self.writable:
            return
        events, self._events = self._events, None
        if events is None:
            if not self._more:
                return
            events = self._http2.receive(b"".join(self._more))
            self._more.clear()
        self._take(events)
        if self.writable and not self.closed and not self.queued:
            self._go_on()

    def _take(self, events: Iterator[Event | None]) -> None:
        """Handle events until they end, or this turn is over."""
        clock = self._server.clock
        end = clock() + TURN
        unread = self._http2.unread
        try:
            for event in events:
                if type(event) is DataReceived:
                    self._data(event.stream_id, event.data, event.ended)
                elif type(event) is StreamOpened:
                    self._opened(event)
                elif event is not None:
                    self._abandon(event.stream_id)
                if clock() > end or not self.writable:
                    self._events = events
                    self._transport.pause_reading()
                    if self.writable:
                        self._server.queue(self)
                    break
        except ProtocolError as error:
            self.close(str(error), "protocol")
        except Exception:
            self._server.log.exception("a call of %s broke the connection", self)
            self.close()
        if self._http2.unread != unread:
            self._server.count_begun(self._http2.unread - unread)
        self.flush_soon()

    def flush_soon(self) -> None:
        """Send what the HTTP/2 connection has at the end of this turn of the event loop."""
        if not self.flushing:
            self.flushing = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send what the HTTP/2 connection has."""
        self.flushing = False
        data = self._http2.take_output()
        if data and not self.closed:
            self.last_active = self._loop.time()
            self._transport.write(data)
        if self._http2.waiting > MAX_WAITING:
            self.close(f"{self._http2.waiting} bytes of answers wait for it", "unread")

    def close(self, reason: str = "", cause: Hashable = "closed") -> None:
        """Send what is answered, then close; with one log line if there is a reason."""
        if self.closed:
            return
        if reason:
            self._server.log.warning(
                "gRPC connection of %s closed: %s", self, reason, cause=("closed", cause)
            )
        self.flush()
        self.closed = True
        for stream_id in tuple(self._streams):
            self._abandon(stream_id)
        self._transport.close()
        self._loop.call_later(_STOP_GRACE, self._transport.abort)

    def shut_down(self) -> None:
        """Tell the client that the server stops, and end the streams that have no end."""
        for stream_id, stream in tuple(self._streams.items()):
            if stream.incoming is not None:
                error = GrpcError(GrpcStatus.UNAVAILABLE, "the proxy stops")
                self.end_stream(stream_id, error)
        self._http2.go_away()
        self.flush()

    @property
    def busy(self) -> bool:
        """Whether a call is in progress."""
        return bool(self._streams)

    # --- calls ------------------------------------------------------------------------------------

    def _opened(self, event: StreamOpened) -> None:
        headers = RequestHeaders(event.headers)
        stream_id = event.stream_id
        if headers.method != b"POST" or not headers.content_type.startswith(CONTENT_TYPE):
            status = 405 if headers.method != b"POST" else 415
            self._http2.send_trailers(stream_id, http_error(status))
            return
        method = self._server.methods.get(headers.path)
        if method is None:
            name = headers.path.decode("ascii", "replace")
            self._refuse(
                stream_id,
                GrpcError(GrpcStatus.UNIMPLEMENTED, f"method {name[:100]} is not implemented"),
            )
            return
        call = Call(
            headers.path.rpartition(b"/")[2].decode("ascii", "replace"),
            self.peer,
            headers.metadata,
            authority=headers.authority.decode("ascii", "replace"),
            deadline=self.last_active + headers.timeout,
        )
        reader = MessageReader(self._server.max_message)
        stream = self._streams[stream_id] = _Stream(call, method, reader, self.last_active)
        if isinstance(method, Duplex):
            try:
                stream.incoming = method.open(call, _Outgoing(self, stream_id))
            except GrpcError as error:
                self.end_stream(stream_id, error)
                return
        if event.ended:
            self._data(stream_id, b"", True)

    def _data(self, stream_id: int, data: bytes, ended: bool) -> None:
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        reader = stream.reader
        before = reader.size
        incoming = stream.incoming
        try:
            for message in reader.feed(data):
                request = _parsed(stream.method, message)
                if incoming is not None:
                    incoming.received(request)
                elif stream.work is None:
                    self._start(stream_id, stream, request)
                else:
                    raise GrpcError(GrpcStatus.INVALID_ARGUMENT, "one request is expected")
            if ended and incoming is not None:
                self.end_stream(stream_id)
            elif ended and stream.work is None and stream_id in self._streams:
                raise GrpcError(GrpcStatus.INTERNAL, "the call ended before its request")
        except GrpcError as error:
            self.end_stream(stream_id, error)
        after = reader.size if stream_id in self._streams else 0
        if after != before:
            self._server.count_begun(after - before)

    def _start(self, stream_id: int, stream: _Stream, request: Any) -> None:
        """Have the request executed; answer when that is done."""
        method = stream.method
        assert not isinstance(method, Duplex)
        result: Awaitable[Any] = method.handler(stream.call, request)
        work = stream.work = asyncio.ensure_future(result, loop=self._loop)
        self._server.work.add(work)

        def done(work: asyncio.Future[Any]) -> None:
            self._server.work.discard(work)
            if work.cancelled():
                self.end_stream(stream_id, GrpcError(GrpcStatus.CANCELLED, "the call was ended"))
            elif (error := work.exception()) is not None:
                self.end_stream(stream_id, error)
            else:
                self._answer(stream_id, method, work.result())

        work.add_done_callback(done)

    def _answer(self, stream_id: int, method: Unary | ServerStream, result: Any) -> None:
        if stream_id not in self._streams:
            return
        messages: Sequence[Message] = result if isinstance(method, ServerStream) else (result,)
        for message in messages:
            self.send_message(stream_id, message)
        self.end_stream(stream_id)

    def send_message(self, stream_id: int, message: Message) -> None:
        """Send one message of an answer."""
        stream = self._streams.get(stream_id)
        if stream is None or self.closed:
            return
        if not stream.answered:
            stream.answered = True
            self._http2.send_headers(stream_id, RESPONSE_HEADERS)
        self._http2.send_data(stream_id, message_frame(message.SerializeToString()))
        self.flush_soon()

    def end_stream(self, stream_id: int, error: BaseException | None = None) -> None:
        """End a call, well or with an error."""
        stream = self._streams.pop(stream_id, None)
        if stream is None:
            return
        self._forget(stream)
        if error is None:
            if not stream.answered:
                self._http2.send_headers(stream_id, RESPONSE_HEADERS)
            self._http2.send_trailers(stream_id, OK_TRAILERS)
        else:
            if not isinstance(error, GrpcError):
                self._server.log.error(
                    "call %s of %s failed: %r",
                    stream.call.method,
                    self,
                    error,
                    cause=("failed", stream.call.method, type(error)),
                )
                error = GrpcError(GrpcStatus.INTERNAL, f"{type(error).__name__}: {error}")
            if stream.answered:
                self._http2.send_trailers(stream_id, error_trailers(error))
            else:
                self._refuse(stream_id, error)
        self.flush_soon()

    def _refuse(self, stream_id: int, error: GrpcError) -> None:
        # Headers and trailers in one.
        self._http2.send_trailers(stream_id, (*RESPONSE_HEADERS, *error_trailers(error)))
        self.flush_soon()

    def _abandon(self, stream_id: int) -> None:
        """The client gave a call up, or is gone."""
        stream = self._streams.pop(stream_id, None)
        if stream is None:
            return
        self._forget(stream)
        method = stream.method
        if stream.work is not None and not (isinstance(method, Unary) and method.carried_through):
            stream.work.cancel()

    def _forget(self, stream: _Stream) -> None:
        if stream.reader.size:
            self._server.count_begun(-stream.reader.size)
            stream.reader.size = 0
        if stream.incoming is not None:
            stream.incoming.closed()
            stream.incoming = None

    # --- bounds -----------------------------------------------------------------------------------

    @property
    def begun(self) -> int:
        """Bytes of frames and requests that are not complete."""
        requests = sum(stream.reader.size for stream in self._streams.values())
        return requests + self._http2.unread

    def sweep(self, now: float) -> None:
        """End what takes too long: calls whose request is not complete, and idle connections."""
        for stream_id, stream in tuple(self._streams.items()):
            unfinished = stream.work is None and (stream.incoming is None or stream.reader.size)
            if unfinished and now - stream.began > self._server.request_timeout:
                self._streams.pop(stream_id)
                self._forget(stream)
                self._http2.reset(stream_id, Reason.CANCEL)
                self.flush_soon()
        server = self._server
        idle = server.idle_timeout if self._http2.begun else server.request_timeout
        if not self._streams and now - self.last_active > idle:
            self._http2.go_away()
            self.close()


def _parsed(method: Method, data: bytes) -> Any:
    try:
        return method.request.FromString(data)
    except Exception as error:  # DecodeError, whose module is not the same in all versions
        raise GrpcError(
            GrpcStatus.INVALID_ARGUMENT, f"the request cannot be read: {error}"
        ) from None


class GrpcServer:
    """Listens on one address and serves calls by a table of methods.

    - `port`: 0 takes a free one, see `port`;
    - `tls`: encrypts connections that begin with a TLS handshake; None: they are closed;
    - `clock`: seconds, to divide the time between clients.
    """

    def __init__(
        self,
        methods: Methods,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ServerTls | None = None,
        idle_timeout: float = IDLE_TIMEOUT,
        request_timeout: float = REQUEST_TIMEOUT,
        max_message: int = MAX_MESSAGE,
        max_begun: int = MAX_BEGUN,
        max_connections: int = MAX_CONNECTIONS,
        max_connections_per_address: int = MAX_CONNECTIONS_PER_ADDRESS,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.methods = methods
        self.host = host
        self.tls = tls
        self.idle_timeout = idle_timeout
        self.request_timeout = request_timeout
        self.max_message = max_message
        self.max_begun = max_begun
        self.max_connections = max_connections
        self.max_connections_per_address = max_connections_per_address
        self.clock = clock
        self.log = LimitedLog(log)
        self.handshakes = Handshakes()
        self.connections: set[GrpcConnection] = set()
        self.work: set[asyncio.Future[Any]] = set()
        self._port = port
        self._of_address = AddressCounts()
        self._begun = 0
        self._waiting: deque[GrpcConnection] = deque()
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port listened on; before `start`, the one asked for."""
        return self._port

    async def start(self) -> None:
        """Listen. Raises PortInUse or CannotListen."""
        self._server = await listen(
            lambda: GrpcConnection(self),
            self.host,
            self._port,
            name="proxy",
            setting="grpcServerPort",
        )
        self._port = self._server.sockets[0].getsockname()[1]
        self._watch()

    async def stop(self) -> None:
        """Stop listening, let running calls end (for a second), and close the connections."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        if self._timer is not None:
            self._timer.cancel()
        for connection in tuple(self.connections):
            connection.shut_down()
        if self.work:
            await asyncio.wait(set(self.work), timeout=_STOP_GRACE)
        late = set(self.work)
        for work in late:
            work.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        await asyncio.sleep(0)  # their answers
        for connection in tuple(self.connections):
            connection.close()
        self.handshakes.stop()

    def queue(self, connection: GrpcConnection) -> None:
        """Let a connection take its turn after those that wait already."""
        if connection.queued:
            return
        connection.queued = True
        self._waiting.append(connection)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._waiting[0].take_turn()
        self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next_turn)

    def count_begun(self, size: int) -> None:
        """Count bytes of begun requests; close the connections that hold the most if it is too
        much."""
        self._begun += size
        if size < 0 or self._begun <= self.max_begun:
            return
        for connection in sorted(self.connections, key=lambda c: c.begun, reverse=True):
            if self._begun <= self.max_begun * 9 // 10:
                break
            connection.close(
                f"its requests that are not complete take {connection.begun} bytes, the most of "
                "all",
                "begun",
            )

    def connection_made(self, connection: GrpcConnection) -> None:
        self.connections.add(connection)
        address = connection.peer[0]
        if self._of_address.add(address) > self.max_connections_per_address:
            connection.close(
                f"its address has {self.max_connections_per_address} connections already",
                "address",
            )
        elif len(self.connections) > self.max_connections:
            connection.close(f"the proxy has {self.max_connections} connections already", "most")

    def connection_lost(self, connection: GrpcConnection) -> None:
        self.connections.discard(connection)
        self._of_address.remove(connection.peer[0])

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in tuple(self.connections):
            connection.sweep(now)
        self._timer = loop.call_later(min(self.request_timeout / 4, 10.0), self._watch)
