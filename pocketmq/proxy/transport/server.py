"""The gRPC port: one port for plaintext HTTP/2 and TLS, distinguished by the first byte.

The path of a call: `data_received` gets the socket's data, `Http2Connection` turns it into events,
and the complete request goes to the method's handler. The answers of one turn of the event loop are
sent in one write per connection.

Fairness and limits are those of `pocketmq.remoting.serving.server`: the frames of one connection
are processed for at most two milliseconds per turn, and connections with more frames wait for their
next turn in order. All clients with more than a few calls at a time share two milliseconds of each
turn of the event loop, and a short turn while the others are active: twenty connections with calls
without end made a send wait for as many turns. A started call counts as well, because its handler
runs after its frames. Clients with few calls share two milliseconds per owner in the same way.
The server stops reading from a client that does not read its answers, and drops it when too much is
queued for it, or nothing of that is taken for too long. A request must be complete within a time
limit. The memory for all calls and their requests, from their first header to their answer, and for
unsent answers is limited per connection, per owner, and in total. A call that its method does not
admit is refused after its headers.

An owner is an address, or a user at an address: a connection belongs to its address until a signed
call tells its user. So what somebody does without an account, or with another one, takes nothing
from the open connections of users at the same address.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from time import perf_counter
from typing import Any, Final, cast

from pocketmq.error_kind import unexpected
from pocketmq.limited_log import LimitedLog
from pocketmq.proxy.rpc import (
    SMALL,
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
    REFUSAL_PRICE,
    DataReceived,
    Event,
    Http2Connection,
    ProtocolError,
    Reason,
    StreamOpened,
)
from pocketmq.proxy.transport.work_budget import (
    BURST,
    RATE,
    SHARES,
    WorkBudget,
)
from pocketmq.remoting.machine_memory import at_most
from pocketmq.remoting.serving.light_clients import LightClients
from pocketmq.remoting.serving.listening import listen
from pocketmq.remoting.serving.request import Owner
from pocketmq.remoting.serving.rotation import Rotation
from pocketmq.remoting.shares import Shares
from pocketmq.remoting.socket_options import find_dead_peer, limit_unsent
from pocketmq.remoting.tls.tls_context import ServerTls
from pocketmq.remoting.tls.tls_layer import Handshakes, TlsLayer

log = logging.getLogger("pocketmq.proxy")

#: Seconds for which a connection without an open stream is kept (`grpcClientIdleTimeMills`).
IDLE_TIMEOUT: Final = 120.0
#: Seconds within which a started request must be complete, and a new connection's protocol known.
REQUEST_TIMEOUT: Final = 60.0
MAX_CONNECTIONS: Final = 20_000
MAX_CONNECTIONS_PER_ADDRESS: Final = 5_000
#: Bytes of one message (`grpcMaxInboundMessageSize`).
MAX_MESSAGE: Final = 130 << 20
#: The most bytes of requests held until their answer: per connection, per owner, and in total.
MAX_HELD_PER_CONNECTION: Final = 256 << 20
MAX_HELD_PER_OWNER: Final = 384 << 20
MAX_HELD: Final = 512 << 20
#: The price of a connection for its address, in units of `WorkBudget`.
CONNECTION_PRICE: Final = 50
#: Unsent bytes above which the server stops reading from a connection.
HIGH_WATER: Final = 1 << 20
#: Bytes that an open call counts in addition to its header fields, request and answer, as objects.
CALL_OVERHEAD: Final = 4 << 10
#: Seconds for the frames of all clients with much work in one turn.
TURN: Final = 0.002
#: The same while clients with little work are active. A call takes 0.3 ms.
SHORT_TURN: Final = 0.0002
#: Seconds that a started call counts as, in addition to its frames: its handler runs after them.
CALL: Final = 0.0002
#: The longest pause after a long turn while clients with little work are active, in seconds.
LONGEST_REST: Final = 1.0
#: Seconds that the frames of one read take at most, if a client has little work, and the number of
#: its calls in progress.
LIGHT_READ: Final = 0.001
LIGHT_CALLS: Final = 2
#: Seconds for which such a client counts as active: an answer takes several turns.
LIGHT: Final = 0.1
_STOP_GRACE: Final = 1.0

_TLS_BYTE: Final = 0x16
#: Bytes of a refused request that are read before the refusal is sent: clients expect it after
#: their request.
_DROPPED: Final = SMALL


class _Stream:
    """A call in progress.

    Attributes:
        refused: the answers to a call that is not admitted, whose request is dropped.
        held: bytes that count until the call ends.
    """

    __slots__ = (
        "answered",
        "began",
        "call",
        "dropped",
        "held",
        "incoming",
        "method",
        "reader",
        "refused",
        "work",
    )

    def __init__(self, call: Call, method: Method, reader: MessageReader, began: float) -> None:
        self.call = call
        self.method = method
        self.reader = reader
        self.began = began
        self.incoming: Incoming | None = None
        self.work: asyncio.Future[Any] | None = None
        self.answered = False  # the response headers are sent
        self.refused: Sequence[Message] = ()
        self.dropped = 0
        self.held = 0


class _Share:
    """Shared by the connections of one owner: a budget, the bytes held, and the seconds that those
    with little work have taken in this turn of the event loop."""

    __slots__ = ("budget", "connections", "held", "owner", "taken")

    def __init__(self, owner: Owner, clock: Callable[[], float]) -> None:
        self.owner = owner
        self.budget = WorkBudget(clock, burst=SHARES * BURST, rate=SHARES * RATE)
        self.connections = 0
        self.held = 0
        self.taken = 0.0


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
        self._http2: Http2Connection
        self._streams: dict[int, _Stream] = {}
        self._transport: asyncio.Transport
        self._begun = False
        self._events: Iterator[Event | None] | None = None
        self._more: list[bytes] = []
        self._buffered = 0  # bytes of incomplete frames, unsent answers and their calls
        self._started = 0  # calls in this turn
        self.share: _Share
        self._budget: WorkBudget
        self.peer = ("", 0)
        self.closed = False
        self.writable = True
        self.last_active = 0.0
        self._unsent = 0  # bytes of answers
        self._unsent_since = 0.0  # when the client last took some of them
        self.flushing = False
        self.queued = False
        self.held = 0
        self._heavy_until = -math.inf  # it has more than little work
        self._aborting: asyncio.TimerHandle | None = None

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
        connection = transport.get_extra_info("socket")
        find_dead_peer(connection)
        limit_unsent(connection)
        self.share = self._server.share(Owner(self.peer[0]))
        self._budget = WorkBudget(self._server.clock, shared=self.share.budget)
        self._http2 = Http2Connection(budget=self._budget)
        self._server.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.writable = False
        self._events = None
        self._more.clear()
        if self._aborting is not None:
            self._aborting.cancel()
        for stream_id in tuple(self._streams):
            self._abandon(stream_id)
        self._hold(-self._buffered)
        self._http2.end()
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
        elif self._server.must_wait(self.share, self._heavy_until):
            self._more.append(data)
            self._transport.pause_reading()
            self._server.queue(self)
        else:
            self._take(self._http2.receive(data))

    def _begin_tls(self, tls: ServerTls, data: bytes) -> None:
        handshakes = self._server.handshakes
        if refusal := handshakes.refusal(self.peer[0]):
            self.close(*refusal)
            return
        layer = TlsLayer(tls.context(), self._transport, self, handshakes, self.peer[0], self.close)
        self._transport = layer.as_transport()
        layer.data_received(data)

    def pause_writing(self) -> None:
        self.writable = False
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.writable = True
        self._count_buffered()
        self._go_on()

    def _go_on(self) -> None:
        if self._events is not None or self._more:
            self._server.queue(self)
        elif not self.closed:
            self._transport.resume_reading()

    def take_turn(self) -> None:
        """Continue with the pending frames."""
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
        """Handle events until none is left or this turn is over."""
        server = self._server
        clock = server.clock
        began = clock()
        known = began < self._heavy_until
        short = known and server.light.active(began)
        end = began + (SHORT_TURN if short else TURN)
        self._started = 0
        try:
            for event in events:
                if type(event) is DataReceived:
                    self._data(event.stream_id, event.data, event.ended)
                elif type(event) is StreamOpened:
                    self._opened(event)
                elif event is not None:
                    self._abandon(event.stream_id)
                if self.closed:
                    break
                if clock() + self._started * CALL > end or not self.writable:
                    self._events = events
                    self._transport.pause_reading()
                    break
        except ProtocolError as error:
            self.close(str(error), "protocol")
        except Exception:
            self._server.log.exception("a call of %s broke the connection", self)
            self.close()
        ended = clock()
        heavy = (
            self._events is not None
            or ended - began > LIGHT_READ
            or len(self._streams) > LIGHT_CALLS
        )
        ended += self._started * CALL
        if not known:
            server.worked_light(self.share, ended - began)
        if heavy:
            # For a while, because the last of many calls look like little work.
            self._heavy_until = ended + LIGHT
        if heavy or known:
            server.worked(began, ended)
        else:
            server.light.heard(ended, LIGHT)
        if self._events is not None and self.writable and not self.closed:
            server.queue(self)
        self._count_buffered()
        self.flush_soon()

    def _count_buffered(self) -> None:
        unsent = self._http2.waiting + self._transport.get_write_buffer_size()
        if unsent < self._unsent or not self._unsent:
            self._unsent_since = self._loop.time()
        self._unsent = unsent
        # Calls that have ended for the server, but whose answers are not sent.
        unended = max(self._http2.open_streams - len(self._streams), 0)
        buffered = self._http2.unread + unsent + unended * CALL_OVERHEAD
        if buffered != self._buffered and not self.closed:
            change, self._buffered = buffered - self._buffered, buffered
            self._hold(change)
        if unsent > MAX_WAITING:
            self.close(f"{unsent} bytes of answers wait for it", "unread")

    def flush_soon(self) -> None:
        """Send the output of the HTTP/2 connection at the end of this turn of the event loop."""
        if not self.flushing:
            self.flushing = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send the output of the HTTP/2 connection."""
        self.flushing = False
        data = self._http2.take_output()
        if data and not self.closed:
            self.last_active = self._loop.time()
            self._transport.write(data)
            self._count_buffered()

    def close(self, reason: str = "", cause: Hashable = "closed") -> None:
        """Send the pending output, then close; log one line if a reason is given."""
        if self.closed:
            return
        if reason:
            self._server.log.warning(
                "gRPC connection of %s closed: %s", self, reason, cause=("closed", cause)
            )
        self._transport.write(self._http2.take_output())
        self._http2.end()
        self.closed = True
        self._hold(-self._buffered)
        self._buffered = 0
        for stream_id in tuple(self._streams):
            self._abandon(stream_id)
        self._transport.close()
        self._aborting = self._loop.call_later(_STOP_GRACE, self._transport.abort)

    def shut_down(self) -> None:
        """Tell the client that the server stops, and end the duplex streams."""
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
            self._http2.charge(REFUSAL_PRICE)
            return
        method = self._server.methods.get(headers.path)
        if method is None:
            name = headers.path[:100].decode("ascii", "replace")
            self._refuse(
                stream_id,
                GrpcError(GrpcStatus.UNIMPLEMENTED, f"method {name} is not implemented"),
            )
            self._http2.charge(REFUSAL_PRICE)
            return
        call = Call(
            headers.path.rpartition(b"/")[2].decode("ascii", "replace"),
            self.peer,
            headers.metadata,
            authority=headers.authority.decode("ascii", "replace"),
            deadline=self.last_active + headers.timeout,
        )
        reader = MessageReader(min(method.limit, self._server.max_message))
        stream = self._streams[stream_id] = _Stream(call, method, reader, self.last_active)
        if method.admit is not None:
            stream.refused = method.admit(call)
            owner = call.owner
            if owner.user and owner != self.share.owner:
                self._belong_to(owner)
        try:
            self._hold_for(
                stream,
                sum((len(name) + len(value) + 32 for name, value in event.headers), CALL_OVERHEAD),
            )
            if stream.refused:
                self._http2.charge(REFUSAL_PRICE)
            elif isinstance(method, Duplex) and not self.closed:
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
        if stream.refused:
            self._drop(stream_id, stream, data, ended)
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
            # The request of an answered call is held until the answer, that of a stream until it is
            # received.
            more = len(data) if incoming is None else reader.size - before
            if more:
                self._hold_for(stream, more)
            if ended and incoming is not None:
                self.end_stream(stream_id)
            elif ended and stream.work is None and stream_id in self._streams:
                raise GrpcError(GrpcStatus.INTERNAL, "the call ended before its request")
        except GrpcError as error:
            self.end_stream(stream_id, error)

    def _drop(self, stream_id: int, stream: _Stream, data: bytes, ended: bool) -> None:
        """Receive a piece of a refused request."""
        stream.dropped += len(data)
        duplex = isinstance(stream.method, Duplex)
        if not (ended or duplex or stream.dropped > _DROPPED):
            return
        if not stream.answered:
            for message in stream.refused:
                self.send_message(stream_id, message)
        # As in the official proxy, the client has to end its stream.
        if ended or not duplex:
            self.end_stream(stream_id)

    def _hold_for(self, stream: _Stream, size: int) -> None:
        """Count bytes of a call until it ends. Raises GrpcError above the limit."""
        stream.held += size
        self._hold(size)
        server = self._server
        if self.held > server.max_held_per_connection:
            raise GrpcError(
                GrpcStatus.RESOURCE_EXHAUSTED,
                f"the calls of this connection take {self.held} bytes already",
            )
        share = self.share
        if share.held > server.max_held_per_owner:
            raise GrpcError(
                GrpcStatus.RESOURCE_EXHAUSTED,
                f"the calls of {' at '.join(filter(None, reversed(share.owner)))} take "
                f"{share.held} bytes already",
            )

    def _belong_to(self, owner: Owner) -> None:
        """Count what the connection has, and will have, for its user."""
        before = self.share
        share = self.share = self._server.share(owner)
        before.connections -= 1
        share.connections += 1
        before.held -= self.held
        share.held += self.held
        self._budget.shared = share.budget

    def _hold(self, size: int) -> None:
        self.held += size
        self.share.held += size
        self._server.hold(size)

    def _start(self, stream_id: int, stream: _Stream, request: Any) -> None:
        """Start executing the request; answer when it is done."""
        method = stream.method
        assert not isinstance(method, Duplex)
        self._started += 1
        result: Awaitable[Any] = method.handler(stream.call, request)
        work = stream.work = asyncio.ensure_future(result, loop=self._loop)
        self._server.work[work] = stream.call.method

        def done(work: asyncio.Future[Any]) -> None:
            self._server.work.pop(work, None)
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
        """End a call, successfully or with an error."""
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
                error = GrpcError(GrpcStatus.INTERNAL, unexpected(error))
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
        """Handle a call whose client cancelled it or disconnected."""
        stream = self._streams.pop(stream_id, None)
        if stream is None:
            return
        self._forget(stream)
        method = stream.method
        if stream.work is not None and not (isinstance(method, Unary) and method.carried_through):
            stream.work.cancel()

    def _forget(self, stream: _Stream) -> None:
        self._hold(-stream.held)
        stream.held = 0
        if stream.incoming is not None:
            stream.incoming.closed()
            stream.incoming = None

    # --- bounds -----------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        """End calls whose request is not complete in time, and idle connections."""
        for stream_id, stream in tuple(self._streams.items()):
            unfinished = stream.work is None and (stream.incoming is None or stream.reader.size)
            if unfinished and now - stream.began > self._server.request_timeout:
                self._streams.pop(stream_id)
                self._forget(stream)
                self._http2.reset(stream_id, Reason.CANCEL)
                self.flush_soon()
        server = self._server
        self._count_buffered()
        if self._unsent and now - self._unsent_since > server.idle_timeout:
            self.close(f"it has not taken its answers for {server.idle_timeout:g} s", "unread")
        idle = server.idle_timeout if self._http2.begun else server.request_timeout
        if not self._streams and now - self.last_active > idle:
            self._http2.go_away()
            self.close()


def _held(connection: GrpcConnection) -> tuple[int, int]:
    return connection.share.held, connection.held


def _parsed(method: Method, data: bytes) -> Any:
    try:
        return method.request.FromString(data)
    except GrpcError:
        raise
    except Exception as error:  # DecodeError, whose module differs between versions
        raise GrpcError(
            GrpcStatus.INVALID_ARGUMENT, f"the request cannot be read: {error}"
        ) from None


class GrpcServer:
    """Listens on one address and serves calls with a table of methods.

    - `port`: 0 takes a free one, see `port`;
    - `tls`: encrypts connections that begin with a TLS handshake; None: they are closed;
    - `light`: the clients with little work; ports of one event loop share them;
    - `clock`: seconds, for dividing time among clients.
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
        max_held: int | None = None,
        max_held_per_connection: int | None = None,
        max_held_per_owner: int | None = None,
        max_connections: int = MAX_CONNECTIONS,
        max_connections_per_address: int = MAX_CONNECTIONS_PER_ADDRESS,
        light: LightClients | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.methods = methods
        self.host = host
        self.tls = tls
        self.idle_timeout = idle_timeout
        self.request_timeout = request_timeout
        self.max_message = max_message
        self.max_held = max_held or at_most(MAX_HELD)
        self.max_held_per_connection = max_held_per_connection or min(
            MAX_HELD_PER_CONNECTION, self.max_held // 2
        )
        self.max_held_per_owner = max_held_per_owner or min(
            MAX_HELD_PER_OWNER, self.max_held * 3 // 4
        )
        self.max_connections = max_connections
        self.max_connections_per_address = max_connections_per_address
        self.light = light or LightClients()
        self.clock = clock
        self.log = LimitedLog(log)
        self.handshakes = Handshakes()
        self.connections: set[GrpcConnection] = set()
        #: What runs, and the method that it is a call of.
        self.work: dict[asyncio.Future[Any], str] = {}
        self._port = port
        self._shares: dict[Owner, _Share] = {}
        self._of_address = Shares()
        self._held = 0
        self._waiting: Rotation[GrpcConnection] = Rotation()
        self._turn_due = False  # `_next_turn` is scheduled
        # In this turn of the event loop: seconds of clients with much work, owners of others.
        self._taken = 0.0
        self._taking: set[_Share] = set()
        self._rest_until = 0.0
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The listening port; before `start`, the requested one."""
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
        """Stop listening, let running calls end (for a second), and close the connections.

        A call that ignores its cancellation is left after another second.
        """
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
        if late:
            await asyncio.wait(late, timeout=_STOP_GRACE)
            await asyncio.sleep(0)  # their answers
        if self.work:
            self.log.error(
                "%d calls have not ended within %g s of their cancellation (%s); the proxy stops "
                "without them",
                *(len(self.work), _STOP_GRACE, ", ".join(sorted(set(self.work.values())))),
            )
        for connection in tuple(self.connections):
            connection.close()
        self.handshakes.stop()

    def queue(self, connection: GrpcConnection) -> None:
        """Queue a connection for a turn."""
        if connection.queued:
            return
        connection.queued = True
        self._waiting.add(connection.share, connection)
        if not self._turn_due:
            self._turn_due = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def must_wait(self, share: _Share, heavy_until: float) -> bool:
        """Whether a client has to wait for its turn, which has much work until then."""
        now = self.clock()
        if now > heavy_until:
            return share.taken > TURN
        if not self.light.active(now):
            return bool(self._waiting) or self._taken > TURN
        return bool(self._waiting) or self._taken > 0 or now < self._rest_until

    def worked(self, began: float, ended: float) -> None:
        """Note that a client with much work had its turn."""
        if not self._taken:
            # It runs after the first steps of the calls that were started.
            asyncio.get_running_loop().call_soon(self._end_heavy, began)
        self._taken += ended - began

    def worked_light(self, share: _Share, seconds: float) -> None:
        """Note that a client of this owner was served that was not known to have much work."""
        if not self._taking:
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._taking.add(share)
        share.taken += seconds

    def _end_heavy(self, began: float) -> None:
        self._taken = 0.0
        now = self.clock()
        if now - began > 2 * TURN:
            self._rest_until = now + min(now - began, LONGEST_REST)
            self.light.missed(now - began, now)

    def _end_turn(self) -> None:
        for share in self._taking:
            share.taken = 0.0
        self._taking.clear()

    def _next_turn(self) -> None:
        loop = asyncio.get_running_loop()
        rest = self._rest_until - self.clock()
        if rest > 0 and self.light.active(self.clock()):
            loop.call_later(rest, self._next_turn)
            return
        try:
            while self._waiting:
                self._waiting.take().take_turn()
                if self._taken > TURN or self.light.active(self.clock()):
                    break
        finally:
            self._turn_due = bool(self._waiting)
            if self._turn_due:
                loop.call_soon(self._next_turn)

    def share(self, owner: Owner) -> _Share:
        """Return what the connections of an owner share."""
        share = self._shares.get(owner)
        if share is None:
            share = self._shares[owner] = _Share(owner, self.clock)
        return share

    def hold(self, size: int) -> None:
        """Count bytes of requests; above the limit, close the connections that hold the most, of
        the owners that hold the most."""
        self._held += size
        if size <= 0 or self._held <= self.max_held:
            return
        for connection in sorted(self.connections, key=_held, reverse=True):
            if self._held <= self.max_held * 9 // 10:
                break
            connection.close(
                f"its calls take {connection.held} bytes, and those of its owner the most of all",
                "held",
            )

    def connection_made(self, connection: GrpcConnection) -> None:
        self.connections.add(connection)
        connection.share.connections += 1
        if self._of_address.add(connection.peer[0]) > self.max_connections_per_address:
            connection.close(
                f"its address has {self.max_connections_per_address} connections already",
                "address",
            )
        elif len(self.connections) > self.max_connections:
            connection.close(f"the proxy has {self.max_connections} connections already", "most")
        elif not connection.share.budget.spend(CONNECTION_PRICE):
            connection.close("its address causes too much work", "work")

    def connection_lost(self, connection: GrpcConnection) -> None:
        self.connections.discard(connection)
        connection.share.connections -= 1
        self._of_address.remove(connection.peer[0])

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        # First, so that the next one runs even if this one fails.
        self._timer = loop.call_later(min(self.request_timeout / 4, 10.0), self._watch)
        now = loop.time()
        for connection in tuple(self.connections):
            connection.sweep(now)
        for owner, share in tuple(self._shares.items()):
            if not share.connections and share.budget.full:
                del self._shares[owner]
