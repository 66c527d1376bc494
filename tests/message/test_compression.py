from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message.compression import (
    MAX_FRAMES,
    CompressionError,
    CompressionType,
    compress,
    decompress,
)

kinds = st.sampled_from(list(CompressionType))
FRAMED = [CompressionType.LZ4, CompressionType.ZSTD]


@given(kinds, st.binary(max_size=5000), st.integers(1, 9))
def test_round_trip(kind: CompressionType, body: bytes, level: int) -> None:
    packed = compress(body, kind, level)
    assert decompress(packed, 1 | kind.flag) == body
    assert decompress(memoryview(packed), 1 | kind.flag, max_size=len(body)) == body


def test_the_formats_are_those_of_the_official_clients() -> None:
    body = b"a" * 5000
    assert compress(body, CompressionType.ZLIB)[0] == 0x78  # with zlib header
    assert compress(body, CompressionType.LZ4)[:4] == bytes.fromhex("04224D18")  # LZ4 frame
    assert compress(body, CompressionType.ZSTD)[:4] == bytes.fromhex("28B52FFD")


def test_flags() -> None:
    assert [kind.flag for kind in CompressionType] == [0x100, 0x200, 0x300]
    assert CompressionType.of(0x301) is CompressionType.ZLIB
    assert CompressionType.of(0x101) is CompressionType.LZ4


def test_no_codec_named_means_zlib() -> None:
    assert decompress(zlib.compress(b"old client"), 1) == b"old client"


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_unknown_codec(number: int) -> None:
    with pytest.raises(CompressionError, match=f"unknown compression type {number}"):
        decompress(b"", number << 8)


@pytest.mark.parametrize("kind", CompressionType)
def test_output_is_bounded(kind: CompressionType) -> None:
    packed = compress(bytes(1_000_000), kind)
    with pytest.raises(CompressionError, match="more than 999999 bytes"):
        decompress(packed, kind.flag, max_size=999_999)
    assert len(decompress(packed, kind.flag, max_size=1_000_000)) == 1_000_000


@pytest.mark.parametrize("kind", CompressionType)
def test_cut_short_and_trailing_bytes(kind: CompressionType) -> None:
    packed = compress(b"some body, long enough to be cut" * 20, kind)
    for length in (0, 1, len(packed) // 2, len(packed) - 1):
        with pytest.raises(CompressionError):
            decompress(packed[:length], kind.flag)
    with pytest.raises(CompressionError, match="3 bytes after the end"):
        decompress(packed + b"end", kind.flag)


@given(st.sampled_from(FRAMED), st.lists(st.binary(max_size=300), min_size=1, max_size=5))
def test_frames_that_follow_each_other_are_one_body(
    kind: CompressionType, parts: list[bytes]
) -> None:
    """As to the streams of the Java client."""
    packed = b"".join(compress(part, kind) for part in parts)
    body = b"".join(parts)
    assert decompress(packed, kind.flag) == body
    assert decompress(memoryview(packed), kind.flag, max_size=len(body)) == body


@pytest.mark.parametrize("kind", FRAMED)
def test_frames_are_bounded_together(kind: CompressionType) -> None:
    packed = compress(bytes(600), kind) * 3
    with pytest.raises(CompressionError, match="more than 1799 bytes"):
        decompress(packed, kind.flag, max_size=1799)
    with pytest.raises(CompressionError, match="bytes after the end"):
        decompress(packed[:-1], kind.flag)
    assert decompress(compress(b"", kind) * MAX_FRAMES, kind.flag) == b""
    with pytest.raises(CompressionError, match=f"more than {MAX_FRAMES} frames"):
        decompress(compress(b"", kind) * (MAX_FRAMES + 1), kind.flag)


@given(kinds, st.binary(max_size=200))
def test_any_bytes_decompress_or_are_an_error(kind: CompressionType, raw: bytes) -> None:
    try:
        plain = decompress(raw, kind.flag, max_size=10_000)
    except CompressionError:
        return
    assert len(plain) <= 10_000
