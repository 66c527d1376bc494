"""Encodes records for appending: whole runs of them as one bytes object, as few calls as possible.

The layout is that of `message.record` (a test compares the two). What differs is that the first
four bytes of a run, the first record's size, are left out: the commit log writes them last, with
one store. Until then the place reads as "nothing here", so that neither a crash in the middle of
the copy nor a reader in another process takes a part of a message, or of a batch, for a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from message.batch_body import BatchBodyError
from message.buffers import ReadableBuffer
from message.checksum import CRC_MASK, crc32
from message.limits import MAX_PROPERTIES
from message.properties import TAGS, find
from message.record import MAGIC_V1, MAGIC_V2, MAX_TOPIC_V1
from message.tags import tag_hash

SIZE_BYTES: Final = 4

# magic … bodyLength; the second of each pair begins with the size. By the sysFlag bits 4 and 5.
_LAYOUTS: Final = tuple(
    f"Iiiiqqiq{born}sq{store}siqi" for born, store in ((8, 8), (20, 8), (8, 20), (20, 20))
)
_FIRST_HEADS: Final = tuple(Struct(f">{layout}").pack for layout in _LAYOUTS)
_NEXT_HEADS: Final = tuple(Struct(f">i{layout}").pack for layout in _LAYOUTS)
# The same head in two: what differs within a batch, and what its messages (of one length) share.
_FRONT: Final = Struct(">iIiiiqq").pack  # size … physicalOffset
_REARS: Final = tuple(
    Struct(f">iq{born}sq{store}siqi").pack for born, store in ((8, 8), (20, 8), (8, 20), (20, 20))
)  # sysFlag … bodyLength
_HEAD_SIZES: Final = tuple(Struct(f">i{layout}").size for layout in _LAYOUTS)
pack_length: Final = Struct(">H").pack
_unpack_item: Final = Struct(">iiiii").unpack_from
_ITEM_HEAD: Final = 20
_SMALL_BODY: Final = 4096

_TAGS: Final = b"TAGS\x01"
_SEPARATED_TAGS: Final = b"\x02TAGS\x01"
# Encoded tag → code: applications use a handful; a peer that sends ever new ones starts it over.
_known_tags: dict[bytes, int] = {}
_MOST_TAGS: Final = 2048


class TopicField(NamedTuple):
    """What the records of one topic have in common.

    `encoded` is the topic with its length before it; `overhead` the bytes of a record that are
    neither head, body nor properties.
    """

    magic: int
    encoded: bytes
    overhead: int

    @classmethod
    def of(cls, topic: str) -> TopicField:
        """The field of `topic`: v2 records where its length does not fit into v1's signed byte."""
        name = topic.encode()
        if len(name) > MAX_TOPIC_V1:
            encoded = pack_length(len(name)) + name
            return cls(MAGIC_V2, encoded, len(encoded) + 2)
        encoded = bytes((len(name),)) + name
        return cls(MAGIC_V1, encoded, len(encoded) + 2)


class EncodedBatch(NamedTuple):
    """The records of a batch.

    Attributes:
        data: the records without the first one's size word.
        first_size: that word's value.
        entries: physical offset, size and tags code of each record, flat: what the consume queue
            gets.
    """

    data: bytes
    first_size: int
    entries: list[int]


def head_size(sys_flag: int) -> int:
    """Bytes of a record up to and including the body length."""
    return _HEAD_SIZES[sys_flag >> 4 & 3]


def head_packer(sys_flag: int) -> Callable[..., bytes]:
    """Packs a record up to and including the body length, size word included: size, magic, CRC,
    queue id, flag, queue offset, physical offset, sysFlag, born timestamp, born host, store
    timestamp, store host, reconsume times, prepared transaction offset, body length."""
    return _NEXT_HEADS[sys_flag >> 4 & 3]


def encode_record(
    topic: TopicField,
    crc: int,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    body: ReadableBuffer,
    properties: bytes,
) -> bytes:
    """One record without its size word. Lengths are the caller's to check."""
    return b"".join(
        (
            _FIRST_HEADS[sys_flag >> 4 & 3](
                topic[0], crc, queue_id, flag, queue_offset, physical_offset, sys_flag,
                born_timestamp, born_host, store_timestamp, store_host, reconsume_times,
                prepared_transaction_offset, len(body),
            ),
            body,
            topic[1],
            pack_length(len(properties)),
            properties,
        )
    )  # fmt: skip


def encode_batch(
    topic: TopicField,
    body: ReadableBuffer,
    suffix: bytes,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
) -> EncodedBatch:
    """The records of a batch body (spec 4.3), with consecutive queue offsets.

    `suffix` (encoded properties) goes behind each message's own properties.

    Raises:
        BatchBodyError: lengths do not add up, or properties exceed 32 767 bytes.
    """
    view = memoryview(body)
    # Slicing bytes is faster than slicing memoryviews, as long as there is little to copy.
    source = bytes(body)
    end = len(source)
    at = 0
    pack_front = _FRONT
    pack_rear = _REARS[sys_flag >> 4 & 3]
    magic, topic_bytes, overhead = topic
    overhead += head_size(sys_flag)
    suffix_length = len(suffix)
    suffix_code = _tags_code(b"\0\0" + suffix)
    # Most messages of a batch have the same lengths. By body length: the rear of the head, whose
    # eight-byte integers take struct longer than all the rest; by properties length: topic and
    # that length.
    rears: dict[int, bytes] = {}
    middles: dict[int, bytes] = {}
    parts: list[ReadableBuffer] = []
    entries: list[int] = []
    while at < end:
        try:
            item_size, _, _, flag, body_length = _unpack_item(source, at)
        except StructError:
            raise BatchBodyError(f"{end - at} bytes at byte {at} are no message") from None
        body_begin = at + _ITEM_HEAD
        body_end = body_begin + body_length
        next_at = at + item_size
        length = next_at - body_end - 2
        if body_length < 0 or length < 0 or next_at > end:
            raise BatchBodyError(
                f"at byte {at}: a message of {item_size} bytes with a body of {body_length}, "
                f"{end - at} bytes are left"
            )
        large = body_length > _SMALL_BODY
        message_body = view[body_begin:body_end] if large else source[body_begin:body_end]
        properties = source[body_end:next_at]  # with their length in front
        # That length follows from the others; it must say the same.
        if properties[0] << 8 | properties[1] != length:
            raise BatchBodyError(f"at byte {at}: its parts do not add up to its size {item_size}")
        code = suffix_code or _tags_code(properties)
        tail = suffix
        if suffix_length:
            if length and properties[-1] != 2:
                tail = b"\x02" + suffix
            length += len(tail)
        middle = middles.get(length)
        if middle is None:
            if length > MAX_PROPERTIES:
                raise BatchBodyError(
                    f"at byte {at}: properties of {length} bytes, {MAX_PROPERTIES} are allowed"
                )
            middle = middles[length] = topic_bytes + pack_length(length)
        rear = rears.get(body_length)
        if rear is None:
            rear = rears[body_length] = pack_rear(
                sys_flag, born_timestamp, born_host, store_timestamp, store_host,
                reconsume_times, 0, body_length,
            )  # fmt: skip
        size = overhead + body_length + length
        parts += (
            pack_front(
                size, magic, crc32(message_body) & CRC_MASK, queue_id, flag, queue_offset,
                physical_offset,
            ),
            rear,
            message_body,
            middle,
            properties[2:],
            tail,
        )  # fmt: skip
        entries += (physical_offset, size, code)
        physical_offset += size
        queue_offset += 1
        at = next_at
    if not entries:
        raise BatchBodyError("an empty batch")
    parts[0] = parts[0][SIZE_BYTES:]
    return EncodedBatch(b"".join(parts), entries[1], entries)


def _tags_code(properties: bytes) -> int:
    """The tags code of encoded properties, which begin behind two bytes of length.

    The last TAGS wins, as in the decoded map.
    """
    at = properties.rfind(_TAGS)
    if at < 0:
        return 0
    if at != 2 and properties[at - 1] != 2:  # the end of a longer name, or within a value
        at = properties.rfind(_SEPARATED_TAGS) + 1
        if not at:
            if not properties.startswith(_TAGS, 2):
                return 0
            at = 2
    end = properties.find(2, at)
    tag = properties[at + 5 : end] if end >= 0 else properties[at + 5 :]
    code = _known_tags.get(tag)
    return _new_tags_code(tag, properties) if code is None else code


def _new_tags_code(tag: bytes, properties: bytes) -> int:
    if not tag:  # an empty value counts for nothing, but an earlier one may
        return tag_hash(find(str(properties[2:], "utf-8", "replace"), TAGS) or "")
    if len(_known_tags) >= _MOST_TAGS:
        _known_tags.clear()
    code = _known_tags[tag] = tag_hash(str(tag, "utf-8", "replace"))
    return code
