"""The hellos of TLS clients: which ones are refused, however they are cut."""

from __future__ import annotations

import ssl
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.tls.client_hello import MOST_BYTES, MOST_PARTS, BadHello, ClientHello

X25519, SECP256R1, FFDHE2048, FFDHE8192 = 0x1D, 0x17, 0x100, 0x104
CHANGE_CIPHER_SPEC = b"\x14\x03\x03\x00\x01\x01"


def vector(content: bytes, width: int = 2) -> bytes:
    return len(content).to_bytes(width) + content


def hello(*groups: int, extensions: bytes = b"") -> bytes:
    """A hello with a key of each group."""
    keys = b"".join(group.to_bytes(2) + vector(b"k" * 40) for group in groups)
    body = b"\x03\x03" + b"r" * 32 + vector(b"session", 1) + vector(b"\x13\x01") + vector(b"\0", 1)
    body += vector(
        b"\x00\x2b" + vector(b"\x02\x03\x04") + b"\x00\x33" + vector(vector(keys)) + extensions
    )
    return b"\x01" + vector(body, 3)


def records(message: bytes, size: int = 1 << 14) -> bytes:
    return b"".join(
        b"\x16\x03\x01" + vector(message[at : at + size]) for at in range(0, len(message), size)
    )


def feed(*pieces: bytes) -> None:
    read = ClientHello()
    for piece in pieces:
        read.feed(piece)


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


@given(
    st.sampled_from([FFDHE2048, FFDHE8192, 0x1FF]), st.integers(9, 400), st.lists(st.integers(0))
)
def test_a_key_over_a_finite_field_is_refused(group: int, size: int, places: list[int]) -> None:
    with pytest.raises(BadHello, match="finite field"):
        feed(*cut(records(hello(X25519, group), size), places))


@pytest.mark.parametrize("between", [b"", CHANGE_CIPHER_SPEC])
def test_so_it_is_in_the_second_hello(between: bytes) -> None:
    read = ClientHello()
    read.feed(records(hello()))
    with pytest.raises(BadHello, match="finite field"):
        read.feed(between + records(hello(FFDHE2048)))


@given(st.integers(9, 400), st.lists(st.integers(0)))
def test_keys_over_curves_are_accepted(size: int, places: list[int]) -> None:
    rest = b"\x17\x03\x03" + vector(b"\x01" * 60_000)  # encrypted
    feed(*cut(records(hello(X25519, SECP256R1), size) + CHANGE_CIPHER_SPEC + rest, places))


def test_the_hello_of_a_real_client_is_accepted() -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    feed(*(bytes([byte]) for byte in outgoing.read()))


def test_messages_after_the_hello_may_be_large() -> None:
    feed(records(hello(X25519)), *[records(b"\x0b" + vector(b"c" * 90_000, 3))] * 2)


@given(st.binary())
def test_garbage_is_left_to_openssl(data: bytes) -> None:
    feed(b"\x16\x03" + data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x00\x04\x01\x00\x80\x01",  # what is promised counts
        b"\x16\x03\x01\xff\xff" + b"\x01" * (MOST_BYTES + 1),
        records(hello(X25519, extensions=b"\xaa\xaa" + vector(b"x" * MOST_BYTES))),
        records(hello(X25519, SECP256R1), 1),
        b"\x16\x03\x01\x00\x00" * (MOST_PARTS + 1),
        records(hello(*[X25519] * (MOST_PARTS + 1))),
        records(hello(X25519, extensions=b"\xaa\xaa\x00\x00" * MOST_PARTS)),
    ],
    ids=["length", "record", "bytes", "records", "empty records", "keys", "extensions"],
)
def test_what_is_read_is_bounded(data: bytes) -> None:
    with pytest.raises(BadHello, match=f"{MOST_BYTES}|{MOST_PARTS}"):
        feed(data)
