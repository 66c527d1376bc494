"""The server's end of HTTP/2, spoken to by the library h2, and by hand where rules are broken."""

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
    StreamReset as AnswerReset,
)
from hpack import Encoder
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.proxy.transport import http2
from pocketmq.proxy.transport.http2 import (
    PREFACE,
    DataReceived,
    Event,
    Http2Connection,
    Kind,
    ProtocolError,
    Reason,
    StreamOpened,
    StreamReset,
    frame,
    literal,
)

HEADERS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/a.B/C"),
    (":authority", "here"),
    ("content-type", "application/grpc"),
]
SETTINGS = frame(Kind.SETTINGS, 0, 0)


def client() -> H2Connection:
    connection = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    connection.initiate_connection()
    return connection


def talk(server: Http2Connection, peer: H2Connection) -> tuple[list[Event], list[ClientEvent]]:
    """Exchange bytes until both are silent."""
    to_server: list[Event] = []
    to_client: list[ClientEvent] = []
    while True:
        out, back = peer.data_to_send(), server.take_output()
        if not out and not back:
            return to_server, to_client
        to_server += server.receive(out)
        to_client += peer.receive_data(back)


def opened(*headers: tuple[str, str], flags: int = 4) -> bytes:
    return frame(Kind.HEADERS, flags, 1, Encoder().encode(headers or HEADERS))


def begun() -> Http2Connection:
    server = Http2Connection()
    assert not list(server.receive(PREFACE + SETTINGS))
    server.take_output()
    return server


def goes_away(server: Http2Connection, *frames: bytes) -> Reason:
    """Return why the server ends the connection."""
    try:
        for each in frames:
            list(server.receive(each))
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
    server.send_headers(1, b"\x88" + literal(b"content-type", b"application/grpc"))
    server.send_data(1, b"answer")
    server.send_trailers(1, literal(b"grpc-status", b"0"))
    _, answers = talk(server, peer)
    kinds = [type(event) for event in answers]
    assert kinds == [ResponseReceived, AnswerData, TrailersReceived, StreamEnded]
    assert not server.open_streams


@given(st.lists(st.integers(1, 40), max_size=60), st.binary(max_size=3000))
def test_pieces_of_any_size_mean_the_same(sizes: Sequence[int], body: bytes) -> None:
    peer = client()
    for stream_id in (1, 3):
        peer.send_headers(stream_id, HEADERS)
        peer.send_data(stream_id, body, end_stream=True)
    data = peer.data_to_send()
    whole = list(Http2Connection().receive(data))
    server = Http2Connection()
    pieces: list[Event] = []
    at = 0
    for size in [*sizes, len(data)]:
        pieces += server.receive(data[at : at + size])
        at += size
    assert pieces == whole


@given(st.binary(max_size=400))
def test_no_bytes_are_more_than_a_protocol_error(noise: bytes) -> None:
    server = begun()
    try:
        list(server.receive(noise))
        list(server.receive(opened() + noise))
    except ProtocolError:
        assert server.take_output()


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
        list(server.receive(opened()))
        for kind, flags, stream_id, payload in frames:
            list(server.receive(frame(kind, flags, stream_id, payload)))
            server.send_data(1, b"x" * 100)
    except ProtocolError:
        pass
    assert server.waiting >= 0


def test_a_large_answer_follows_the_windows_of_the_client() -> None:
    server, peer = Http2Connection(), client()
    peer.send_headers(1, HEADERS, end_stream=True)
    talk(server, peer)
    body = bytes(range(256)) * 1024
    server.send_headers(1, b"\x88")
    server.send_data(1, body)
    server.send_trailers(1, literal(b"grpc-status", b"0"))
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
    list(server.receive(frame(Kind.SETTINGS, 0, 0, initial + (0).to_bytes(4, "big"))))
    list(server.receive(opened(flags=5)))
    server.take_output()
    server.send_data(1, b"later")
    assert b"later" not in server.take_output()
    assert server.waiting == 5
    list(server.receive(frame(Kind.WINDOW_UPDATE, 0, 1, (5).to_bytes(4, "big"))))
    assert b"later" in server.take_output()


def test_a_reset_forgets_what_waits() -> None:
    server = begun()
    list(server.receive(opened(flags=5)))
    server.send_data(1, bytes(1 << 20))
    assert server.waiting
    reset = frame(Kind.RST_STREAM, 0, 1, Reason.CANCEL.to_bytes(4, "big"))
    assert list(server.receive(reset)) == [StreamReset(1)]
    assert server.waiting == server.open_streams == 0


def test_pings_are_answered() -> None:
    server = begun()
    list(server.receive(frame(Kind.PING, 0, 0, b"12345678")))
    assert server.take_output() == frame(Kind.PING, 1, 0, b"12345678")


def test_streams_above_the_limit_are_refused() -> None:
    server, peer = Http2Connection(max_streams=2), client()
    # Before it has the server's settings, a client does not know the limit.
    for stream_id in (1, 3, 5):
        peer.send_headers(stream_id, HEADERS)
    events = list(server.receive(peer.data_to_send()))
    assert [event.stream_id for event in events] == [1, 3]
    refused = [e for e in peer.receive_data(server.take_output()) if isinstance(e, AnswerReset)]
    assert [(e.stream_id, e.error_code) for e in refused] == [(5, Reason.REFUSED_STREAM)]


def test_a_server_that_stops_says_so() -> None:
    server, peer = Http2Connection(), client()
    talk(server, peer)
    server.go_away()
    _, events = talk(server, peer)
    assert isinstance(events[-1], ConnectionTerminated)


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([frame(Kind.DATA, 0, 1, b"x")], Reason.PROTOCOL_ERROR),
        ([b"\xff\xff\xff\0\0\0\0\0\1"], Reason.FRAME_SIZE_ERROR),
        ([frame(Kind.HEADERS, 4, 1, b"\xff\xff\xff")], Reason.COMPRESSION_ERROR),
        ([frame(Kind.HEADERS, 4, 2, b"\x88")], Reason.PROTOCOL_ERROR),
        ([frame(Kind.HEADERS, 0, 1, b"\x88"), frame(Kind.PING, 0, 0, bytes(8))], 1),
        ([frame(Kind.CONTINUATION, 4, 1, b"\x88")], Reason.PROTOCOL_ERROR),
        ([frame(Kind.PING, 0, 0, b"short")], Reason.FRAME_SIZE_ERROR),
        ([frame(Kind.SETTINGS, 0, 0, b"short")], Reason.FRAME_SIZE_ERROR),
        ([frame(Kind.WINDOW_UPDATE, 0, 0, bytes(4))], Reason.FLOW_CONTROL_ERROR),
        ([frame(Kind.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff")], Reason.FLOW_CONTROL_ERROR),
        ([frame(Kind.PUSH_PROMISE, 0, 1, bytes(4))], Reason.PROTOCOL_ERROR),
        ([opened(), frame(Kind.HEADERS, 4, 1, b"\x88")], Reason.PROTOCOL_ERROR),
        ([opened(), frame(Kind.DATA, 8, 1, b"\xff")], Reason.PROTOCOL_ERROR),
        ([frame(Kind.RST_STREAM, 0, 7, bytes(4))], Reason.PROTOCOL_ERROR),
    ],
)
def test_a_client_that_breaks_the_rules_is_sent_away(frames: Sequence[bytes], reason: int) -> None:
    assert goes_away(begun(), *frames) == reason


def test_a_header_block_without_end_is_cut_off() -> None:
    pieces = [frame(Kind.HEADERS, 0, 1, bytes(16_000))]
    pieces += [frame(Kind.CONTINUATION, 0, 1, bytes(16_000))] * 3
    assert goes_away(begun(), *pieces) == Reason.ENHANCE_YOUR_CALM
    tiny = [frame(Kind.HEADERS, 0, 1, b"\x88"), frame(Kind.CONTINUATION, 0, 1, b"\x88")]
    assert goes_away(begun(), *tiny) == Reason.ENHANCE_YOUR_CALM


def test_huge_metadata_is_refused() -> None:
    # Each byte of the block stands for the same long header again.
    block = literal(b"x", b"y" * 4000)
    indexed = b"\x40" + block[1:] + b"\xbe" * 40
    assert goes_away(begun(), frame(Kind.HEADERS, 4, 1, indexed)) == Reason.COMPRESSION_ERROR


def test_a_client_that_resets_every_call_is_sent_away() -> None:
    server = begun()
    frames = [
        each
        for stream_id in range(1, 2 * http2.MAX_RESETS + 3, 2)
        for each in (
            frame(Kind.HEADERS, 4, stream_id, b"\x88"),
            frame(Kind.RST_STREAM, 0, stream_id, bytes(4)),
        )
    ]
    assert goes_away(server, *frames) == Reason.ENHANCE_YOUR_CALM


def test_more_data_than_the_window_is_an_error() -> None:
    server = begun()
    list(server.receive(opened()))
    piece = frame(Kind.DATA, 0, 1, bytes(http2.MAX_FRAME_SIZE))
    for _ in range(http2.STREAM_WINDOW // http2.MAX_FRAME_SIZE // 2):
        list(server.receive(piece))
    # The window was opened again half-way.
    assert frame(Kind.WINDOW_UPDATE, 0, 1, (http2.STREAM_WINDOW // 2).to_bytes(4, "big")) in (
        server.take_output()
    )
