"""Body compression: the three codecs of RocketMQ in one table keyed by the sysFlag bits.

ZLIB bodies are zlib streams with header, LZ4 bodies LZ4 *frames*, ZSTD bodies zstd frames; several
frames in a row are one body, as the Java client's streams read them. Only producers compress
(bodies of 4 KiB and more, level 5, ZLIB by default); brokers store their bodies unchanged.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Final, Protocol

from pocketmq.message.buffers import ReadableBuffer
from pocketmq.message.sysflag import COMPRESSION_TYPE_MASK, COMPRESSION_TYPE_SHIFT

DEFAULT_LEVEL: Final = 5
MAX_DECOMPRESSED: Final = 64 * 1024 * 1024
"""Default bound of a decompressed body, bytes; a body may claim to be any size."""
MAX_FRAMES: Final = 1024
"""Bound of the frames of one body: empty ones produce no bytes, but each takes time."""


class CompressionError(ValueError):
    """A body that does not decompress: unknown type, broken, cut short, or too large."""


class CompressionType(IntEnum):
    """The codecs, with the numbers of the reference's CompressionType."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def flag(self) -> int:
        """The sysFlag bits that name this codec (without the COMPRESSED bit)."""
        return self.value << COMPRESSION_TYPE_SHIFT

    @classmethod
    def of(cls, sys_flag: int) -> CompressionType:
        """Return the codec a sysFlag names; ZLIB if it names none, as old clients and the Go client
        write it.

        Raises:
            CompressionError: a number that RocketMQ 5.3 does not know.
        """
        number = (sys_flag & COMPRESSION_TYPE_MASK) >> COMPRESSION_TYPE_SHIFT
        if number > 3:
            raise CompressionError(f"unknown compression type {number} in sysFlag {sys_flag:#x}")
        return cls(number) if number else cls.ZLIB


class _Decompressor(Protocol):
    """The common interface of all three libraries' streaming decompressors."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    def decompress(self, data: ReadableBuffer, max_length: int = ..., /) -> bytes: ...


# LZ4 and ZSTD are imported at their first use: a broker compresses nothing and starts sooner.
def _compress_lz4(body: ReadableBuffer, level: int) -> bytes:
    import lz4.frame

    # Content size in the frame's head, so that readers can allocate at once.
    return bytes(lz4.frame.compress(body, compression_level=level, store_size=True))


def _compress_zstd(body: ReadableBuffer, level: int) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.compress(body, level)


def _decompressor_lz4() -> _Decompressor:
    import lz4.frame

    decompressor: _Decompressor = lz4.frame.LZ4FrameDecompressor()
    return decompressor


def _decompressor_zstd() -> _Decompressor:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.ZstdDecompressor()


_COMPRESS: Final[dict[CompressionType, Callable[[ReadableBuffer, int], bytes]]] = {
    CompressionType.LZ4: _compress_lz4,
    CompressionType.ZSTD: _compress_zstd,
    CompressionType.ZLIB: zlib.compress,
}
_DECOMPRESSOR: Final[dict[CompressionType, Callable[[], _Decompressor]]] = {
    CompressionType.LZ4: _decompressor_lz4,
    CompressionType.ZSTD: _decompressor_zstd,
    CompressionType.ZLIB: zlib.decompressobj,
}


def compress(
    body: ReadableBuffer,
    kind: CompressionType = CompressionType.ZLIB,
    level: int = DEFAULT_LEVEL,
) -> bytes:
    """Return `body` as one stream or frame of `kind`."""
    return _COMPRESS[kind](body, level)


def decompress(body: ReadableBuffer, sys_flag: int, max_size: int = MAX_DECOMPRESSED) -> bytes:
    """Return the body inside `body`, compressed by the codec that `sys_flag` names.

    Never produces more than `max_size` + 1 bytes, whatever the compressed bytes claim.

    Raises:
        CompressionError: unknown codec, broken or cut-short bytes, bytes after the end, more than
            `max_size` bytes of output, or more than MAX_FRAMES frames.
    """
    kind = CompressionType.of(sys_flag)
    frames: list[bytes] = []
    rest = body
    left = max_size
    while True:
        decompressor = _DECOMPRESSOR[kind]()
        try:
            plain = decompressor.decompress(rest, left + 1)
        except Exception as error:
            # zlib.error, RuntimeError, ZstdError, EOFError: the libraries differ.
            raise CompressionError(_broken(kind, body, rest, str(error))) from error
        left -= len(plain)
        if left < 0:
            raise CompressionError(f"a {kind.name} body of more than {max_size} bytes")
        if not decompressor.eof:
            raise CompressionError(_broken(kind, body, rest, "cut short"))
        following = decompressor.unused_data
        if not following and not frames:
            return plain
        frames.append(plain)
        if not following:
            return b"".join(frames)
        if kind is CompressionType.ZLIB:
            raise CompressionError(f"{len(following)} bytes after the end of a ZLIB body")
        if len(frames) == MAX_FRAMES:
            raise CompressionError(f"a {kind.name} body of more than {MAX_FRAMES} frames")
        rest = following


def _broken(kind: CompressionType, body: ReadableBuffer, rest: ReadableBuffer, why: str) -> str:
    if rest is body:
        return f"a {kind.name} body of {len(body)} bytes: {why}"
    return f"{len(rest)} bytes after the end of a {kind.name} body: {why}"
