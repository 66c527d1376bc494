"""The server's end of one HTTP/2 connection: bytes in, events out, and frames to send back.

The library h2 knows the protocol; here is what gRPC needs of it. Answers that are larger than the
client's windows wait here, and everything that a client can make grow has a bound: header blocks,
streams, resets, and answers that wait. There is no I/O and no clock.

A client that breaks the rules gets GOAWAY: `receive` raises ProtocolError, and what `take_output`
returns is the last that is to be sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from h2 import events as h2
from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError as H2Error
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame

#: Why a stream or a connection ends, as frames say it.
Reason = ErrorCodes

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

#: Octets of one header list as HTTP/2 counts it: names, values, and 32 for each pair.
MAX_HEADER_LIST: Final = 65_536
#: Streams that one client may have open.
MAX_STREAMS: Final = 2_000
#: Octets that a client may send on one stream, and on all of a connection, before it hears more.
STREAM_WINDOW: Final = 1 << 20
CONNECTION_WINDOW: Final = 1 << 24
#: Octets of answers that may wait for the client's windows on one connection.
MAX_WAITING: Final = 64 << 20
#: Octets that may come without an event: h2 keeps a frame of any size until it is complete, and a
#: header block of up to 64 frames.
MAX_UNREAD: Final = 2 << 20
#: Streams that a client may reset before they were answered, without one that it lets be answered.
MAX_RESETS: Final = 1_000

_DEFAULT_WINDOW: Final = 65_535
# Octets that h2 gets at once. It gives no event before it has read all of them, and takes about
# 20 µs for each frame, of which the smallest has nine octets.
_PIECE: Final = 2_048

# h2's checks of header fields are of no use here: `RequestHeaders` looks for the few that count.
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
    """The client broke the rules of the connection, which ends with GOAWAY."""


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
    """An open stream: what waits for the client's windows."""

    __slots__ = ("ended", "trailers", "waiting")

    def __init__(self, ended: bool) -> None:
        self.ended = ended  # by the client
        self.waiting: deque[bytes] = deque()
        self.trailers: Headers | None = None


class Http2Connection:
    """One connection; see the module. `max_streams` bounds the streams that may be open.

    Attributes:
        waiting: octets of answers that wait for the client's windows.
        unread: octets that came since the last event, which may be those of a begun frame.
        begun: the client has said that it speaks HTTP/2.
    """

    def __init__(self, *, max_streams: int = MAX_STREAMS) -> None:
        self.waiting = 0
        self.unread = 0
        self.begun = False
        self._streams: dict[int, _Stream] = {}
        self._last_id = 0
        self._resets = 0
        # Streams that are reset by a frame behind the one whose event is given now.
        self._reset_soon: set[int] = set()
        self._output = b""
        self._goodbye = b""
        connection = self._connection = H2Connection(_CONFIG)
        connection.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: max_streams,
                SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEADER_LIST,
            },
        )
        connection.initiate_connection()
        connection.increment_flow_control_window(CONNECTION_WINDOW - _DEFAULT_WINDOW)

    @property
    def open_streams(self) -> int:
        """Streams that are not closed on both sides."""
        return len(self._streams)

    def take_output(self) -> bytes:
        """Return what is to be sent now."""
        data = self._output + self._connection.data_to_send() + self._goodbye
        self._output = self._goodbye = b""
        return data

    # --- what comes ---------------------------------------------------------------------------

    def receive(self, data: bytes) -> Iterator[Event | None]:
        """Take what came; give its events one by one, and None after each piece of it.

        The events may be taken in several steps, with `receive` called again after the last one
        only.

        Raises:
            ProtocolError: the connection is over; send what `take_output` has, and close.
        """
        for at in range(0, len(data), _PIECE):
            piece = data[at : at + _PIECE]
            self._output += self._connection.data_to_send()  # a GOAWAY has h2 forget it
            try:
                events = self._connection.receive_data(piece)
            except H2Error as error:
                raise ProtocolError(str(error) or type(error).__name__) from None
            self.unread = 0 if events else self.unread + len(piece)
            # To h2 they are closed already, so nothing may be sent on them: clients give calls up
            # together with the end of their request.
            self._reset_soon = {
                event.stream_id for event in events if isinstance(event, h2.StreamReset)
            }
            if self.unread > MAX_UNREAD:
                raise self._ended("a frame or a header block does not end")
            for event in events:
                ours = self._event(event)
                if ours is not None:
                    yield ours
            yield None

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
            return self._reset(event.stream_id)
        if isinstance(event, h2.WindowUpdated):
            self._send_waiting(event.stream_id)
        elif isinstance(event, h2.RemoteSettingsChanged):
            self.begun = True
            self._send_waiting(0)
        elif isinstance(event, h2.ConnectionTerminated):
            # The client begins no more calls, and waits for the answers to those that it has begun.
            # To h2, nothing may be sent any more.
            self._connection.state_machine.state = ConnectionState.SERVER_OPEN
        return None

    def _opened(self, event: h2.RequestReceived) -> Event:
        ended = event.stream_ended is not None
        self._last_id = event.stream_id
        self._streams[event.stream_id] = _Stream(ended)
        return StreamOpened(event.stream_id, event.headers, ended)

    def _data(self, stream_id: int, data: bytes, ended: bool) -> Event | None:
        stream = self._streams.get(stream_id)
        if stream is None:
            return None  # it was answered while this was on the way
        stream.ended = ended
        return DataReceived(stream_id, data, ended)

    def _reset(self, stream_id: int) -> Event | None:
        if not self._forget(stream_id):
            return None
        self._resets += 1
        if self._resets > MAX_RESETS:
            # A client that resets each request makes work without bounds (CVE-2023-44487).
            raise self._ended("it gives up every call before the answer")
        return StreamReset(stream_id)

    def _ended(self, why: str) -> ProtocolError:
        self._connection.close_connection(Reason.ENHANCE_YOUR_CALM)
        return ProtocolError(why)

    # --- what is sent -------------------------------------------------------------------------

    def send_headers(self, stream_id: int, headers: Headers) -> None:
        """Begin the answer on a stream."""
        if stream_id in self._streams and stream_id not in self._reset_soon:
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
        """End the answer behind the data that was sent."""
        stream = self._streams.get(stream_id)
        if stream is None or stream_id in self._reset_soon:
            return
        self._resets = 0
        stream.trailers = headers
        self._send_stream(stream_id, stream)

    def reset(self, stream_id: int, reason: Reason) -> None:
        """Give a stream up; nothing when it is gone already."""
        if self._forget(stream_id) and stream_id not in self._reset_soon:
            self._connection.reset_stream(stream_id, reason)

    def go_away(self) -> None:
        """Tell the client to send no more requests on this connection; those that it has sent are
        still answered, which h2 does not know."""
        self._goodbye = GoAwayFrame(0, last_stream_id=self._last_id).serialize()

    def _forget(self, stream_id: int) -> bool:
        stream = self._streams.pop(stream_id, None)
        if stream is None:
            return False
        self.waiting -= sum(map(len, stream.waiting))
        return True

    def _send_waiting(self, stream_id: int) -> None:
        """Send what the windows allow by now, on one stream or (0) on all."""
        if not self.waiting:
            return
        if stream_id:
            stream = self._streams.get(stream_id)
            if stream is not None:
                self._send_stream(stream_id, stream)
            return
        for each, stream in tuple(self._streams.items()):
            self._send_stream(each, stream)

    def _send_stream(self, stream_id: int, stream: _Stream) -> None:
        if stream_id in self._reset_soon:
            return
        connection, waiting = self._connection, stream.waiting
        while waiting:
            data = waiting[0]
            window = connection.local_flow_control_window(stream_id)
            length = min(len(data), window, connection.max_outbound_frame_size)
            if length <= 0:
                return
            self.waiting -= length
            if length == len(data):
                waiting.popleft()
            else:
                waiting[0] = data[length:]
            connection.send_data(stream_id, data[:length])
        if stream.trailers is not None:
            del self._streams[stream_id]
            connection.send_headers(stream_id, stream.trailers, end_stream=True)
            if not stream.ended:
                # The rest of the request is not wanted.
                connection.reset_stream(stream_id, Reason.NO_ERROR)
