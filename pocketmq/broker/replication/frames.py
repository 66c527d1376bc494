"""The bytes between the HA ports of a classic master and its slave (DefaultHAService).

The slave sends reports of 8 bytes: the physical offset behind the last byte that it has. The master
sends frames: an offset (i64), a size (i32), and so many bytes of the commit log, as they lie in the
file. A frame without bytes is a heartbeat. There is no magic, no version and no handshake, so what
does not fit is the only sign of a stranger. All integers are big-endian.
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
"""Bytes of the largest body: an official slave waits for ever for the rest of a larger one."""


class BadFrame(Exception):
    """The peer does not speak this protocol, or its log is not this broker's."""


class Head(NamedTuple):
    """The head of a frame: the physical offset of the first byte behind it, and how many follow."""

    offset: int
    size: int


def encode_report(offset: int) -> bytes:
    """Return the report of a slave whose log ends at the physical offset `offset`."""
    return _REPORT.pack(offset)


def encode_head(offset: int, size: int) -> bytes:
    """Return the head of a frame; with a `size` of 0 it is a heartbeat."""
    return _HEAD.pack(offset, size)


class ReportReader:
    """Puts reports together from what is received, which may be cut anywhere."""

    def __init__(self) -> None:
        self._rest = b""
        self._last = 0

    def feed(self, data: bytes) -> int | None:
        """Return the last complete report; None when there is none yet. Only the last one counts,
        since offsets rise.

        Raises BadFrame for an offset that is negative, or below the one before it.
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
                    "of a controller group does: enableControllerMode must be the same here and "
                    "there"
                )
            self._last = offset
        return self._last


class FrameReader:
    """Takes a master's frames apart while they arrive, without copying their bodies.

    `feed` returns heads, and bodies in pieces as they come: a body need not be complete.
    """

    def __init__(self) -> None:
        self._head = bytearray()  # of a frame, as far as it is there
        self._left = 0  # bytes of the body that are still to come

    def feed(self, data: memoryview) -> list[Head | memoryview]:
        """Return what `data` holds, in order. Raises BadFrame for an impossible head."""
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
    """Read the head at `at`. Raises BadFrame when its values are impossible."""
    head = Head(*_HEAD.unpack_from(data, at))
    if head.offset < 0 or not 0 <= head.size <= MOST_BODY:
        raise BadFrame(
            f"a frame of {head.size} bytes for the physical offset {head.offset}; at most "
            f"{MOST_BODY} bytes are possible"
        )
    return head
