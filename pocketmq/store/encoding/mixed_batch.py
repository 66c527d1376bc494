"""Batches of messages of any lengths, encoded one by one in a single loop."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Final

from pocketmq.message.batch_body import BatchBodyError, ReservedInBatch
from pocketmq.message.buffers import ReadableBuffer
from pocketmq.message.checksum import CRC_MASK, crc32
from pocketmq.message.limits import MAX_PROPERTIES, MOST_IN_BATCH, MOST_IN_UNUSUAL_BATCH
from pocketmq.message.reserved import TOO_MANY_UNUSUAL, is_unfit_for_batch, may_name
from pocketmq.store.encoding.batch import ITEM_HEAD, Shared, unpack_item
from pocketmq.store.encoding.queue_entry import pack_entries
from pocketmq.store.encoding.tags_codes import SEPARATOR, tags_code

_SMALL_BODY: Final = 4096  # bytes
_PARTS: Final = 6  # of a record
_PROPERTIES_AT: Final = 4  # among them
# The part of a head that differs from message to message: size, magic, CRC, queue id, flag, queue
# offset, physical offset.
_pack_front: Final = Struct(">iIiiiqq").pack


class MixedBatch:
    """A `Batch` of messages of any lengths.

    It is encoded when it is made, for `physical_offset`. When the log goes on in a new file before
    the batch is written, which is rare, `encode_into` encodes it again.
    """

    def __init__(
        self,
        body: ReadableBuffer,
        shared: Shared,
        queue_offset: int,
        physical_offset: int,
        most: int = MOST_IN_BATCH,
    ) -> None:
        """Raises BatchBodyError as `take_apart` does, and for more than `most` messages."""
        self._body = body
        self._shared = shared
        self._queue_offset = queue_offset
        self._physical_offset = physical_offset
        self._data, self._entries, self.has_zeros = _encode(
            body, shared, queue_offset, physical_offset, most
        )
        self.count = len(self._entries) // 3
        self.size = len(self._data)

    def encode_into(
        self, buffer: bytearray, at: int, physical_offset: int
    ) -> tuple[bytes, Sequence[int]]:
        """See `Batch`."""
        if physical_offset != self._physical_offset:
            other = MixedBatch(self._body, self._shared, self._queue_offset, physical_offset)
            return other.encode_into(buffer, at, physical_offset)
        buffer[at : at + self.size] = self._data
        return pack_entries(self._entries), self._entries[::3]


def _encode(
    body: ReadableBuffer, shared: Shared, queue_offset: int, physical_offset: int, most: int
) -> tuple[bytes, list[int], bool]:
    """Return the records; for each its physical offset, size and tags code, flat; and whether there
    are zeros in properties."""
    view = memoryview(body)
    # Slicing bytes is faster than slicing memoryviews, as long as there is little to copy.
    source = bytes(body)
    end = len(source)
    at = 0
    magic, queue_id, overhead = shared.topic.magic, shared.queue_id, shared.overhead
    suffix = shared.suffix
    suffix_length = len(suffix)
    suffix_code = tags_code(suffix)
    # Each is made once per length; most batches have few lengths.
    rears: dict[int, bytes] = {}
    middles: dict[int, bytes] = {}
    parts: list[ReadableBuffer] = []  # `_PARTS` of each record
    entries: list[int] = []
    last_offset = queue_offset + most
    while at < end:
        if queue_offset == last_offset:
            if most == MOST_IN_UNUSUAL_BATCH:
                raise BatchBodyError(TOO_MANY_UNUSUAL)
            raise BatchBodyError(f"a batch of more than {most} messages")
        try:
            item_size, flag, body_length = unpack_item(source, at)
        except StructError:
            raise BatchBodyError(f"{end - at} bytes at byte {at} are not a message") from None
        body_begin = at + ITEM_HEAD
        body_end = body_begin + body_length
        next_at = at + item_size
        length = next_at - body_end - 2
        if body_length < 0 or length < 0 or next_at > end:
            raise BatchBodyError(
                f"at byte {at}: a message of {item_size} bytes with a body of {body_length}, "
                f"{end - at} bytes are left"
            )
        # The length of the properties follows from the others; both must agree.
        if source[body_end] << 8 | source[body_end + 1] != length:
            raise BatchBodyError(f"at byte {at}: its parts do not add up to its size {item_size}")
        if not body_length:
            raise BatchBodyError(f"at byte {at}: the message has no body")
        large = body_length > _SMALL_BODY
        message_body = view[body_begin:body_end] if large else source[body_begin:body_end]
        properties = source[body_end + 2 : next_at]
        tail = suffix
        if suffix_length:
            if length and properties[-1] != SEPARATOR:
                tail = b"\x02" + suffix
            length += len(tail)
        middle = middles.get(length)
        if middle is None:
            if length > MAX_PROPERTIES:
                raise BatchBodyError(
                    f"at byte {at}: properties of {length} bytes, {MAX_PROPERTIES} are allowed"
                )
            middle = middles[length] = shared.middle(length)
        rear = rears.get(body_length)
        if rear is None:
            rear = rears[body_length] = shared.rear(body_length)
        size = overhead + body_length + length
        parts += (
            _pack_front(
                size, magic, crc32(message_body) & CRC_MASK, queue_id, flag, queue_offset,
                physical_offset,
            ),
            rear,
            message_body,
            middle,
            properties,
            tail,
        )  # fmt: skip
        entries += (physical_offset, size, suffix_code or tags_code(properties))
        physical_offset += size
        queue_offset += 1
        at = next_at
    if not entries:
        raise BatchBodyError("an empty batch")
    texts = [bytes(text) for text in parts[_PROPERTIES_AT::_PARTS]]
    all_texts = b"".join(texts)
    if may_name(all_texts) and any(map(is_unfit_for_batch, texts)):
        raise ReservedInBatch("a message of the batch has a property that has no place in a batch")
    return b"".join(parts), entries, 0 in all_texts
