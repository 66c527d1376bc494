"""The server's side of one HTTP/2 connection: bytes in, events out, and frames to send back.

The library h2 implements the protocol; this module has the parts for gRPC. h2 gets one frame at a
time, so that its state matches the event being handled. Answers larger than the client's windows
are queued here, and everything that a client can make grow is bounded: header blocks, streams,
queued answers, and the work caused by frames (`WorkBudget`). This module has no I/O and no clock.

A client that violates the protocol gets GOAWAY: `receive` raises ProtocolError, and `take_output`
then returns the last bytes to send.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from h2 import events as h2
from h2.config import H2Configuration
from h2.connection import (
    ConnectionInputs,
    ConnectionState,
    H2Connection,
    H2ConnectionStateMachine,
)
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError as H2Error
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame

from pocketmq.proxy.transport.work_budget import ANSWER, WorkBudget

#: The error codes in frames that end a stream or a connection.
Reason = ErrorCodes

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

#: The most octets of one header list as HTTP/2 counts it: names, values, and 32 for each pair.
MAX_HEADER_LIST: Final = 16_384
#: The most octets of one encoded header block.
MAX_HEADER_BLOCK: Final = 2 * MAX_HEADER_LIST
#: The most open streams of one client.
MAX_STREAMS: Final = 2_000
#: The flow-control windows of one stream and of a connection, in octets.
STREAM_WINDOW: Final = 1 << 20
CONNECTION_WINDOW: Final = 1 << 24
#: The most octets of answers queued for the client's windows on one connection.
MAX_WAITING: Final = 64 << 20

_DEFAULT_WINDOW: Final = 65_535
_HEAD: Final = 9
_MAX_FRAME: Final = 16_384

_DATA: Final = 0
_HEADERS: Final = 1
_RST_STREAM: Final = 3
_SETTINGS: Final = 4
_GOAWAY: Final = 7
_WINDOW_UPDATE: Final = 8
_CONTINUATION: Final = 9

_END_STREAM: Final = 1
_ACK: Final = 1
_END_HEADERS: Final = 4
_PADDED: Final = 8

# Prices in units of `WorkBudget`. A call itself is free, because it has to wait for its turn.
_PRICES: Final = {
    _DATA: 0,
    _HEADERS: 0,
    _RST_STREAM: 25,
    _SETTINGS: 20,
    _GOAWAY: 20,
    _WINDOW_UPDATE: 1,
}
_FRAME_PRICE: Final = 5  # other kinds, and DATA and WINDOW_UPDATE with almost no effect
_SMALL_DATA_PRICE: Final = 1
_SMALL_DATA: Final = 256
_SMALL_WINDOW: Final = 1_024
#: For a call that cannot be served: too many streams, unknown method, no signature.
REFUSAL_PRICE: Final = 25

# The settings of a client that are used here. Others are dropped, because h2 keeps all.
_KNOWN_SETTINGS: Final = frozenset((*range(1, 7), 8))
_TABLE_SIZE: Final = 1
_INITIAL_WINDOW: Final = 4
# The most octets of the table of sent header fields, even if the client allows more.
_MAX_TABLE: Final = 4_096

# h2's checks of header fields are not needed: `RequestHeaders` checks the few that are used.
_CONFIG: Final = H2Configuration(
    client_side=False,
    header_encoding=None,
    validate_inbound_headers=False,
    normalize_inbound_headers=False,
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
)

Headers = Sequence[tuple[bytes, bytes]]


class ProtocolError(Exception):
    """The client violated the protocol; the connection ends with GOAWAY."""


class StreamOpened(NamedTuple):
    """A request began; `headers` in the received order, pseudo-headers first."""

    stream_id: int
    headers: Headers
    ended: bool


class DataReceived(NamedTuple):
    """A piece of a request's body."""

    stream_id: int
    data: bytes
    ended: bool


class StreamReset(NamedTuple):
    """The client reset the stream; nothing more can be sent on it."""

    stream_id: int


Event = StreamOpened | DataReceived | StreamReset


class _Machine(H2ConnectionStateMachine):
    """h2's rules, except that a client that has sent GOAWAY still gets the answers to its calls."""

    _transitions = {  # noqa: RUF012 - as the class above has it
        **H2ConnectionStateMachine._transitions,
        (ConnectionState.IDLE, ConnectionInputs.RECV_GOAWAY): (None, ConnectionState.SERVER_OPEN),
        (ConnectionState.SERVER_OPEN, ConnectionInputs.RECV_GOAWAY): (
            None,
            ConnectionState.SERVER_OPEN,
        ),
    }


class _Connection(H2Connection):
    """h2's connection without the scan of all streams for each new one."""

    @property
    def open_inbound_streams(self) -> int:
        """Always 0: `Http2Connection` counts the streams, and refuses a stream instead of the
        connection."""
        return 0

    def forget_closed(self, open_streams: int) -> None:
        """Remove closed streams once they outnumber the open ones."""
        if len(self.streams) > 2 * open_streams + 64:
            self._open_streams(1)

    def end(self) -> None:
        """Take no more frames.

        h2 refers to itself by the table of its handlers, so what it has for a connection, up to a
        hundred kilobytes, would be freed by a late collection of garbage only.
        """
        self._frame_dispatch_table.clear()


class _Stream:
    """An open stream with the data queued for the client's windows."""

    __slots__ = ("ended", "trailers", "waiting")

    def __init__(self, ended: bool) -> None:
        self.ended = ended  # by the client
        self.waiting: deque[bytes | memoryview] = deque()
        self.trailers: Headers | None = None


class Http2Connection:
    """One connection; see the module docstring.

    `max_streams` bounds the open streams; `budget` pays for the client's frames.

    Attributes:
        waiting: octets of answers queued for the client's windows; they take twice as much at most.
        unread: octets of an incomplete frame or header block.
        begun: the client has sent the HTTP/2 preface.
    """

    def __init__(self, *, max_streams: int = MAX_STREAMS, budget: WorkBudget | None = None) -> None:
        self.waiting = 0
        self.begun = False
        self._max_streams = max_streams
        self._budget = budget or WorkBudget(lambda: 0.0)
        self._rest = b""  # received octets of an incomplete frame
        self._block = 0  # octets of the incomplete header block
        self._streams: dict[int, _Stream] = {}
        self._blocked: dict[int, _Stream] = {}  # streams that wait for windows
        self._last_id = 0
        self._greeted = False
        self._over = False
        self._output = b""
        self._goodbye = b""
        connection = self._connection = _Connection(_CONFIG)
        connection.state_machine = _Machine()
        connection.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: max_streams,
                SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEADER_LIST,
            },
        )
        connection.decoder.max_header_list_size = MAX_HEADER_LIST  # h2 has 64 KiB until told
        connection.initiate_connection()
        connection.increment_flow_control_window(CONNECTION_WINDOW - _DEFAULT_WINDOW)

    @property
    def open_streams(self) -> int:
        """The number of streams that are not closed on both sides."""
        return len(self._streams)

    @property
    def unread(self) -> int:
        """See the class."""
        return len(self._rest) + self._block

    def take_output(self) -> bytes:
        """Return the octets to send now."""
        data = self._output + self._connection.data_to_send() + self._goodbye
        self._output = self._goodbye = b""
        return data

    # --- what comes ---------------------------------------------------------------------------

    def receive(self, data: bytes) -> Iterator[Event | None]:
        """Process received octets; yield the event of each frame, or None for a frame without one.

        The events may be consumed in several steps; call `receive` again only after the last one.

        Raises:
            ProtocolError: the connection has ended; send the result of `take_output`, and close.
        """
        if self._over:
            return
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        if not self._greeted:
            if not PREFACE.startswith(data[: len(PREFACE)]):
                raise self._ended("its first bytes are not HTTP/2", Reason.PROTOCOL_ERROR)
            if end < len(PREFACE):
                self._rest = data
                return
            self._greeted = True
            self._connection.receive_data(PREFACE)
            at = len(PREFACE)
        while end - at >= _HEAD:
            length = int.from_bytes(data[at : at + 3], "big")
            if length > _MAX_FRAME:
                raise self._ended(f"it sends a frame of {length} octets", Reason.FRAME_SIZE_ERROR)
            stop = at + _HEAD + length
            if stop > end:
                break
            yield self._frame(data[at:stop])
            at = stop
        self._rest = data[at:]

    def _frame(self, frame: bytes) -> Event | None:
        """Process one frame; return its event."""
        kind, flags = frame[3], frame[4]
        if not self.begun and (kind != _SETTINGS or flags & _ACK):
            raise self._ended("its first frame is not SETTINGS", Reason.PROTOCOL_ERROR)
        price = _PRICES.get(kind, _FRAME_PRICE)
        if kind == _DATA:
            if int.from_bytes(frame[5:9], "big") not in self._streams:
                price = _FRAME_PRICE
            elif not flags & _END_STREAM:
                if len(frame) == _HEAD or flags & _PADDED:
                    price = _FRAME_PRICE
                elif len(frame) < _SMALL_DATA:
                    price = _SMALL_DATA_PRICE
        elif kind in (_HEADERS, _CONTINUATION):
            block = self._block + len(frame)
            if block > MAX_HEADER_BLOCK:
                raise self._ended("it sends a header block that does not end")
            self._block = 0 if flags & _END_HEADERS else block
        elif kind == _WINDOW_UPDATE:
            if int.from_bytes(frame[_HEAD:], "big") < _SMALL_WINDOW:
                price = _FRAME_PRICE
        elif kind == _SETTINGS:
            frame = self._settings(frame)
        elif kind == _GOAWAY:
            self._output += self._connection.data_to_send()  # h2 forgets it
        if price:
            self.charge(price)
        try:
            events = self._connection.receive_data(frame)
        except H2Error as error:
            self.end()
            raise ProtocolError(str(error) or type(error).__name__) from None
        found = None
        for event in events:
            found = self._event(event) or found
        return found

    def _settings(self, frame: bytes) -> bytes:
        """Return a SETTINGS frame with only the settings that are used here."""
        size = len(frame) - _HEAD
        if frame[4] & _ACK and size:
            raise self._ended("it acknowledges settings with settings", Reason.FRAME_SIZE_ERROR)
        if not size or size % 6:
            return frame
        price = len(frame) // 6
        kept = []
        for at in range(_HEAD, len(frame), 6):
            entry = frame[at : at + 6]
            name = int.from_bytes(entry[:2], "big")
            if name == _TABLE_SIZE:
                size = min(int.from_bytes(entry[2:], "big"), _MAX_TABLE)
                entry = entry[:2] + size.to_bytes(4, "big")
            elif name == _INITIAL_WINDOW:
                price += len(self._streams)  # h2 changes the window of each
            if name in _KNOWN_SETTINGS:
                kept.append(entry)
        self.charge(price)
        payload = b"".join(kept)
        return len(payload).to_bytes(3, "big") + frame[3:_HEAD] + payload

    def _event(self, event: h2.Event) -> Event | None:
        if isinstance(event, h2.RequestReceived):
            return self._opened(event)
        if isinstance(event, h2.DataReceived):
            self._connection.acknowledge_received_data(
                event.flow_controlled_length, event.stream_id
            )
            return self._data(event.stream_id, event.data, event.stream_ended is not None)
        if isinstance(event, h2.TrailersReceived):
            return self._data(event.stream_id, b"", True)
        if isinstance(event, h2.StreamReset):
            return StreamReset(event.stream_id) if self._forget(event.stream_id) else None
        if isinstance(event, h2.WindowUpdated):
            if event.stream_id:
                stream = self._streams.get(event.stream_id)
                if stream is not None:
                    self._send_stream(event.stream_id, stream)
            else:
                self._send_blocked()
        elif isinstance(event, h2.RemoteSettingsChanged):
            self.begun = True
            if SettingCodes.INITIAL_WINDOW_SIZE in event.changed_settings and self.waiting:
                for stream_id, stream in tuple(self._streams.items()):
                    self._send_stream(stream_id, stream)
        return None

    def _opened(self, event: h2.RequestReceived) -> Event | None:
        if len(self._streams) >= self._max_streams:
            self._connection.reset_stream(event.stream_id, Reason.REFUSED_STREAM)
            self.charge(REFUSAL_PRICE)
            return None
        ended = event.stream_ended is not None
        self._last_id = event.stream_id
        self._streams[event.stream_id] = _Stream(ended)
        self._connection.forget_closed(len(self._streams))
        return StreamOpened(event.stream_id, event.headers, ended)

    def _data(self, stream_id: int, data: bytes, ended: bool) -> Event | None:
        stream = self._streams.get(stream_id)
        if stream is None:
            return None  # it was answered while this frame was in flight
        stream.ended = ended
        return DataReceived(stream_id, data, ended)

    def charge(self, price: float) -> None:
        """Charge the client for work. Raises ProtocolError if its budget is exhausted."""
        if not self._budget.spend(price):
            raise self._ended("its frames cause too much work")

    def _ended(self, why: str, reason: Reason = Reason.ENHANCE_YOUR_CALM) -> ProtocolError:
        self._connection.close_connection(reason)
        self.end()
        return ProtocolError(why)

    def end(self) -> None:
        """Drop the queued answers, and take no more: the connection is closed."""
        self._over = True
        self._connection.end()
        self._streams.clear()
        self._blocked.clear()
        self.waiting = 0

    # --- what is sent -------------------------------------------------------------------------

    def send_headers(self, stream_id: int, headers: Headers) -> None:
        """Start the answer on a stream."""
        if stream_id in self._streams:
            self._connection.send_headers(stream_id, headers)

    def send_data(self, stream_id: int, data: bytes) -> None:
        """Send a piece of the answer, as soon as the client's windows allow it."""
        stream = self._streams.get(stream_id)
        if stream is None or not data:
            return
        stream.waiting.append(data)
        self.waiting += len(data)
        self._send_stream(stream_id, stream)

    def send_trailers(self, stream_id: int, headers: Headers) -> None:
        """End the answer after the data already sent."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        self._budget.earn(ANSWER)
        stream.trailers = headers
        self._send_stream(stream_id, stream)

    def reset(self, stream_id: int, reason: Reason) -> None:
        """Reset a stream. Does nothing if it has ended."""
        if self._forget(stream_id):
            self._connection.reset_stream(stream_id, reason)

    def go_away(self) -> None:
        """Tell the client to send no more requests on this connection. Requests already sent are
        still answered, which h2 does not support."""
        if not self._over:
            self._goodbye = GoAwayFrame(0, last_stream_id=self._last_id).serialize()

    def _forget(self, stream_id: int) -> bool:
        stream = self._streams.pop(stream_id, None)
        if stream is None:
            return False
        self._blocked.pop(stream_id, None)
        self.waiting -= sum(map(len, stream.waiting))
        return True

    def _send_blocked(self) -> None:
        """Send as much as the connection's window allows."""
        blocked = self._blocked
        while blocked and self._connection.outbound_flow_control_window > 0:
            stream_id = next(iter(blocked))
            # It is queued again if it fills this window; otherwise it waits for its own window.
            self._send_stream(stream_id, blocked.pop(stream_id))

    def _send_stream(self, stream_id: int, stream: _Stream) -> None:
        connection, waiting = self._connection, stream.waiting
        while waiting:
            data = waiting[0]
            window = connection.local_flow_control_window(stream_id)
            length = min(len(data), window, connection.max_outbound_frame_size)
            if length <= 0:
                if connection.outbound_flow_control_window <= 0:
                    self._blocked[stream_id] = stream
                return
            self.waiting -= length
            if length == len(data):
                waiting.popleft()
            else:
                data = memoryview(data)
                rest = data[length:]
                # A view keeps all of the answer in memory, and a client may leave one octet of it.
                waiting[0] = rest if 2 * len(rest) > len(rest.obj) else bytes(rest)  # type: ignore[arg-type]
                data = bytes(data[:length])
            connection.send_data(stream_id, data)
        if stream.trailers is not None:
            del self._streams[stream_id]
            self._blocked.pop(stream_id, None)
            connection.send_headers(stream_id, stream.trailers, end_stream=True)
            if not stream.ended:
                # The rest of the request is not needed.
                connection.reset_stream(stream_id, Reason.NO_ERROR)
