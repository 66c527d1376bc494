"""The bytes between the HA ports of a classic master and its slave (DefaultHAService).

The slave sends reports of 8 bytes: the physical offset after the last byte that it has. The master
sends frames: an offset (i64), a size (i32), and that number of bytes from the file of the commit
log. A frame without bytes is a heartbeat. There is no magic number, version or handshake, so only
impossible values show that a peer speaks another protocol. All integers are big-endian.
Reference: DefaultHAClient, DefaultHAConnection.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from pocketmq.message.buffers import ReadableBuffer

_REPORT: Final = Struct(">q")
_HEAD: Final = Struct(">qi")

REPORT_SIZE: Final = _REPORT.size
"""8 bytes."""
HEAD_SIZE: Final = _HEAD.size
"""12 bytes."""
MOST_BODY: Final = 4 * 1024 * 1024 - HEAD_SIZE
"""Bytes of the largest body: an official slave never receives a larger one completely."""


class BadFrame(Exception):
    """The peer does not speak this protocol, or its log is not this broker's."""


class Head(NamedTuple):
    """The header of a frame: the physical offset of the bytes that follow, and their number."""

    offset: int
    size: int


def encode_report(offset: int) -> bytes:
    """Return the report of a slave whose log ends at the physical offset `offset`."""
    return _REPORT.pack(offset)


def encode_head(offset: int, size: int) -> bytes:
    """Return the header of a frame; with a `size` of 0 it is a heartbeat."""
    return _HEAD.pack(offset, size)


class ReportReader:
    """Assembles reports from reads of any size."""

    def __init__(self) -> None:
        self._rest = b""
        self._last = 0

    def feed(self, data: bytes) -> int | None:
        """Return the last complete report; None if there is none yet. Only the last report counts,
        since offsets increase.

        Raises BadFrame for an offset that is negative, or lower than the previous one.
        """
        data = self._rest + data if self._rest else data
        whole = len(data) // REPORT_SIZE * REPORT_SIZE
        self._rest = data[whole:]
        if not whole:
            return None
        for (offset,) in _REPORT.iter_unpack(memoryview(data)[:whole]):
            if offset < 0:
                raise BadFrame(f"it reports the physical offset {offset}")
            if offset < self._last:
                raise BadFrame(
                    f"it reports the physical offset {offset} after {self._last}, as the handshake "
                    "of a controller group does: enableControllerMode must be the same on both "
                    "brokers"
                )
            self._last = offset
        return self._last


class FrameReader:
    """Splits a master's bytes into frames as they arrive, without copying the bodies.

    `feed` returns headers, and bodies in pieces as they arrive.
    """

    def __init__(self) -> None:
        self._head = bytearray()  # the received part of a header
        self._left = 0  # bytes of the body still to be received

    def feed(self, data: memoryview) -> list[Head | memoryview]:
        """Return the headers and body pieces in `data`, in order. Raises BadFrame for an impossible
        header."""
        found: list[Head | memoryview] = []
        at, length = 0, len(data)
        while at < length:
            if self._left:
                end = min(at + self._left, length)
                found.append(data[at:end])
                self._left -= end - at
                at = end
                continue
            if not self._head and length - at >= HEAD_SIZE:
                head = decode_head(data, at)
                at += HEAD_SIZE
            else:
                end = min(at + HEAD_SIZE - len(self._head), length)
                self._head += data[at:end]
                at = end
                if len(self._head) < HEAD_SIZE:
                    break
                head = decode_head(self._head)
                self._head.clear()
            self._left = head.size
            found.append(head)
        return found


def decode_head(data: ReadableBuffer, at: int = 0) -> Head:
    """Decode the header at `at`. Raises BadFrame for impossible values."""
    head = Head(*_HEAD.unpack_from(data, at))
    if head.offset < 0 or not 0 <= head.size <= MOST_BODY:
        raise BadFrame(
            f"a frame of {head.size} bytes for the physical offset {head.offset}; at most "
            f"{MOST_BODY} bytes are allowed"
        )
    return head
