"""The server's end of one HTTP/2 connection: bytes in, events out, and frames to send back.

No I/O and no clock, so it is tested without sockets. It has what gRPC needs of RFC 9113: streams
that a client opens, header blocks, data in both directions with their windows, trailers, resets,
pings, GOAWAY. It has no priorities, no pushes and no upgrade from HTTP/1.1. Header blocks are
decoded by `header_decoder`. All of it is here because it is the hot path of the proxy: the library
h2 takes three times the CPU time for a call (docs/proxy.md has the figures).

A client that breaks the rules of one stream gets RST_STREAM, and one that breaks those of the
connection gets GOAWAY: `receive` raises ProtocolError, and what `take_output` returns is the last
that is to be sent. Everything that a client can make grow is bounded: header blocks, streams, and
answers that wait for the client's windows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from pocketmq.proxy.transport.header_decoder import HeaderBlockError, HeaderDecoder

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

#: Octets of one frame's payload that both sides may send; the default of HTTP/2, never raised.
MAX_FRAME_SIZE: Final = 16_384
#: Octets of one header block as it is sent, with its CONTINUATION frames.
MAX_HEADER_BLOCK: Final = 32_768
#: Octets of one header list as HTTP/2 counts it: names, values, and 32 for each pair.
MAX_HEADER_LIST: Final = 65_536
#: Streams that one client may have open.
MAX_STREAMS: Final = 2_000
#: Octets that a client may send on one stream, and on all of a connection, before it hears more.
STREAM_WINDOW: Final = 1 << 20
CONNECTION_WINDOW: Final = 1 << 24
#: Octets of answers that may wait for the client's windows on one connection.
MAX_WAITING: Final = 64 << 20
#: Streams that a client may reset before they were answered, without one that it lets be answered.
MAX_RESETS: Final = 1_000

_DEFAULT_WINDOW: Final = 65_535
_MAX_WINDOW: Final = (1 << 31) - 1


class Kind(IntEnum):
    """Types of frames."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Reason(IntEnum):
    """Error codes of RST_STREAM and GOAWAY."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


_ACK: Final = 1
_END_STREAM: Final = 1
_END_HEADERS: Final = 4
_PADDED: Final = 8
_PRIORITY: Final = 32

_HEADER_TABLE_SIZE: Final = 1
_ENABLE_PUSH: Final = 2
_MAX_CONCURRENT_STREAMS: Final = 3
_INITIAL_WINDOW_SIZE: Final = 4
_MAX_FRAME_SIZE: Final = 5
_MAX_HEADER_LIST_SIZE: Final = 6

Headers = Sequence[tuple[bytes, bytes]]


class ProtocolError(Exception):
    """The client broke the rules of the connection, which ends with GOAWAY."""

    def __init__(self, text: str, reason: Reason = Reason.PROTOCOL_ERROR) -> None:
        super().__init__(text)
        self.reason = reason


class StreamOpened(NamedTuple):
    """A request began; `headers` as they came, pseudo-headers first."""

    stream_id: int
    headers: Headers
    ended: bool


class DataReceived(NamedTuple):
    """A piece of a request's body."""

    stream_id: int
    data: bytes
    ended: bool


class StreamReset(NamedTuple):
    """The client gave the stream up; nothing more can be sent on it."""

    stream_id: int


Event = StreamOpened | DataReceived | StreamReset


class _Stream:
    """An open stream: what the client may be sent, and what waits for that."""

    __slots__ = ("ended", "received", "trailers", "waiting", "window")

    def __init__(self, window: int) -> None:
        self.window = window  # octets that may be sent
        self.received = 0  # octets that came and were not given back to the client's window
        self.ended = False  # by the client
        self.waiting: deque[bytes] = deque()
        self.trailers: bytes | None = None


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Return one frame."""
    return b"%b%c%c%b%b" % (
        len(payload).to_bytes(3, "big"),
        kind,
        flags,
        stream_id.to_bytes(4, "big"),
        payload,
    )


def literal(name: bytes, value: bytes) -> bytes:
    """Return one header field for a block, without Huffman code and without use of the table."""
    return b"\0" + _string(name) + _string(value)


def _string(text: bytes) -> bytes:
    length = len(text)
    if length < 127:
        return b"%c%b" % (length, text)
    out = bytearray((127,))
    length -= 127
    while length >= 128:
        out.append(length & 127 | 128)
        length >>= 7
    out.append(length)
    return bytes(out) + text


class Http2Connection:
    """One connection; see the module. `max_streams` bounds the streams that may be open.

    Attributes:
        waiting: octets of answers that wait for the client's windows.
        ended: the client sends no more requests (GOAWAY).
    """

    def __init__(self, *, max_streams: int = MAX_STREAMS) -> None:
        self.waiting = 0
        self.ended = False
        self._max_streams = max_streams
        self._decoder = HeaderDecoder(MAX_HEADER_LIST)
        self._buffer = b""
        self._preface = True
        self._first = True
        self._streams: dict[int, _Stream] = {}
        self._last_id = 0
        self._window = _DEFAULT_WINDOW
        self._initial_window = _DEFAULT_WINDOW
        self._received = 0
        self._block: bytearray | None = None
        self._block_of = 0
        self._block_ends = False
        self._resets = 0
        self._out: list[bytes] = [
            frame(
                Kind.SETTINGS,
                0,
                0,
                b"".join(
                    key.to_bytes(2, "big") + value.to_bytes(4, "big")
                    for key, value in (
                        (_MAX_CONCURRENT_STREAMS, max_streams),
                        (_INITIAL_WINDOW_SIZE, STREAM_WINDOW),
                        (_MAX_HEADER_LIST_SIZE, MAX_HEADER_LIST),
                    )
                ),
            ),
            _window_update(0, CONNECTION_WINDOW - _DEFAULT_WINDOW),
        ]

    @property
    def begun(self) -> bool:
        """Whether the client has said that it speaks HTTP/2."""
        return not self._preface

    @property
    def open_streams(self) -> int:
        """Streams that are not closed on both sides."""
        return len(self._streams)

    def take_output(self) -> bytes:
        """Return what is to be sent now."""
        out = self._out
        if not out:
            return b""
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return data

    # --- what comes ---------------------------------------------------------------------------

    def receive(self, data: bytes) -> Iterator[Event]:
        """Take what came; give its events one by one.

        The events may be taken in several steps, with `receive` called again after the last one
        only.

        Raises:
            ProtocolError: the connection is over; send what `take_output` has, and close.
        """
        buffer = self._buffer + data if self._buffer else data
        at, end = 0, len(buffer)
        self._buffer = b""
        try:
            if self._preface:
                if not PREFACE.startswith(buffer[: len(PREFACE)]):
                    raise ProtocolError("it does not begin as HTTP/2 does")
                if end < len(PREFACE):
                    self._buffer = buffer
                    return
                at = len(PREFACE)
                self._preface = False
            while end - at >= 9:
                word = int.from_bytes(buffer[at : at + 4], "big")
                length = word >> 8
                if length > MAX_FRAME_SIZE:
                    raise ProtocolError(
                        f"a frame of {length} bytes; the limit is {MAX_FRAME_SIZE}",
                        Reason.FRAME_SIZE_ERROR,
                    )
                following = at + 9 + length
                if following > end:
                    break
                stream_id = int.from_bytes(buffer[at + 5 : at + 9], "big") & _MAX_WINDOW
                event = self._frame(
                    word & 255, buffer[at + 4], stream_id, buffer[at + 9 : following]
                )
                at = following
                if event is not None:
                    yield event
            self._buffer = buffer[at:]
        except ProtocolError as error:
            self._out.append(
                frame(
                    Kind.GOAWAY,
                    0,
                    0,
                    self._last_id.to_bytes(4, "big")
                    + error.reason.to_bytes(4, "big")
                    + str(error).encode()[:200],
                )
            )
            raise

    def _frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> Event | None:
        if self._block is not None and kind != Kind.CONTINUATION:
            raise ProtocolError("a header block is not complete before the next frame")
        if self._first:
            if kind != Kind.SETTINGS:
                raise ProtocolError("the first frame is not SETTINGS")
            self._first = False
        if kind == Kind.DATA:
            return self._data(flags, stream_id, payload)
        if kind == Kind.HEADERS:
            return self._headers(flags, stream_id, payload)
        if kind == Kind.WINDOW_UPDATE:
            self._window_updated(stream_id, payload)
        elif kind == Kind.PING:
            _expect(len(payload) == 8, "PING")
            if not flags & _ACK:
                self._out.append(frame(Kind.PING, _ACK, 0, payload))
        elif kind == Kind.SETTINGS:
            self._settings(flags, payload)
        elif kind == Kind.RST_STREAM:
            _expect(len(payload) == 4, "RST_STREAM")
            return self._reset(stream_id)
        elif kind == Kind.CONTINUATION:
            return self._continuation(flags, stream_id, payload)
        elif kind == Kind.GOAWAY:
            self.ended = True
        elif kind == Kind.PUSH_PROMISE:
            raise ProtocolError("a client sent PUSH_PROMISE")
        return None  # PRIORITY, and types that are not known, mean nothing here

    def _data(self, flags: int, stream_id: int, payload: bytes) -> Event | None:
        length = len(payload)
        self._received += length
        if self._received > CONNECTION_WINDOW:
            raise ProtocolError("more data than its window", Reason.FLOW_CONTROL_ERROR)
        if self._received >= CONNECTION_WINDOW // 2:
            self._out.append(_window_update(0, self._received))
            self._received = 0
        stream = self._streams.get(stream_id)
        if stream is None or stream.ended:
            if stream_id > self._last_id or not stream_id & 1:
                raise ProtocolError("data on a stream that was never opened")
            return None  # it was reset or answered while this was on the way
        if flags & _PADDED:
            payload = _unpadded(payload)
        stream.received += length
        if stream.received > STREAM_WINDOW:
            raise ProtocolError("more data than its window", Reason.FLOW_CONTROL_ERROR)
        ended = flags & _END_STREAM != 0
        stream.ended = ended
        if not ended and stream.received >= STREAM_WINDOW // 2:
            self._out.append(_window_update(stream_id, stream.received))
            stream.received = 0
        return DataReceived(stream_id, payload, ended)

    def _headers(self, flags: int, stream_id: int, payload: bytes) -> Event | None:
        if flags & _PADDED:
            payload = _unpadded(payload)
        if flags & _PRIORITY:
            _expect(len(payload) >= 5, "HEADERS")
            payload = payload[5:]
        ends = flags & _END_STREAM != 0
        if flags & _END_HEADERS:
            return self._block_complete(stream_id, payload, ends)
        self._block = bytearray(payload)
        self._block_of = stream_id
        self._block_ends = ends
        return None

    def _continuation(self, flags: int, stream_id: int, payload: bytes) -> Event | None:
        block = self._block
        if block is None or stream_id != self._block_of:
            raise ProtocolError("CONTINUATION without a header block")
        if len(payload) < 64 and not flags & _END_HEADERS:
            raise ProtocolError("a header block in tiny pieces", Reason.ENHANCE_YOUR_CALM)
        block += payload
        if len(block) > MAX_HEADER_BLOCK:
            raise ProtocolError(
                f"a header block of more than {MAX_HEADER_BLOCK} bytes", Reason.ENHANCE_YOUR_CALM
            )
        if not flags & _END_HEADERS:
            return None
        self._block = None
        return self._block_complete(stream_id, bytes(block), self._block_ends)

    def _block_complete(self, stream_id: int, block: bytes, ends: bool) -> Event | None:
        try:
            # Always, since the table of the decoder belongs to all streams.
            headers: Headers = self._decoder.decode(block)
        except HeaderBlockError as error:
            raise ProtocolError(
                f"a header block cannot be read: {error}", Reason.COMPRESSION_ERROR
            ) from None
        stream = self._streams.get(stream_id)
        if stream is not None:
            if stream.ended or not ends:
                raise ProtocolError("headers in the middle of a request")
            stream.ended = True
            return DataReceived(stream_id, b"", True)
        if not stream_id & 1:
            raise ProtocolError("a stream of a client has an odd number")
        if stream_id <= self._last_id:
            return None  # trailers of a stream that was answered already
        self._last_id = stream_id
        if len(self._streams) >= self._max_streams:
            self._out.append(_rst(stream_id, Reason.REFUSED_STREAM))
            return None
        stream = self._streams[stream_id] = _Stream(self._initial_window)
        stream.ended = ends
        return StreamOpened(stream_id, headers, ends)

    def _reset(self, stream_id: int) -> Event | None:
        if stream_id > self._last_id or not stream_id:
            raise ProtocolError("RST_STREAM of a stream that was never opened")
        if not self._forget(stream_id):
            return None
        self._resets += 1
        if self._resets > MAX_RESETS:
            # A client that resets each request makes work without bounds (CVE-2023-44487).
            raise ProtocolError("too many resets", Reason.ENHANCE_YOUR_CALM)
        return StreamReset(stream_id)

    def _settings(self, flags: int, payload: bytes) -> None:
        if flags & _ACK:
            return
        _expect(len(payload) % 6 == 0, "SETTINGS")
        for at in range(0, len(payload), 6):
            key = int.from_bytes(payload[at : at + 2], "big")
            value = int.from_bytes(payload[at + 2 : at + 6], "big")
            if key == _INITIAL_WINDOW_SIZE:
                if value > _MAX_WINDOW:
                    raise ProtocolError("a window that is too large", Reason.FLOW_CONTROL_ERROR)
                change = value - self._initial_window
                self._initial_window = value
                for stream in self._streams.values():
                    stream.window += change
        self._out.append(frame(Kind.SETTINGS, _ACK, 0))
        self._send_waiting()

    def _window_updated(self, stream_id: int, payload: bytes) -> None:
        _expect(len(payload) == 4, "WINDOW_UPDATE")
        added = int.from_bytes(payload, "big") & _MAX_WINDOW
        if not stream_id:
            self._window += added
            if not added or self._window > _MAX_WINDOW:
                raise ProtocolError("a window that is too large", Reason.FLOW_CONTROL_ERROR)
            self._send_waiting()
            return
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        stream.window += added
        if not added or stream.window > _MAX_WINDOW:
            raise ProtocolError("a window that is too large", Reason.FLOW_CONTROL_ERROR)
        self._send_stream(stream_id, stream)

    # --- what is sent -------------------------------------------------------------------------

    def send_headers(self, stream_id: int, block: bytes) -> None:
        """Begin the answer on a stream, with the header fields of `block`."""
        if stream_id in self._streams:
            self._out.append(frame(Kind.HEADERS, _END_HEADERS, stream_id, block))

    def send_data(self, stream_id: int, data: bytes) -> None:
        """Send a piece of the answer, as soon as the client's windows allow it."""
        stream = self._streams.get(stream_id)
        if stream is None or not data:
            return
        if not stream.waiting and len(data) <= MAX_FRAME_SIZE:
            length = len(data)
            if length <= stream.window and length <= self._window:
                stream.window -= length
                self._window -= length
                self._out.append(frame(Kind.DATA, 0, stream_id, data))
                return
        stream.waiting.append(data)
        self.waiting += len(data)
        self._send_stream(stream_id, stream)

    def send_trailers(self, stream_id: int, block: bytes) -> None:
        """End the answer behind the data that was sent, with the header fields of `block`."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        self._resets = 0
        if stream.waiting:
            stream.trailers = block
        else:
            self._end(stream_id, stream, block)

    def reset(self, stream_id: int, reason: Reason) -> None:
        """Give a stream up; nothing when it is gone already."""
        if self._forget(stream_id):
            self._out.append(_rst(stream_id, reason))

    def go_away(self) -> None:
        """Tell the client to send no more requests on this connection."""
        self._out.append(frame(Kind.GOAWAY, 0, 0, self._last_id.to_bytes(4, "big") + bytes(4)))

    def _end(self, stream_id: int, stream: _Stream, block: bytes) -> None:
        del self._streams[stream_id]
        self._out.append(frame(Kind.HEADERS, _END_HEADERS | _END_STREAM, stream_id, block))
        if not stream.ended:
            # The rest of the request is not wanted.
            self._out.append(_rst(stream_id, Reason.NO_ERROR))

    def _forget(self, stream_id: int) -> bool:
        stream = self._streams.pop(stream_id, None)
        if stream is None:
            return False
        self.waiting -= sum(map(len, stream.waiting))
        return True

    def _send_waiting(self) -> None:
        if self.waiting:
            for stream_id, stream in tuple(self._streams.items()):
                self._send_stream(stream_id, stream)

    def _send_stream(self, stream_id: int, stream: _Stream) -> None:
        waiting = stream.waiting
        while waiting:
            data = waiting[0]
            length = min(len(data), stream.window, self._window, MAX_FRAME_SIZE)
            if length <= 0:
                return
            stream.window -= length
            self._window -= length
            self.waiting -= length
            self._out.append(frame(Kind.DATA, 0, stream_id, data[:length]))
            if length == len(data):
                waiting.popleft()
            else:
                waiting[0] = data[length:]
        if stream.trailers is not None:
            self._end(stream_id, stream, stream.trailers)


def _rst(stream_id: int, reason: Reason) -> bytes:
    return frame(Kind.RST_STREAM, 0, stream_id, reason.to_bytes(4, "big"))


def _window_update(stream_id: int, size: int) -> bytes:
    return frame(Kind.WINDOW_UPDATE, 0, stream_id, size.to_bytes(4, "big"))


def _unpadded(payload: bytes) -> bytes:
    padding = payload[0] if payload else 256
    if padding >= len(payload):
        raise ProtocolError("more padding than payload")
    return payload[1 : len(payload) - padding]


def _expect(good: bool, kind: str) -> None:
    if not good:
        raise ProtocolError(f"a {kind} frame of the wrong size", Reason.FRAME_SIZE_ERROR)
