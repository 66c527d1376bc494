"""The listening side: frames in, handlers, frames out.

A request's path: `data_received` gets a read of up to 256 KiB, the splitter cuts it into frames,
and for each frame the request is decoded, its handler called, and the answer encoded. There is no
task, no future and no raised exception per request, because each of them costs too much at 70
thousand requests per second. A handler that cannot answer yet returns `None` and calls
`request.reply` later; an awaitable becomes a task.

Consecutive requests of one read that a handler can execute together, as it does with those of a
batch request, are given to it at once: 64 sends in a read take 30 % less time that way. A read
handler (`Dispatcher.serve_reads`) gets requests as bytes, and decodes them itself.

The answers of all connections leave at the end of the turn of the event loop, so that all requests
of one turn share one write into the log. With 64 clients that each wait for an answer, that serves
1.6 times as many requests as one write each. Large answers, such as those to pulls, leave at once.

Back-pressure: while a client does not read its answers, the server does not execute its requests
and does not read its socket, because a client can send any number of requests. Answers to requests
that are already running still collect, up to a hard limit.

Fairness: the requests of one read are executed for two milliseconds at most. The rest is queued and
its socket is not read; one such connection gets a turn in each turn of the event loop. These turns
are short while clients that send little want their answers. So a client that sends without end
takes only the time that others leave (`python -m bench.flood`). A connection that sends a frame in
many small pieces is read less and less often.

A request cannot be divided, and a client can have many connections. So, while clients that send
little are active, all the others share the turns: one reads and executes, and the next ones wait.
After more than two turns' time comes a rest of the same length, so that these others together take
half of the time at most.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import chain
from random import uniform
from time import perf_counter
from typing import Any

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import FrameError, HeaderError
from pocketmq.remoting.frames.first_bytes import (
    PROTOCOL_VERSION_ALERT,
    FirstBytes,
    explain,
    recognise,
)
from pocketmq.remoting.frames.frame import MAX_FRAME, decode_command, encode_response_frame
from pocketmq.remoting.frames.frame_memory import FrameMemory
from pocketmq.remoting.machine_memory import at_most
from pocketmq.remoting.serving.dispatch import Dispatcher, ReadHandler
from pocketmq.remoting.serving.frame_stream import FLUSH_SIZE, MAX_TASKS, WRITE_LIMIT, FrameStream
from pocketmq.remoting.serving.light_clients import LightClients
from pocketmq.remoting.serving.listening import listen
from pocketmq.remoting.serving.request import Request, RequestDecoder, Response
from pocketmq.remoting.serving.rotation import Rotation
from pocketmq.remoting.shares import Shares
from pocketmq.remoting.socket_options import limit_unsent
from pocketmq.remoting.tls.tls_context import ServerTls
from pocketmq.remoting.tls.tls_layer import Handshakes, TlsLayer

IDLE_TIMEOUT = 120.0
MAX_CONNECTIONS = 20_000
MAX_CONNECTIONS_PER_ADDRESS = 5_000
UNREAD_LIMIT = 1 << 30
"""Bytes of answers that the clients of one server have not read."""
_UNREAD_INTERVAL = 0.1
FEW_CONNECTIONS = 256
"""Connections of which those with at most `HIGH_WATER` unread bytes need not be counted."""

_COUNT_INTERVAL = 0.5
"""Seconds between two counts of more connections; one of 20,000 takes some milliseconds."""

_STOP_GRACE = 1.0

TURN = 0.002
"""Seconds of one connection's requests that are executed in one go."""

SHORT_TURN = 0.00005
"""The same for a connection that sent more than that, while others send little at a time. The turn
ends with the request, or with those executed together, that exceed it."""

MOST_TOGETHER = 32
"""Requests of one read that are executed together, if their handler can do that."""

MOST_IN_SHORT_TURN = 4
"""The same in a short turn."""

_MIXED = 0.1
"""Seconds for which there are several owners after a request that is not of the last one's owner.
Then the requests of one of them that take more than two turns, however little each of them, wait
for their turn: otherwise a thousand clients of one user that send at one moment go before one of
another user."""

_MOST_WORK = 4 * TURN
"""Seconds of all clients' requests that are executed in one turn of the event loop without waiting,
apart from those of reads that take less than `LIGHT_READ`: nobody knows before whether the first
requests of a connection take long, and very many connections can send them at one moment."""

LIGHT_READ = 0.0002
"""Seconds that the requests of a client take at most after a read, if it sends little."""

LARGE_READ = 16 * 1024
"""Bytes of a read whose requests may take long; so may a frame that spans reads."""

LARGE_ANSWERS = 32 * 1024
"""Bytes of answers that leave at once, and not at the end of this turn of the event loop: their
client reads them while other requests are executed."""

SMALL_READ = 4096
FREE_SMALL_READS = 8
SHORTEST_REST = 0.001
LONGEST_REST = 1.0
"""A frame may come in a few small reads (bytes). After each further one its socket is not read for
up to this many seconds, doubled each time: a read costs the broker the same however small it is,
and a thousand connections that send a byte at a time take all of its time. The duration is random,
or all of them would be read at the same moment."""


REFUSED_PLAIN = (
    "it does not speak TLS, which this server demands (tls.server.mode = enforcing): switch it on "
    "in the client"
)


class ServerConnection(FrameStream):
    """A client's connection, as handlers see it in `request.connection`."""

    def __init__(self, server: RemotingServer) -> None:
        super().__init__(
            server.dispatcher,
            server.decoder,
            max_frame=server.max_frame,
            write_limit=server.write_limit,
            max_tasks=server.max_tasks,
            tasks=server.tasks,
            memory=server.frame_memory,
        )
        self._server = server
        self._dispatcher = server.dispatcher
        self._many = server.dispatcher.many
        self._dispatch_many = server.dispatcher.dispatch_many
        self._first: bytes | None = b""
        # Frames that are not executed yet: other connections have their turn, or the client does
        # not read its answers. Meanwhile the socket is not read.
        self._waiting: Iterator[bytes | memoryview] | None = None
        self._held: list[bytes | memoryview] = []  # frames before them
        self._greedy = False  # its last read was more than fitted into one turn
        self.heavy = False  # its last requests took longer than LIGHT_READ
        self.queued = False
        self._small_reads = 0  # reads that continued one frame without its end
        self._rest: asyncio.TimerHandle | None = None  # the socket is not read until it fires

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection is not None:
            limit_unsent(connection)
        self._server.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting = None
        self._held.clear()
        if self._rest is not None:
            self._rest.cancel()
        super().connection_lost(exc)
        self._server.connection_lost(self)

    def data_received(self, data: bytes) -> None:
        self.last_active = self._loop.time()
        if self._first is not None:
            data = self._first + data
            kind = recognise(data)
            if kind is FirstBytes.UNDECIDED:
                self._first = data
                return
            tls = self._server.tls
            encrypted = isinstance(self._transport, TlsLayer)
            if kind is FirstBytes.TLS and tls is not None and not encrypted:
                self._first = b""
                self._begin_tls(tls, data)
                return
            if kind is not FirstBytes.REMOTING:
                if kind is FirstBytes.TLS:
                    self._transport.write(PROTOCOL_VERSION_ALERT)
                self.close(explain(kind, self._server.port, self._server.name), kind)
                return
            if tls is not None and tls.required and not encrypted:
                self._transport.write(PROTOCOL_VERSION_ALERT)
                self.close(REFUSED_PLAIN, "plain")
                return
            self._first = None
        begun = self._splitter.begun_frame
        frames = self._splitter.feed(data)
        more_to_come = begun is not None and begun is self._splitter.begun_frame
        if self._waiting is not None or not self.writable:
            self._waiting = frames
        else:
            server = self._server
            began = server.clock()
            owner = self.owner
            if owner != server.last_owner:
                if server.last_owner:
                    server.mixed_until = began + _MIXED
                server.last_owner = owner
            may_be_heavy = self.heavy or begun is not None or len(data) >= LARGE_READ
            if not more_to_come and server.must_wait(owner, began, may_be_heavy=may_be_heavy):
                self._waiting = frames
                self._transport.pause_reading()
                server.queue(self)
                return
            ended = self._process(frames, began)
            self.heavy = ended - began > LIGHT_READ
            if self.heavy:
                server.worked(ended - began, ended)
                server.direct_work += ended - began
            if ended < server.mixed_until:
                server.count(owner, ended - began)
            if self._waiting is not None:
                self._greedy = True
            elif self._greedy:
                self._greedy = False
            elif not self._splitter.begun:
                self._small_reads = 0
                if not self.heavy:
                    server.light.heard(ended)
            elif more_to_come:
                self._read_a_piece(len(data))

    def _read_a_piece(self, size: int) -> None:
        """Rest if a frame comes in too many small pieces."""
        if size >= SMALL_READ:
            self._small_reads = 0
            return
        self._small_reads += 1
        doublings = self._small_reads - FREE_SMALL_READS
        if doublings > 0 and self._rest is None and not self.closed:
            longest = min(SHORTEST_REST * 2 ** min(doublings, 16), LONGEST_REST)
            self._transport.pause_reading()
            self._rest = self._loop.call_later(uniform(longest / 2, longest), self._end_rest)

    def _end_rest(self) -> None:
        self._rest = None
        self._resume_reading()

    def _resume_reading(self) -> None:
        """Read the socket, unless there is a reason not to."""
        if self._waiting is None and self._rest is None and self.writable and not self.closed:
            self._transport.resume_reading()

    def _begin_tls(self, tls: ServerTls, data: bytes) -> None:
        """Switch to TLS; `data` is what was received so far."""
        handshakes = self._server.handshakes
        if refusal := handshakes.refusal(self.peer[0]):
            self.close(*refusal)
            return
        layer = TlsLayer(tls.context(), self._transport, self, handshakes, self.peer[0], self.close)
        self._transport = layer.as_transport()
        layer.data_received(data)

    def take_turn(self) -> None:
        """Execute some of the queued frames."""
        self.queued = False
        if self.closed or not self.writable:
            return
        frames, self._waiting = self._waiting, None
        if frames is not None:
            server = self._server
            began = server.clock()
            ended = self._process(frames, began)
            if ended - began > LIGHT_READ:
                self.heavy = True
                server.worked(ended - began, ended)
        self._resume_reading()

    def drop_frame(self, reason: str) -> None:
        """Close, and free the memory of the incomplete frame at once."""
        self._splitter.forget()
        self.close(reason, "begun frame")

    @property
    def begun_frame(self) -> bytearray | None:
        """The bytes so far of an incomplete frame, unless its socket is not read: the same object
        until the frame is complete."""
        return None if self._waiting is not None else self._splitter.begun_frame

    def _process(self, frames: Iterator[bytes | memoryview], now: float) -> float:
        """Execute frames until they end, this turn is over, or the client is too slow for the
        answers; the rest is queued. Takes the time, and returns that after the last frame."""
        clock = self._server.clock
        end, most = now + TURN, MOST_TOGETHER
        if self._greedy and self._server.light.active(now):
            end, most = now + SHORT_TURN, MOST_IN_SHORT_TURN
        decode = self._decode
        dispatch = self.refuse if self._task_count >= self._max_tasks else self._dispatch
        # Most reads bring a single request: the first one is executed alone.
        many: Container[int] = ()
        by_read = self._dispatcher.read_handler
        if by_read is not None and self.overloaded:
            by_read = None
        together: list[Request[Any]] = []
        held: list[bytes | memoryview] = []  # the frames of these
        # Answers that handlers give by reply() during this loop need no flush of their own.
        due, self._flush_due = self._flush_due, True
        # Those that were left come first. They are no longer the splitter's: what waits is its own
        # iterator, since the next read replaces that.
        left: deque[bytes | memoryview] | None = None
        every = frames
        if self._held:
            left = deque(self._held)
            every = chain(_taken_from(left), frames)
        try:
            if by_read is not None and not left and self._execute_read(by_read, end, most):
                now = clock()
            for frame in every:
                try:
                    request = decode(frame)
                except HeaderError as error:
                    self._run_together(together, held, end)
                    if held:
                        held.append(frame)
                    else:
                        self._bad_header(frame, error)
                else:
                    request.connection = self
                    request.channel = self
                    if request.code in many and not request.flag:
                        together.append(request)
                        held.append(frame)
                        if len(together) < most:
                            continue
                        self._run_together(together, held, end)
                    elif together and not self._run_together(together, held, end):
                        held.append(frame)
                    elif request.flag:
                        self._process_flagged(request, frame)
                    else:
                        result = dispatch(request)
                        if type(result) is bytes:
                            self._out.append(result)
                            self._out_size += len(result)
                        elif type(result) is Response:
                            self._append_response(request, result)
                        elif result is not None:
                            self.spawn(request, result)  # type: ignore[arg-type]
                            if self.overloaded:
                                dispatch = self.refuse
                        many = self._many
                        if by_read is not None and not left:
                            if self._execute_read(by_read, end, most):
                                many = ()  # the next one is unusual, later ones may not be
                            else:
                                by_read = None
                if self._out_size >= LARGE_ANSWERS:
                    self._flush()
                    self._flush_due = True
                    if not self.writable:
                        self._waiting = frames
                        now = clock()
                        break
                now = clock()
                if now > end:
                    self._wait_for_turn(frames)
                    break
            if together:
                if not self._run_together(together, held, end):
                    self._wait_for_turn(frames)
                now = clock()
            if left:
                held += left
            self._held = held
        except FrameError as error:
            self._run_together(together, held, end)
            self.close(error.remark)
        except Exception:
            self.log.exception("a request of %s broke the connection", self)
            self.close("unexpected error", "error")
        self._flush_due = due
        if not due and self._out:
            self._flush_due = True
            self._server.flush_later(self)
        return now

    def _execute_read(self, handler: ReadHandler, end: float, most: int) -> bool:
        """Have requests executed straight from what was read, up to the end of the turn; return
        whether any were."""
        splitter = self._splitter
        executed = False
        while True:
            data, at = splitter.unread
            if at == len(data):
                break
            done = handler(self, data, at, most, splitter.max_length)
            if done is None:
                break
            executed = True
            splitter.skip_to(done.stopped)
            self._out.append(done.answers)
            self._out_size += len(done.answers)
            if self._out_size >= FLUSH_SIZE or self._server.clock() > end:
                break
        return executed

    def _wait_for_turn(self, frames: Iterator[bytes | memoryview]) -> None:
        """Execute these frames in a later turn."""
        self._waiting = frames
        self._transport.pause_reading()
        self._server.queue(self)

    def _run_together(
        self, requests: list[Request[Any]], frames: list[bytes | memoryview], end: float
    ) -> bool:
        """Execute requests together to share costs, and answer them; take them and their `frames`
        out of the lists. Return False if some are left because this turn is over."""
        done = 0
        clock = self._server.clock
        while done < len(requests):
            rest = requests[done:]
            if len(rest) > 1 and not self.overloaded:
                answers = self._dispatch_many(rest)
                done += len(answers)
                for request, answer in zip(rest, answers, strict=False):
                    if type(answer) is bytes:
                        self._out.append(answer)
                        self._out_size += len(answer)
                    elif answer is not None:
                        self._append_response(request, answer)  # type: ignore[arg-type]
            # The request that stopped them, and its like, go alone; another code starts over.
            code = rest[0].code
            while done < len(requests) and requests[done].code == code and clock() <= end:
                self._run(requests[done])
                done += 1
            if clock() > end:
                break
        requests.clear()
        del frames[:done]
        return not frames

    def _process_flagged(self, request: Request[Any], frame: bytes | memoryview) -> None:
        if request.flag & 1:
            self._resolve(request.opaque, frame)
        else:
            self._run(request)

    def _resolve(self, opaque: int, frame: bytes | memoryview) -> None:
        """Hand an answer of the client to the request that waits for it."""
        try:
            self._pending.resolve(opaque, decode_command(frame))
        except HeaderError as error:
            self._pending.fail(opaque, error)

    def _bad_header(self, frame: bytes | memoryview, error: HeaderError) -> None:
        """Answer a request with a bad header, or raise FrameError if that is impossible."""
        if error.opaque is None:
            raise FrameError(error.remark)
        if error.flag & 1:
            # The typed decoder takes every frame for a request, so it refuses an answer whose
            # response code happens to be the code of a request with mandatory fields.
            self._resolve(error.opaque, frame)
        elif not error.flag & 2:
            head = encode_response_frame(
                error.serialize_type,
                error.opaque,
                ResponseCode.SYSTEM_ERROR,
                error.remark,
                None,
                0,
            )
            self._out.append(head)
            self._out_size += len(head)

    def flush(self) -> None:
        """Send what was collected, after `before_answers`; never raises."""
        try:
            super()._flush()
        except Exception:
            self.log.exception("the answers to %s cannot be sent", self)
            self.abort("its answers cannot be sent")

    def _flush_later(self) -> None:
        self._server.flush_later(self)

    def _flush(self) -> None:
        if self._out:
            self._server.flush_now([self])

    def pause_writing(self) -> None:
        super().pause_writing()
        self._transport.pause_reading()
        self._server.has_unread(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._server.unread.discard(self)
        if self._waiting is not None:
            self._server.queue(self)
        else:
            self._resume_reading()


class RemotingServer:
    """Listens on one address and serves every connection by one dispatcher.

    Args:
        dispatcher: the handlers; more may register while the server runs.
        host: address to bind; loopback unless the caller says otherwise.
        port: 0 picks a free one, see `port`.
        max_frame: bytes, including the four length bytes.
        idle_timeout: seconds without a read or write after which a connection is closed.
        write_limit: bytes of unread answers after which a connection is dropped.
        unread_limit: bytes of unread answers of all connections, above which those with the most
            are dropped; by default 1 GiB, or a quarter of the memory if that is less.
        few_connections: up to so many, those with at most `HIGH_WATER` unread bytes do not count.
        max_connections: connections above it are closed as they come, with a log line.
        max_connections_per_address: the same for connections from one address.
        frame_memory: bounds the bytes of incomplete frames; when it is exceeded, the connections
            that hold the most are closed. Each frame has `idle_timeout` seconds to be completed.
        max_tasks: requests of one connection that may be in progress at once; those above it are
            refused with SYSTEM_BUSY.
        tls: encrypts the connections that begin with a TLS handshake; None: they are refused.
        handshakes: runs and bounds the handshakes.
        name: what the server is, for log lines: "broker", "name server".
        before_answers: called each time before collected answers leave; if it raises, they do not,
            and their connections are dropped.
        light: the clients that send little; ports of one event loop share them.
        clock: seconds, to divide the time between clients.

    Attributes:
        unread: connections whose clients do not read their answers as fast as they come.
        on_connection_lost: callbacks, each called with the connection that is gone.
        after_answers: called when the answers of a turn were sent; must not raise.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        max_frame: int = MAX_FRAME,
        idle_timeout: float = IDLE_TIMEOUT,
        write_limit: int = WRITE_LIMIT,
        unread_limit: int | None = None,
        few_connections: int = FEW_CONNECTIONS,
        max_connections: int = MAX_CONNECTIONS,
        max_connections_per_address: int = MAX_CONNECTIONS_PER_ADDRESS,
        frame_memory: FrameMemory | None = None,
        max_tasks: int = MAX_TASKS,
        tls: ServerTls | None = None,
        handshakes: Handshakes | None = None,
        name: str = "broker",
        before_answers: Callable[[], None] = lambda: None,
        light: LightClients | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.dispatcher = dispatcher
        self.clock = clock
        self.before_answers = before_answers
        self.light = light or LightClients()
        self.host = host
        self.max_frame = max_frame
        self.idle_timeout = idle_timeout
        self.write_limit = write_limit
        self.unread_limit = at_most(UNREAD_LIMIT) if unread_limit is None else unread_limit
        self.few_connections = few_connections
        self.unread: set[ServerConnection] = set()
        self._unread_timer: asyncio.TimerHandle | None = None
        self.max_connections = max_connections
        self.max_connections_per_address = max_connections_per_address
        self.frame_memory = frame_memory or FrameMemory()
        self.frame_memory.exceeded = self._drop_begun_frames_soon
        self._dropping = False
        # The incomplete frames at the last check, and since when they are known.
        self._begun: dict[ServerConnection, tuple[bytearray, float]] = {}
        self._of_address = Shares()
        self.max_tasks = max_tasks
        self.tls = tls
        self.handshakes = handshakes or Handshakes()
        self.name = name
        self.connections: set[ServerConnection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.on_connection_lost: list[Callable[[ServerConnection], None]] = []
        self.after_answers: Callable[[], None] = lambda: None
        self.decoder = RequestDecoder(dispatcher.header_types)
        self._flushing: list[ServerConnection] = []
        # Connections with requests left over from their turn, in the order of their next turns.
        self._waiting: Rotation[ServerConnection] = Rotation()
        self._turn_due = False  # `_next_turn` is scheduled
        #: Seconds of requests that took long without waiting, in this turn of the event loop.
        self.direct_work = 0.0
        # The same of all requests, by owner, while there are several owners.
        self._work_of: dict[str, float] = {}
        self._end_due = False
        self.last_owner = ""
        self.mixed_until = 0.0  # requests of several owners have come lately
        self._turn_taken = False  # in this turn of the event loop, by slow requests
        self._rest_until = 0.0
        self._port = port
        self._server: asyncio.Server | None = None
        self._idle_timer: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port listened on; before `start`, the requested one."""
        return self._port

    async def start(self) -> None:
        """Listen. Raises `PortInUse` or `CannotListen` in plain words."""
        self._server = await listen(
            lambda: ServerConnection(self), self.host, self._port, name=self.name
        )
        self._port = self._server.sockets[0].getsockname()[1]
        self._watch_idle()

    async def stop(self) -> None:
        """Stop listening, let running requests end (for a second), and send the answers."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
        if self.tasks:
            await asyncio.wait(set(self.tasks), timeout=_STOP_GRACE)
        for task in set(self.tasks):
            task.cancel()
        connections = set(self.connections)
        for connection in connections:
            connection.close()
        if connections:
            closing = [asyncio.ensure_future(c.wait_closed()) for c in connections]
            _, late = await asyncio.wait(closing, timeout=_STOP_GRACE)
            for connection in set(self.connections):
                connection.abort("the server stops and the client does not read")
            if late:
                await asyncio.wait(late, timeout=_STOP_GRACE)
        self.handshakes.stop()

    def flush_later(self, connection: ServerConnection) -> None:
        """Send what a connection has collected at the end of this turn of the event loop."""
        if not self._flushing:
            asyncio.get_running_loop().call_soon(self.flush)
        self._flushing.append(connection)

    def flush(self) -> None:
        """Send the delayed output."""
        flushing, self._flushing = self._flushing, []
        if flushing:
            self.flush_now(flushing)
            self.after_answers()

    def flush_now(self, connections: Sequence[ServerConnection]) -> None:
        """Send the collected output of these connections."""
        try:
            self.before_answers()
        except Exception:
            self.dispatcher.log.exception("answers are not sent: storing failed")
            for connection in connections:
                connection.abort("what its answers would acknowledge is not stored")
        else:
            for connection in connections:
                connection.flush()

    def queue(self, connection: ServerConnection) -> None:
        """Let a connection take its turn after those of its owner that are queued already; owners
        alternate."""
        if connection.queued:
            return
        connection.queued = True
        self._waiting.add(connection.owner, connection)
        if not self._turn_due:
            self._turn_due = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def must_wait(self, owner: str, now: float, *, may_be_heavy: bool) -> bool:
        """Whether requests of an owner have to wait for their turn."""
        if self.direct_work > _MOST_WORK:
            return True
        if now < self.mixed_until and (
            self._work_of.get(owner, 0.0) > 2 * TURN or self._waiting.has(owner)
        ):
            return True
        if not may_be_heavy or not self.light.active(now):
            return False
        return self._turn_taken or bool(self._waiting) or now < self._rest_until

    def worked(self, seconds: float, now: float) -> None:
        """Note that a connection's requests took longer than those of clients that send little."""
        if seconds > 2 * TURN:
            self._rest_until = now + min(seconds, LONGEST_REST)
            self.light.missed(seconds, now)
        self._turn_taken = True
        self._end_turn_soon()

    def count(self, owner: str, seconds: float) -> None:
        """Count the requests of an owner, while there are several."""
        self._work_of[owner] = self._work_of.get(owner, 0.0) + seconds
        self._end_turn_soon()

    def _end_turn_soon(self) -> None:
        if not self._end_due:
            self._end_due = True
            asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._end_due = self._turn_taken = False
        self.direct_work = 0.0
        self._work_of.clear()

    def _next_turn(self) -> None:
        now = self.clock()
        rest = self._rest_until - now
        if rest > 0 and self.light.active(now):
            asyncio.get_running_loop().call_later(rest, self._next_turn)
            return
        light = self.light.active(now)
        try:
            while self._waiting:
                connection = self._waiting.take()
                alone = light and connection.heavy
                connection.take_turn()
                if alone or self.clock() > now + TURN:
                    break
        finally:
            self._turn_due = bool(self._waiting)
            if self._turn_due:
                asyncio.get_running_loop().call_soon(self._next_turn)

    def connection_made(self, connection: ServerConnection) -> None:
        self.connections.add(connection)
        if len(self.connections) > self.few_connections and self._unread_timer is None:
            self._watch_unread()
        address = connection.peer[0]
        if self._of_address.add(address) > self.max_connections_per_address:
            connection.close(
                f"its address has {self.max_connections_per_address} connections to the "
                f"{self.name} already (maxConnectionsPerAddress)",
                ("connections", address),
            )
        elif len(self.connections) > self.max_connections:
            connection.close(
                f"the {self.name} has {self.max_connections} connections already", "connections"
            )

    def connection_lost(self, connection: ServerConnection) -> None:
        self.connections.discard(connection)
        self.unread.discard(connection)
        self._of_address.remove(connection.peer[0])
        for callback in self.on_connection_lost:
            try:
                callback(connection)
            except Exception:
                self.dispatcher.log.exception(
                    "callback for the lost connection of %s failed", connection
                )

    def has_unread(self, connection: ServerConnection) -> None:
        """Watch a connection with more than `HIGH_WATER` bytes of answers that were not read."""
        self.unread.add(connection)
        if self._unread_timer is None:
            self._watch_unread()

    def _watch_unread(self) -> None:
        """Close the connections with the most unread answers until all have 9/10 of the limit."""
        self._unread_timer = None
        many = len(self.connections) > self.few_connections
        holders = self.connections if many else self.unread
        if not holders or self._server is None:
            return
        used = sum(each.unsent for each in holders)
        most = self.unread_limit
        if used > most:
            sizes = {each: each.unsent for each in holders}
            for connection in sorted(sizes, key=sizes.__getitem__, reverse=True):
                if used <= most * 9 // 10:
                    break
                used -= sizes[connection]
                connection.abort(
                    f"{sizes[connection]} bytes of answers unread, the most of all, and those of "
                    f"all clients may take {most} bytes of the {self.name}"
                )
        loop = asyncio.get_running_loop()
        interval = _COUNT_INTERVAL if many else _UNREAD_INTERVAL
        self._unread_timer = loop.call_later(interval, self._watch_unread)

    def _drop_begun_frames_soon(self) -> None:
        if not self._dropping:
            self._dropping = True
            asyncio.get_running_loop().call_soon(self._drop_begun_frames)

    def _drop_begun_frames(self) -> None:
        """Close the connections with the largest incomplete frames until they take 9/10 of the
        limit."""
        self._dropping = False
        memory = self.frame_memory
        most = memory.limit
        if memory.used <= most:
            return
        used = memory.used
        holders = sorted(
            ((len(each.begun_frame or b""), each) for each in self.connections),
            key=lambda holder: holder[0],
            reverse=True,
        )
        for size, connection in holders:
            if used <= most * 9 // 10:
                break
            used -= size
            connection.drop_frame(
                f"it has sent {size} bytes of a frame without its end, the most "
                f"of all, and such frames may take {most} bytes of the {self.name}"
            )

    def _close_slow_frames(self, now: float) -> None:
        before, self._begun = self._begun, {}
        for connection in list(self.connections):
            frame = connection.begun_frame
            if frame is None:
                continue
            known, since = before.get(connection, (frame, now))
            self._begun[connection] = (frame, since if known is frame else now)
            if known is frame and now - since >= self.idle_timeout:
                connection.drop_frame(
                    f"a frame of it is not complete after {self.idle_timeout:.3g} s"
                )

    def _watch_idle(self) -> None:
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self.idle_timeout
        try:
            for connection in [c for c in self.connections if c.last_active < oldest]:
                connection.close()
            self._close_slow_frames(loop.time())
        finally:
            self._idle_timer = loop.call_later(min(self.idle_timeout / 4, 10.0), self._watch_idle)


def _taken_from(frames: deque[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    while frames:
        yield frames.popleft()
