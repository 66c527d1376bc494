"""The server's end of HTTP/2: spoken to by a client, and by hand where rules are broken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    ResponseReceived,
    StreamEnded,
    TrailersReceived,
)
from h2.events import (
    DataReceived as AnswerData,
)
from h2.events import (
    Event as ClientEvent,
)
from h2.events import (
    StreamReset as PeerReset,
)
from hpack import Encoder
from hypothesis import example, given
from hypothesis import strategies as st

from pocketmq.proxy.transport import http2
from pocketmq.proxy.transport.http2 import (
    PREFACE,
    DataReceived,
    Event,
    Http2Connection,
    ProtocolError,
    Reason,
    StreamOpened,
    StreamReset,
)
from tests.proxy.raw_frames import Kind, frame, literal

HEADERS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/a.B/C"),
    (":authority", "here"),
    ("content-type", "application/grpc"),
]
ANSWER = [(b":status", b"200"), (b"content-type", b"application/grpc")]
TRAILERS = [(b"grpc-status", b"0")]
SETTINGS = frame(Kind.SETTINGS, 0, 0)


def client() -> H2Connection:
    connection = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    connection.initiate_connection()
    return connection


def received(server: Http2Connection, data: bytes) -> list[Event]:
    return [event for event in server.receive(data) if event is not None]


def talk(server: Http2Connection, peer: H2Connection) -> tuple[list[Event], list[ClientEvent]]:
    """Exchange bytes until both are silent."""
    to_server: list[Event] = []
    to_client: list[ClientEvent] = []
    while True:
        out, back = peer.data_to_send(), server.take_output()
        if not out and not back:
            return to_server, to_client
        to_server += received(server, out)
        to_client += peer.receive_data(back)


def opened(*headers: tuple[str, str], flags: int = 4) -> bytes:
    return frame(Kind.HEADERS, flags, 1, Encoder().encode(headers or HEADERS))


def begun() -> Http2Connection:
    server = Http2Connection()
    assert not received(server, PREFACE + SETTINGS)
    server.take_output()
    return server


def goes_away(server: Http2Connection, *frames: bytes) -> Reason:
    """Return why the server ends the connection."""
    try:
        for each in frames:
            received(server, each)
    except ProtocolError:
        pass
    output = server.take_output()
    at = output.rfind(b"\x07\0\0\0\0\0")
    assert at > 0, "no GOAWAY"
    return Reason(int.from_bytes(output[at + 10 : at + 14], "big"))


def test_a_call_and_its_answer() -> None:
    server, peer = Http2Connection(), client()
    peer.send_headers(1, HEADERS)
    peer.send_data(1, b"question", end_stream=True)
    events, _ = talk(server, peer)
    assert events[0] == StreamOpened(
        1, [(name.encode(), value.encode()) for name, value in HEADERS], False
    )
    assert events[1] == DataReceived(1, b"question", True)
    server.send_headers(1, ANSWER)
    server.send_data(1, b"answer")
    server.send_trailers(1, TRAILERS)
    _, answers = talk(server, peer)
    kinds = [type(event) for event in answers]
    assert kinds == [ResponseReceived, AnswerData, TrailersReceived, StreamEnded]
    assert not server.open_streams


@given(st.binary(max_size=400))
def test_no_bytes_are_more_than_a_protocol_error(noise: bytes) -> None:
    server = begun()
    try:
        received(server, noise)
        received(server, opened() + noise)
    except ProtocolError:
        assert server.take_output()


@example([(7, 0, 0, bytes(8))])
@given(
    st.lists(
        st.tuples(
            st.integers(0, 11), st.integers(0, 255), st.integers(0, 5), st.binary(max_size=40)
        ),
        max_size=20,
    )
)
def test_no_frames_are_more_than_a_protocol_error(
    frames: Iterable[tuple[int, int, int, bytes]],
) -> None:
    server = begun()
    try:
        received(server, opened())
        for kind, flags, stream_id, payload in frames:
            received(server, frame(kind, flags, stream_id, payload))
            server.send_data(1, b"x" * 100)
    except ProtocolError:
        pass
    assert server.waiting >= 0


def test_a_client_that_says_goodbye_gets_its_answers() -> None:
    server, peer = Http2Connection(), client()
    peer.send_headers(1, HEADERS, end_stream=True)
    talk(server, peer)
    server.send_headers(1, ANSWER)
    received(server, frame(7, 0, 0, bytes(8)))
    server.send_data(1, b"x" * 100)
    server.send_trailers(1, TRAILERS)
    _, events = talk(server, peer)
    assert [type(event).__name__ for event in events] == [
        "ResponseReceived", "DataReceived", "TrailersReceived", "StreamEnded",
    ]  # fmt: skip
    assert server.open_streams == 0


def test_a_large_answer_follows_the_windows_of_the_client() -> None:
    server, peer = Http2Connection(), client()
    peer.send_headers(1, HEADERS, end_stream=True)
    talk(server, peer)
    body = bytes(range(256)) * 1024
    server.send_headers(1, ANSWER)
    server.send_data(1, body)
    server.send_trailers(1, TRAILERS)
    got = b""
    ended = False
    while not ended:
        _, events = talk(server, peer)
        assert events, "the answer stands still"
        for event in events:
            if isinstance(event, AnswerData):
                got += event.data
                assert event.flow_controlled_length is not None
                peer.acknowledge_received_data(event.flow_controlled_length, 1)
            ended |= isinstance(event, StreamEnded)
    assert got == body
    assert server.waiting == 0


def test_a_client_that_shrinks_its_window_gets_the_rest_when_it_grows() -> None:
    server = begun()
    initial = (4).to_bytes(2, "big")
    received(server, frame(Kind.SETTINGS, 0, 0, initial + (0).to_bytes(4, "big")))
    received(server, opened(flags=5))
    server.take_output()
    server.send_data(1, b"later")
    assert b"later" not in server.take_output()
    assert server.waiting == 5
    received(server, frame(Kind.WINDOW_UPDATE, 0, 1, (5).to_bytes(4, "big")))
    assert b"later" in server.take_output()


def test_a_reset_forgets_what_waits() -> None:
    server = begun()
    received(server, opened(flags=5))
    server.send_data(1, bytes(1 << 20))
    assert server.waiting
    reset = frame(Kind.RST_STREAM, 0, 1, Reason.CANCEL.to_bytes(4, "big"))
    assert received(server, reset) == [StreamReset(1)]
    assert server.waiting == server.open_streams == 0


def test_a_call_that_ends_and_is_given_up_at_once() -> None:
    """As the client for Rust does with its Telemetry stream."""
    server = begun()
    received(server, opened())
    reset = frame(Kind.RST_STREAM, 0, 1, Reason.CANCEL.to_bytes(4, "big"))
    window = frame(Kind.WINDOW_UPDATE, 0, 0, (1).to_bytes(4, "big"))
    server.send_headers(1, ANSWER)
    server.take_output()
    events = received(server, frame(Kind.DATA, 1, 1) + window + reset + SETTINGS)
    assert events == [DataReceived(1, b"", True), StreamReset(1)]
    server.send_data(1, b"x")
    server.send_trailers(1, TRAILERS)
    assert server.waiting == server.open_streams == 0
    # And another call on the connection.
    again = frame(Kind.HEADERS, 5, 3, Encoder().encode(HEADERS))
    (event,) = received(server, again)
    assert isinstance(event, StreamOpened)


def test_a_call_that_is_answered_before_its_reset_is_read() -> None:
    server = begun()
    reset = frame(Kind.RST_STREAM, 0, 1, Reason.CANCEL.to_bytes(4, "big"))
    events = []
    for event in server.receive(opened(flags=5) + reset):
        if event is not None:
            events.append(type(event))
        server.send_trailers(1, TRAILERS)
    assert events == [StreamOpened]
    assert server.open_streams == 0


def test_pings_are_answered() -> None:
    server = begun()
    received(server, frame(Kind.PING, 0, 0, b"12345678"))
    assert server.take_output() == frame(Kind.PING, 1, 0, b"12345678")


def test_streams_above_the_limit_are_refused_and_the_others_are_answered() -> None:
    server, peer = Http2Connection(max_streams=2), client()
    # Before it has the server's settings, a client does not know the limit.
    for stream_id in (1, 3, 5):
        peer.send_headers(stream_id, HEADERS, end_stream=True)
    events, answers = talk(server, peer)
    assert [event.stream_id for event in events] == [1, 3]
    (reset,) = (event for event in answers if isinstance(event, PeerReset))
    assert (reset.stream_id, reset.error_code) == (5, Reason.REFUSED_STREAM)
    server.send_trailers(1, ANSWER)
    talk(server, peer)
    peer.send_headers(7, HEADERS, end_stream=True)
    events, _ = talk(server, peer)
    assert [event.stream_id for event in events] == [7]


def test_a_server_that_stops_says_so() -> None:
    server, peer = Http2Connection(), client()
    talk(server, peer)
    server.go_away()
    _, events = talk(server, peer)
    assert isinstance(events[-1], ConnectionTerminated)


@pytest.mark.parametrize(
    "pieces",
    [
        [frame(Kind.HEADERS, 0, 1, b"\x88"), *[frame(Kind.CONTINUATION, 0, 1, b"\x88")] * 100],
        [b"\xff\xff\xff\0\0\0\0\0\1"],
    ],
    ids=["a header block", "a frame"],
)
def test_what_does_not_end_is_cut_off(pieces: Sequence[bytes]) -> None:
    assert goes_away(begun(), *pieces)


def test_huge_metadata_is_refused() -> None:
    # Each byte of the block stands for the same long header again.
    block = literal(b"x", b"y" * 4000)
    indexed = b"\x40" + block[1:] + b"\xbe" * 40
    assert goes_away(begun(), frame(Kind.HEADERS, 4, 1, indexed)) == Reason.ENHANCE_YOUR_CALM


def test_a_client_may_send_more_when_its_data_is_read() -> None:
    server, peer = Http2Connection(), client()
    peer.send_headers(1, HEADERS)
    talk(server, peer)
    for _ in range(4 * http2.STREAM_WINDOW // 16_384):
        peer.send_data(1, bytes(16_384))
        talk(server, peer)
