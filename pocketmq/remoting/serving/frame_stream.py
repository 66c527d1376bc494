"""One TCP connection as a stream of frames in both directions.

Both ends of a connection are alike: either side sends requests, answers those of the other, and
matches answers to its own requests by opaque. The opaques of the two directions overlap, so bit 0
of the flag decides first whether a frame is an answer. The common part of both ends is here:
writing, bounds, running handlers, closing. `remoting.server` and `remoting.connection` add the
handling of what they read.

Writing: frames collect in a list and leave in one write per turn of the event loop. Small buffers
are joined, few large ones go out as they are.

Bounds: over `HIGH_WATER` bytes of unsent output the stream is paused; each end decides what it then
stops doing. Over `write_limit` bytes the connection is dropped, because its peer does not read and
its answers must not fill the memory.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Hashable, Mapping, MutableSet, Set
from functools import partial
from typing import Any, cast
from weakref import ref

from pocketmq.error_kind import unexpected
from pocketmq.message.buffers import Buffer
from pocketmq.message.identity import pack_host
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import EncodeError, RemotingClosed, RemotingTimeout, SystemBusy
from pocketmq.remoting.frames.frame import MAX_FRAME, Command, FrameSplitter, encode_request
from pocketmq.remoting.frames.frame_memory import FrameMemory
from pocketmq.remoting.headers.base import Header
from pocketmq.remoting.pending import PendingRequests
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.replaced_answers import replace_answers
from pocketmq.remoting.serving.request import Request, RequestDecoder, Response
from pocketmq.remoting.socket_options import discard_unsent

HIGH_WATER = 1 << 20
LOW_WATER = 1 << 18
FLUSH_SIZE = 1 << 20
"""Bytes of collected output that are written without waiting for the end of the turn."""

WRITE_LIMIT = 64 << 20
LINGER = 5.0
"""Seconds that a closing connection may take to send what it still holds."""

MAX_TASKS = 1024
MAX_PENDING = 65_535

# Above this mean size of a buffer, and this many bytes in all, handing the buffers over as they are
# beats joining them first (measured: answers of 4 KB cost the same, of 41 KB a quarter less).
_SLICE_MEAN = 8 << 10
_SLICES_TOTAL = 32 << 10


class FrameStream(asyncio.Protocol):
    """The protocol of one connection; see the module.

    Attributes:
        peer: the other end's (ip, port).
        peer_packed: the same as 8 (IPv4) or 20 (IPv6) bytes, as message records hold it.
        owner: the user who has signed last, or the address: for whom its work counts.
        attributes: data that processors keep for this connection, by their own names.
        closed: no request or answer is accepted any more. Answers to a closed stream are dropped.
        writable: false while more than `HIGH_WATER` bytes wait to be sent.
        ended_by_peer: whether the peer, or its machine, closed the connection, rather than this end
            or a timeout of the kernel.
        last_active: loop time, seconds, of the last read or write.
        log: the dispatcher's, for protocol errors of the peer.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        decoder: RequestDecoder,
        *,
        max_frame: int = MAX_FRAME,
        write_limit: int = WRITE_LIMIT,
        max_tasks: int = MAX_TASKS,
        max_pending: int = MAX_PENDING,
        tasks: MutableSet[asyncio.Task[None]] | None = None,
        memory: FrameMemory | None = None,
    ) -> None:
        self.peer: tuple[str, int] = ("", 0)
        self.peer_packed = b""
        self.owner = ""
        self.attributes: dict[str, Any] = {}
        self.closed = False
        self.ended_by_peer = False
        self.writable = True
        self.last_active = 0.0
        self._loop = asyncio.get_running_loop()
        self.log = dispatcher.log
        #: Text added to the error of pending requests when the connection is closed.
        self.hint = ""
        #: Whether a retry would end in the same way.
        self.final = False
        self._dispatch = dispatcher.dispatch
        self._decode = decoder.decode
        self._splitter = FrameSplitter(max_frame, memory)
        self._write_limit = write_limit
        self._max_tasks = max_tasks
        self._max_pending = max_pending
        self._tasks: MutableSet[asyncio.Task[None]] = set() if tasks is None else tasks
        self._task_count = 0
        # Not a method: what a connection refers to does not refer to it. So its memory is freed
        # when it is closed, and not by the garbage collector, which stops a server for a second
        # when it finds thirty thousand of them.
        self._pending: PendingRequests[Command] = PendingRequests(
            self._loop, partial(_timed_out, ref(self))
        )
        self._transport: asyncio.Transport
        self._out: list[Buffer] = []
        self._out_size = 0
        self._flush_due = False
        self._linger: asyncio.TimerHandle | None = None
        self._close_callbacks: list[Callable[[Any], None]] = []
        self._lost: asyncio.Future[None] = self._loop.create_future()

    def __str__(self) -> str:
        return f"{self.peer[0]}:{self.peer[1]}"

    # Life of the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport, but are not a subclass of it.
        self._transport = cast(asyncio.Transport, transport)
        # Without a name, the peer has gone again already; the transport is about to notice.
        host, port = (transport.get_extra_info("peername") or ("0.0.0.0", 0))[:2]
        self.peer = (host.removeprefix("::ffff:").partition("%")[0], port)
        self.peer_packed = pack_host(*self.peer)
        self.owner = self.peer[0]
        self.last_active = self._loop.time()
        self._transport.set_write_buffer_limits(high=HIGH_WATER, low=LOW_WATER)

    def add_close_callback(self, callback: Callable[[Any], None]) -> None:
        """Call `callback(self)` once when the connection is gone, by either end."""
        if self._lost.done():
            callback(self)
        else:
            self._close_callbacks.append(callback)

    def close(self, reason: str = "", cause: Hashable = "bytes") -> None:
        """Send what is already answered (for `LINGER` s), then close.

        With a `reason`, which should say what is wrong with the peer, one log line names both;
        `cause` is common to reasons of one kind, and limits the rate of such lines.
        """
        if self.closed:
            return
        if reason:
            self.log.warning("connection of %s closed: %s", self, reason, cause=("closed", cause))
        self._flush()
        if self.closed:
            return
        self.closed = True
        self._fail_pending()
        self._transport.close()
        if not self._lost.done():
            self._linger = self._loop.call_later(LINGER, self._transport.abort)

    def abort(self, reason: str) -> None:
        """Drop the connection and all it still had to send, with one log line."""
        if self._lost.done():
            return
        self.log.warning("connection of %s dropped: %s", self, reason)
        self.closed = True
        self._out.clear()
        self._fail_pending()
        connection = self._transport.get_extra_info("socket")
        # Once it is closing, its descriptor may be that of another connection.
        if connection is not None and not self._transport.is_closing():
            discard_unsent(connection)
        self._transport.abort()

    async def wait_closed(self) -> None:
        """Return when the connection is gone and its close callbacks have run."""
        await asyncio.shield(self._lost)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended_by_peer = not self.closed and (exc is None or isinstance(exc, ConnectionError))
        self.closed = True
        self.writable = False
        self._out.clear()
        self._splitter.forget()
        if self._linger is not None:
            self._linger.cancel()
        self._fail_pending(exc)
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                self.log.exception("close callback of %s failed", self)
        if not self._lost.done():
            self._lost.set_result(None)

    def _fail_pending(self, error: Exception | None = None) -> None:
        text = "the connection was closed"
        if isinstance(error, ssl.SSLError) and error.reason:
            # With TLS 1.3 a server refuses a client's certificate after the connect.
            text += f": {error.reason.lower().replace('_', ' ')}"
        text += self.hint
        self._pending.fail_all(lambda: self._closed(text))

    def _closed(self, text: str) -> RemotingClosed:
        error = RemotingClosed(text, str(self))
        if self.final:
            error.retriable = False
        return error

    # Writing

    @property
    def unsent(self) -> int:
        """Bytes of output not yet taken by the peer."""
        return self._transport.get_write_buffer_size()

    @property
    def pending(self) -> int:
        """The number of requests to the peer waiting for answers; `max_pending` bounds it."""
        return len(self._pending)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = not self.closed

    def respond(self, request: Request[Any], response: Response) -> None:
        """Answer a request of the peer, now or later; dropped for oneway or a closed stream."""
        if self.closed or request.oneway:
            return
        self._append_response(request, response)
        self._flush_soon()

    def replace_answers(
        self, opaques: Set[int], response: Response, within: int | None = None
    ) -> Set[int]:
        """Replace answers to these requests that have not left yet by `response`, or to these
        children of the parent with the opaque `within`. Return the opaques of those that need no
        more answer."""
        if self.closed:
            return opaques
        self._out, found = replace_answers(self._out, opaques, response, within)
        self._out_size = sum(map(len, self._out))
        return found

    def respond_frame(self, request: Request[Any], frame: bytes) -> None:
        """Answer by a whole frame, as `respond` does."""
        if not self.closed and not request.oneway:
            self._out.append(frame)
            self._out_size += len(frame)
            self._flush_soon()

    def _append_response(self, request: Request[Any], response: Response) -> None:
        try:
            length = response.length
            head = response.head(request.serialize_type, request.opaque, length)
        except Exception as error:
            self.log.exception(
                "the answer to request %d of %s cannot be written", request.code, self
            )
            failure = Response(ResponseCode.SYSTEM_ERROR, unexpected(error))
            head = failure.head(request.serialize_type, request.opaque, 0)
            length = 0
        self._out.append(head)
        self._out_size += len(head) + length
        if length:
            response.add_body(self._out)

    def _append_request(self, frame: bytes) -> None:
        size = len(frame)
        if size > MAX_FRAME:
            # The peer would close the connection, and fail all others that wait on it.
            raise EncodeError(
                f"a request of {size} bytes: a frame has at most {MAX_FRAME}", str(self)
            )
        self._out.append(frame)
        self._out_size += size
        self._flush_soon()

    def _flush_soon(self) -> None:
        if self._out_size >= FLUSH_SIZE:
            self._flush()
        elif not self._flush_due:
            self._flush_due = True
            self._flush_later()

    def _flush_later(self) -> None:
        """Flush at the end of this turn of the event loop."""
        self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Write what was collected, in one call."""
        self._flush_due = False
        out = self._out
        if not out or self.closed:
            return
        size = self._out_size
        self._out = []
        self._out_size = 0
        self.last_active = self._loop.time()
        if len(out) == 1:
            self._transport.write(out[0])
        elif size >= _SLICES_TOTAL and size >= _SLICE_MEAN * len(out):
            self._transport.writelines(out)
        else:
            self._transport.write(b"".join(out))
        if not self.writable:
            unsent = self.unsent
            if unsent > self._write_limit:
                self.abort(f"{unsent} bytes of answers unread, limit {self._write_limit}")

    # Requests to the peer

    async def send_request(
        self,
        code: int,
        header: Header | None = None,
        body: bytes | bytearray | memoryview = b"",
        timeout: float = 3.0,
        ext_fields: Mapping[str, str] | None = None,
    ) -> Command:
        """Send a request to the peer and return its answer, whatever the answer's code.

        Args:
            timeout: seconds until `RemotingTimeout`.

        Raises:
            RemotingTimeout: no answer in time; a late one is ignored.
            RemotingClosed: the connection is or was closed; the peer may have executed it.
            SystemBusy: too many requests are waiting for answers on this connection.
        """
        if self.closed:
            raise RemotingClosed("the connection is closed", str(self))
        if len(self._pending) >= self._max_pending:
            raise SystemBusy(
                f"{len(self._pending)} requests are waiting for answers already", str(self)
            )
        opaque, future = self._pending.add(timeout)
        try:
            self._append_request(encode_request(code, opaque, header, body, 0, ext_fields))
            return await future
        except BaseException:
            # Encoding may fail and the caller may be cancelled; clean up in both cases.
            self._pending.discard(opaque)
            raise

    def send_oneway(
        self,
        code: int,
        header: Header | None = None,
        body: bytes | bytearray | memoryview = b"",
        ext_fields: Mapping[str, str] | None = None,
    ) -> None:
        """Send a request that is not answered. Raises `RemotingClosed`."""
        if self.closed:
            raise RemotingClosed("the connection is closed", str(self))
        opaque = self._pending.next_opaque()
        self._append_request(encode_request(code, opaque, header, body, 2, ext_fields))

    # Requests of the peer

    def _run(self, request: Request[Any]) -> None:
        """Execute a request and answer it, except on the server's hot path."""
        if self._task_count >= self._max_tasks:
            self.respond(request, self.refuse(request))
            return
        result = self._dispatch(request)
        if type(result) is Response:
            self.respond(request, result)
        elif type(result) is bytes:
            self.respond_frame(request, result)
        elif result is not None:
            self.spawn(request, result)  # type: ignore[arg-type]

    @property
    def overloaded(self) -> bool:
        """Whether this connection runs the maximum of tasks: further requests are refused."""
        return self._task_count >= self._max_tasks

    def refuse(self, request: Request[Any]) -> Response:
        """Return the answer while the connection is overloaded."""
        return Response(
            ResponseCode.SYSTEM_BUSY,
            f"[OVERLOAD]{self._task_count} requests of this connection are in progress",
        )

    def spawn(
        self,
        request: Request[Any],
        result: Awaitable[Response | None],
        *,
        counted: bool = True,
    ) -> None:
        """See `RequestConnection`."""
        self._task_count += counted
        task = self._loop.create_task(self._finish(request, result, counted))
        # An operation once begun is completed, even if its connection goes: the set keeps the task
        # alive, and the set's owner ends it.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(
        self, request: Request[Any], result: Awaitable[Response | None], counted: bool
    ) -> None:
        try:
            response = await result
        finally:
            self._task_count -= counted
        if response is not None:
            request.channel.respond(request, response)


def _timed_out(stream: ref[FrameStream], timeout: float) -> Exception:
    return RemotingTimeout(f"no answer within {timeout:.3g} s", str(stream()))
