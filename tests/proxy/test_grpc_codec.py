"""gRPC over HTTP/2: messages, timeouts, the end of a call."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.proxy.rpc import GrpcError, GrpcStatus
from pocketmq.proxy.transport.grpc_codec import (
    MessageReader,
    RequestHeaders,
    error_trailers,
    message_frame,
    timeout_of,
)


@given(st.lists(st.binary(max_size=100)), st.lists(st.integers(1, 30), max_size=40))
def test_messages_come_out_as_they_went_in(messages: Sequence[bytes], sizes: Sequence[int]) -> None:
    data = b"".join(map(message_frame, messages))
    reader = MessageReader(1000)
    got: list[bytes] = []
    at = 0
    for size in [*sizes, len(data)]:
        got += reader.feed(data[at : at + size])
        at += size
    assert got == messages
    assert reader.size == 0


def test_a_message_that_is_too_long_is_refused_before_it_has_come() -> None:
    with pytest.raises(GrpcError) as refused:
        list(MessageReader(100).feed(b"\0\0\0\0\x65"))
    assert refused.value.status is GrpcStatus.RESOURCE_EXHAUSTED


def test_a_compressed_message_is_refused() -> None:
    with pytest.raises(GrpcError) as refused:
        list(MessageReader(100).feed(b"\1\0\0\0\1x"))
    assert refused.value.status is GrpcStatus.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (b"3S", 3.0),
        (b"1500m", 1.5),
        (b"2H", 7200.0),
        (b"1M", 60.0),
        (b"5u", 5e-6),
        (b"7n", 7e-9),
        (b"", math.inf),
        (b"3", math.inf),
        (b"-3S", math.inf),
        (b"1234567890S", math.inf),
        (b"3X", math.inf),
    ],
)
def test_timeouts(text: bytes, seconds: float) -> None:
    assert timeout_of(text) == pytest.approx(seconds)


def test_the_headers_of_a_call() -> None:
    headers = RequestHeaders(
        [
            (b":method", b"POST"),
            (b":path", b"/a.B/C"),
            (b":authority", b"here:1"),
            (b"content-type", b"application/grpc+proto"),
            (b"grpc-timeout", b"3S"),
            (b"x-mq-client-id", b"me"),
        ]
    )
    assert (headers.method, headers.path, headers.authority) == (b"POST", b"/a.B/C", b"here:1")
    assert headers.timeout == 3.0
    assert headers.metadata == {b"x-mq-client-id": b"me"}


@given(st.text(max_size=3000))
def test_any_text_can_end_a_call(text: str) -> None:
    fields = dict(error_trailers(GrpcError(GrpcStatus.INTERNAL, text)))
    assert fields[b"grpc-status"] == b"13"
    assert fields[b"grpc-message"].isascii()
    assert b"\n" not in fields[b"grpc-message"]
