"""The body of a batch send (code 320): several messages for one queue.

Each message is, big-endian::

    size i32 · magic i32 (0) · CRC i32 (0) · flag i32 · bodyLength i32, body ·
    propertiesLength i16, properties

The broker stores each as a record of its own; magic and CRC are placeholders nobody reads.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from message.buffers import ReadableBuffer
from message.limits import MAX_PROPERTIES

_HEAD: Final = Struct(">iiiii")
_PROPERTIES_LENGTH: Final = Struct(">h")
_unpack_head: Final = _HEAD.unpack_from
_new_item: Final = tuple.__new__

MIN_ITEM: Final = _HEAD.size + _PROPERTIES_LENGTH.size
"""22 bytes: an item with neither body nor properties."""


class BatchBodyError(ValueError):
    """Bytes that are no batch body, or a message that does not fit into one."""


class BatchItem(NamedTuple):
    """One message of a batch; `body` is a slice of the batch body it came from."""

    flag: int
    body: memoryview
    properties: bytes


def item_size(body_length: int, properties_length: int) -> int:
    """Bytes a message with these lengths takes in a batch body."""
    return MIN_ITEM + body_length + properties_length


def encode_batch(messages: Iterable[tuple[int, ReadableBuffer, bytes]]) -> bytes:
    """Join messages given as (flag, body, encoded properties) to a batch body.

    Raises:
        BatchBodyError: properties of more than 32 767 bytes.
    """
    parts: list[ReadableBuffer] = []
    for flag, body, properties in messages:
        body_length = len(body)
        properties_length = len(properties)
        if properties_length > MAX_PROPERTIES:
            raise BatchBodyError(
                f"properties of {properties_length} bytes, {MAX_PROPERTIES} are allowed"
            )
        parts += (
            _HEAD.pack(MIN_ITEM + body_length + properties_length, 0, 0, flag, body_length),
            body,
            _PROPERTIES_LENGTH.pack(properties_length),
            properties,
        )
    return b"".join(parts)


def iter_batch(body: ReadableBuffer) -> Iterator[BatchItem]:
    """The messages of a batch body, in order.

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
            raise BatchBodyError(f"{end - at} bytes at byte {at} are no message") from None
        body_begin = at + 20
        body_end = body_begin + body_length
        next_at = at + size
        if body_length < 0 or body_end + 2 > next_at or next_at > end:
            raise BatchBodyError(
                f"at byte {at}: a message of {size} bytes with a body of {body_length}, "
                f"{end - at} bytes are left"
            )
        # The length of the properties follows from the others; it must say the same.
        if view[body_end] << 8 | view[body_end + 1] != next_at - body_end - 2:
            raise BatchBodyError(f"at byte {at}: its parts do not add up to its size of {size}")
        # What BatchItem(...) does, without the call in between that doubles its cost.
        yield _new_item(
            BatchItem, (flag, view[body_begin:body_end], bytes(view[body_end + 2 : next_at]))
        )
        at = next_at
