"""Header blocks: what the library hpack encodes, and what it decodes to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hpack import Decoder, Encoder, HPACKError
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.proxy.transport.header_decoder import MAX_TABLE, HeaderBlockError, HeaderDecoder

FIELDS = st.lists(
    st.tuples(
        st.sampled_from([b":path", b"x-mq-client-id", b"a", b"content-type"])
        | st.binary(max_size=40),
        st.sampled_from([b"", b"POST", b"application/grpc"]) | st.binary(max_size=300),
    ),
    max_size=12,
)


@given(st.lists(st.tuples(FIELDS, st.booleans()), max_size=8), st.sampled_from([0, 100, MAX_TABLE]))
def test_blocks_of_one_connection_come_out_as_they_went_in(
    blocks: Sequence[tuple[list[tuple[bytes, bytes]], bool]], table: int
) -> None:
    encoder, decoder = Encoder(), HeaderDecoder(1 << 20)
    encoder.header_table_size = table
    for fields, huffman in blocks:
        assert decoder.decode(encoder.encode(fields, huffman=huffman)) == fields


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_any_bytes_mean_what_the_library_says(blocks: Sequence[bytes]) -> None:
    ours, theirs = HeaderDecoder(1 << 16), Decoder(1 << 16)
    for block in blocks:
        try:
            expected = [tuple(field) for field in theirs.decode(block, raw=True)]
        except (HPACKError, ValueError):
            expected = None
        try:
            got = ours.decode(block)
        except HeaderBlockError:
            return  # the library takes integers of any length
        assert got == expected


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",
        b"\xff",
        b"\xff\xff\xff\xff\xff\xff\x01",
        b"\x40\x05abc",
        b"\x3f\xe2\x1f",
        b"\xbe",
        b"\x88\x20",
    ],
)
def test_broken_blocks(block: bytes) -> None:
    with pytest.raises(HeaderBlockError):
        HeaderDecoder(1000).decode(block)


def test_a_list_is_bounded_by_what_it_means() -> None:
    block = b"\x40\x01x\x7f\x81\x01" + b"y" * 256 + b"\xbe" * 10
    assert len(HeaderDecoder(10_000).decode(block)) == 11
    with pytest.raises(HeaderBlockError, match="more than 1000"):
        HeaderDecoder(1000).decode(block)
