"""The body of a batch send (code 320): several messages for one queue.

Each message is, big-endian::

    size i32 · magic i32 (0) · CRC i32 (0) · flag i32 · bodyLength i32, body ·
    propertiesLength i16, properties

The broker stores each as a record of its own; magic and CRC are placeholders that are never read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from pocketmq.message.buffers import ReadableBuffer
from pocketmq.message.limits import MAX_PROPERTIES

_HEAD: Final = Struct(">iiiii")
_PROPERTIES_LENGTH: Final = Struct(">h")
_pack_head: Final = Struct(">i8xii").pack  # magic and CRC are zeros
_pack_length: Final = _PROPERTIES_LENGTH.pack
_unpack_head: Final = _HEAD.unpack_from
_new_item: Final = tuple.__new__

MIN_ITEM: Final = _HEAD.size + _PROPERTIES_LENGTH.size
"""22 bytes: an item with neither body nor properties."""


class BatchBodyError(ValueError):
    """Bytes that are not a batch body, or a message that does not fit into one."""


class ReservedInBatch(BatchBodyError):
    """A message of a batch has a property that is not allowed there."""


class BatchItem(NamedTuple):
    """One message of a batch; `body` is a slice of the batch body it came from."""

    flag: int
    body: memoryview
    properties: bytes


class BatchBody:
    """A growing batch body; `size` in bytes."""

    __slots__ = ("_pieces", "size")

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[bytes] = []  # `add` returns the size of each message

    def add(self, flag: int, body: bytes, properties: bytes, limit: int) -> int:
        """Add a message; return its size in bytes. If the whole would exceed `limit` bytes, add
        nothing and return 0; the first message has no limit. `properties` are encoded, and have at
        most 32 767 bytes."""
        body_length = len(body)
        properties_length = len(properties)
        size = MIN_ITEM + body_length + properties_length
        whole = self.size + size
        if whole > limit and self.size:
            return 0
        self.size = whole
        self._pieces += (
            _pack_head(size, flag, body_length),
            body,
            _pack_length(properties_length),
            properties,
        )
        return size

    def encode(self) -> bytes:
        """Return the whole batch body."""
        return b"".join(self._pieces)

    def first(self) -> tuple[int, bytes, bytes]:
        """Return the flag, the body and the encoded properties of the first message; it must not be
        empty."""
        head, body, _, properties = self._pieces[:4]
        return _unpack_head(head)[3], body, properties

    def clear(self) -> None:
        """Drop the messages; the size stays."""
        self._pieces.clear()


def encode_batch(messages: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """Return a whole batch body of messages given as (flag, body, encoded properties).

    Raises:
        BatchBodyError: properties of more than 32 767 bytes.
    """
    whole = BatchBody()
    for flag, body, properties in messages:
        if len(properties) > MAX_PROPERTIES:
            raise BatchBodyError(
                f"properties of {len(properties)} bytes, {MAX_PROPERTIES} are allowed"
            )
        whole.add(flag, body, properties, sys.maxsize)
    return whole.encode()


def iter_batch(body: ReadableBuffer) -> Iterator[BatchItem]:
    """Return the messages of a batch body, in order.

    Raises:
        BatchBodyError: at the item whose lengths do not add up; the items before it were given.
    """
    view = memoryview(body)
    at = 0
    end = len(view)
    while at < end:
        try:
            size, _, _, flag, body_length = _unpack_head(view, at)
        except StructError:
            raise BatchBodyError(f"{end - at} bytes at byte {at} are not a message") from None
        body_begin = at + 20
        body_end = body_begin + body_length
        next_at = at + size
        if body_length < 0 or body_end + 2 > next_at or next_at > end:
            raise BatchBodyError(
                f"at byte {at}: a message of {size} bytes with a body of {body_length}, "
                f"{end - at} bytes are left"
            )
        # The length of the properties follows from the others; it must agree.
        if view[body_end] << 8 | view[body_end + 1] != next_at - body_end - 2:
            raise BatchBodyError(f"at byte {at}: its parts do not add up to its size of {size}")
        # Equals BatchItem(...), without the call in between that doubles its cost.
        yield _new_item(
            BatchItem, (flag, view[body_begin:body_end], bytes(view[body_end + 2 : next_at]))
        )
        at = next_at
