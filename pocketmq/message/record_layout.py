"""The stored message record: encoding into a buffer, decoding without copying the body.

Records are stored in the commit log and sent in answers to pulls, one after another without
padding. All integers are big-endian::

    size i32 · magic u32 · bodyCRC i32 · queueId i32 · flag i32 · queueOffset i64 ·
    physicalOffset i64 · sysFlag i32 · bornTimestamp i64 · bornHost 8|20 · storeTimestamp i64 ·
    storeHost 8|20 · reconsumeTimes i32 · preparedTransactionOffset i64 ·
    bodyLength i32, body · topicLength u8 (v1) | u16 (v2), topic · propertiesLength i16, properties

The end of a commit-log file that is too short for the next record is filled by a blank: its size,
`BLANK_MAGIC`, and any bytes.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Any, Final

from pocketmq.message import properties as property_text
from pocketmq.message.buffers import ReadableBuffer, WritableBuffer
from pocketmq.message.checksum import CRC_MASK, crc32

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
"""Written when the topic is longer than 127 bytes."""
BLANK_MAGIC: Final = 0xCBD43194
MIN_BLANK: Final = 8
"""Bytes that must stay free after a record, so that a blank always has room for its head."""

MAX_TOPIC_V1: Final = 127
"""Bytes: the length is one signed byte to the reference readers."""

# Offsets of fields that stores patch and scans read, if the born host is IPv4.
BODY_CRC_AT: Final = 8
QUEUE_OFFSET_AT: Final = 20
PHYSICAL_OFFSET_AT: Final = 28
SYS_FLAG_AT: Final = 36
STORE_TIMESTAMP_AT: Final = 56

# By bits 4 (born host) and 5 (store host is IPv6) of the sysFlag, shifted down.
_HEADS: Final = tuple(
    Struct(f">iIiiiqqiq{born}sq{store}siqi") for born, store in ((8, 8), (20, 8), (8, 20), (20, 20))
)
_HEAD_V4: Final = _HEADS[0]
_SIZE_AND_MAGIC: Final = Struct(">iI")
_MAX_AFTER_BODY: Final = 2 * (2 + 0xFFFF)  # bytes of topic and properties, with their lengths
_U16: Final = Struct(">H")
_LENGTH: Final = Struct(">I")
_I64: Final = Struct(">q")
_MAGIC_AND_FLAG: Final = Struct(">I28xi")  # from byte 4

# Looked up once: attribute lookups in encode_into cost time at two hundred thousand calls/s.
_pack_head_v4: Final = _HEAD_V4.pack_into
_pack_u16: Final = _U16.pack_into
unpack_head: Final = _HEAD_V4.unpack_from
"""`size` to `body_length` of a `Record`, if both hosts are IPv4."""

HEAD_SIZE: Final = _HEAD_V4.size
"""88 bytes."""
MIN_RECORD: Final = HEAD_SIZE + 1 + 2
"""91 bytes: a v1 record with IPv4 hosts and no content."""


class RecordError(Exception):
    """No record can be read at this position. `offset` is that within the buffer."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"at byte {offset}: {reason}")
        self.offset = offset
        self.reason = reason


class TruncatedRecord(RecordError):
    """The buffer ends before the record does."""


class CorruptRecord(RecordError):
    """The bytes are not a record: wrong magic, lengths that do not add up, or a wrong checksum."""


Parts = tuple[tuple[Any, ...], Any, str, Any]
"""A record taken apart: the attributes `size` to `body_length` of a `Record` in their order,
its body, its topic, its properties text."""


def record_size(
    body_length: int,
    topic_length: int,
    properties_length: int,
    sys_flag: int = 0,
    version: int = 1,
) -> int:
    """Return the bytes of a record with these lengths (of the encoded topic and properties)."""
    return (
        _HEADS[sys_flag >> 4 & 3].size
        + version  # the topic's length has one byte in v1, two in v2
        + 2
        + body_length
        + topic_length
        + properties_length
    )


def encode_into(
    buffer: WritableBuffer,
    at: int,
    size: int,
    magic: int,
    body_crc: int,
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
    topic: bytes,
    properties: bytes,
) -> None:
    """Write one record of `size` bytes (from `record_size`) into `buffer` at `at`.

    The caller has checked the room and the lengths: topic ≤ 127 bytes with `MAGIC_V1`, properties
    ≤ 32 767 bytes, hosts of the length their sysFlag bits say. Nothing is checked again here.
    """
    body_length = len(body)
    if sys_flag & 0x30:
        head = _HEADS[sys_flag >> 4 & 3]
        head.pack_into(
            buffer, at, size, magic, body_crc, queue_id, flag, queue_offset, physical_offset,
            sys_flag, born_timestamp, born_host, store_timestamp, store_host, reconsume_times,
            prepared_transaction_offset, body_length,
        )  # fmt: skip
        begin = at + head.size
    else:
        _pack_head_v4(
            buffer, at, size, magic, body_crc, queue_id, flag, queue_offset, physical_offset,
            sys_flag, born_timestamp, born_host, store_timestamp, store_host, reconsume_times,
            prepared_transaction_offset, body_length,
        )  # fmt: skip
        begin = at + HEAD_SIZE
    end = begin + body_length
    buffer[begin:end] = body
    topic_length = len(topic)
    if magic == MAGIC_V1:
        buffer[end] = topic_length
        begin = end + 1
    else:
        _pack_u16(buffer, end, topic_length)
        begin = end + 2
    end = begin + topic_length
    buffer[begin:end] = topic
    _pack_u16(buffer, end, len(properties))
    buffer[end + 2 : at + size] = properties


def encode_blank_into(buffer: WritableBuffer, at: int, size: int) -> None:
    """Fill the last `size` bytes (≥ `MIN_BLANK`) of a commit-log file: only the head is written."""
    _SIZE_AND_MAGIC.pack_into(buffer, at, size, BLANK_MAGIC)


def peek(buffer: ReadableBuffer, at: int = 0) -> tuple[int, int]:
    """Return the size and the magic at `at`: a record, a blank, or neither.

    Raises:
        TruncatedRecord: fewer than eight bytes are left.
    """
    try:
        size, magic = _SIZE_AND_MAGIC.unpack_from(buffer, at)
    except StructError:
        raise TruncatedRecord(at, "fewer than 8 bytes are left") from None
    return size, magic


def decode_parts(data: bytes | memoryview, at: int, check_crc: bool = True) -> Parts:
    """Return the fields that `decode` makes a Record of, for callers that need no Record.

    Body and properties are slices of `data`: copies if `data` is bytes. Raises as `decode` does.
    """
    try:
        head = unpack_head(data, at)
        body_begin = at + HEAD_SIZE
        hosts = head[7] >> 4 & 3
        if hosts:
            head = _HEADS[hosts].unpack_from(data, at)
            body_begin = at + _HEADS[hosts].size
    except StructError:
        raise _short(data, at) from None
    size = head[0]
    magic = head[1]
    if magic == MAGIC_V1:
        length_bytes = 1
    elif magic == MAGIC_V2:
        length_bytes = 2
    else:
        raise _not_a_record(at, size, magic)
    end = at + size
    body_end = body_begin + head[14]
    # Every length is checked against the record's end before it is used: any may be wrong.
    if not body_begin <= body_end <= end - length_bytes - 2:
        raise CorruptRecord(at, f"a body of {head[14]} bytes in a record of {size}")
    if end > len(data):
        raise TruncatedRecord(at, f"the record has {size} bytes, {len(data) - at} are left")
    topic_begin = body_end + length_bytes
    topic_length: int = data[body_end]
    if length_bytes == 2:
        topic_length = topic_length << 8 | data[body_end + 1]
    topic_end = topic_begin + topic_length
    properties_begin = topic_end + 2
    if properties_begin > end:
        raise CorruptRecord(at, f"a topic of {topic_length} bytes reaches out of the record")
    if properties_begin + (data[topic_end] << 8 | data[topic_end + 1]) != end:
        raise CorruptRecord(at, f"its parts do not add up to its size of {size} bytes")
    body = data[body_begin:body_end]
    if check_crc and body and crc32(body) & CRC_MASK != head[2]:
        raise CorruptRecord(
            at, f"the body's CRC is {crc32(body) & CRC_MASK}, the record says {head[2]}"
        )
    try:
        topic = str(data[topic_begin:topic_end], "utf-8")
    except UnicodeDecodeError:
        raise CorruptRecord(at, "the topic is not UTF-8") from None
    return head, body, topic, data[properties_begin:end]


def size_of_parts(buffer: ReadableBuffer, at: int = 0) -> int | None:
    """Return the size that the lengths of body, topic and properties of the record at `at` add up
    to, whatever its own size says; None if they exceed the buffer, or the magic is wrong.
    """
    try:
        magic, hosts = _MAGIC_AND_FLAG.unpack_from(buffer, at + 4)
        end = at + _HEADS[hosts >> 4 & 3].size
        end += _LENGTH.unpack_from(buffer, end - 4)[0]
        if magic == MAGIC_V1:
            end += 1 + buffer[end]
        elif magic == MAGIC_V2:
            end += 2 + _U16.unpack_from(buffer, end)[0]
        else:
            return None
        end += 2 + _U16.unpack_from(buffer, end)[0]
    except (StructError, IndexError):
        return None
    return end - at if end <= len(buffer) else None


def claimed_end(buffer: ReadableBuffer, at: int, physical_offset: int) -> int:
    """Return where the record at `at` ends by its own head, although it cannot be decoded; `at` if
    that is not the head of a record of this physical offset.

    What looks like a record before that end may be in the body, where a client put it. `size` may
    be 0 (it is written last): then the end is that of the body, or of what is written after it.
    """
    try:
        size, magic = peek(buffer, at)
        hosts = _MAGIC_AND_FLAG.unpack_from(buffer, at + 4)[1]
        own_offset = _I64.unpack_from(buffer, at + PHYSICAL_OFFSET_AT)[0]
        end: int = at + _HEADS[hosts >> 4 & 3].size
        end += _LENGTH.unpack_from(buffer, end - 4)[0]
    except (StructError, RecordError):
        return at
    if magic not in (MAGIC_V1, MAGIC_V2) or own_offset != physical_offset or end > len(buffer):
        return at
    if size == 0:
        return max(end, at + (size_of_parts(buffer, at) or 0))
    # Both lengths have to be right, so that damage to one of them hides no good records.
    return at + size if end < at + size <= min(end + _MAX_AFTER_BODY, len(buffer)) else at


def properties_of(record: memoryview) -> dict[str, str]:
    """Return the properties of `record`, which is exactly one record.

    A third of the time that `decode` takes for the whole, for filters that need only these.

    Raises:
        CorruptRecord: the bytes are not a record.
    """
    try:
        magic, hosts = _MAGIC_AND_FLAG.unpack_from(record, 4)
        body_end = _HEADS[hosts >> 4 & 3].size
        body_end += _LENGTH.unpack_from(record, body_end - 4)[0]
        if magic == MAGIC_V1:
            topic_end = body_end + 1 + record[body_end]
        elif magic == MAGIC_V2:
            topic_end = body_end + 2 + _U16.unpack_from(record, body_end)[0]
        else:
            raise CorruptRecord(0, f"magic {magic:#010x} is not a record's")
        if topic_end + 2 + _U16.unpack_from(record, topic_end)[0] != len(record):
            raise CorruptRecord(0, f"its parts do not add up to its size of {len(record)} bytes")
    except (StructError, IndexError):
        raise CorruptRecord(0, f"its parts reach out of its {len(record)} bytes") from None
    return property_text.decode(record[topic_end + 2 :])


def queue_offsets_of(buffer: ReadableBuffer) -> list[int]:
    """Return the queue offset of each record in `buffer`, as a pull answer holds them."""
    offsets = []
    at = 0
    while at < len(buffer):
        size, _ = peek(buffer, at)
        (offset,) = _I64.unpack_from(buffer, at + QUEUE_OFFSET_AT)
        offsets.append(offset)
        at += size
    return offsets


def _short(view: bytes | memoryview, at: int) -> RecordError:
    """Return the error for an incomplete head, from the size and the magic if present."""
    size, magic = peek(view, at)
    if magic not in (MAGIC_V1, MAGIC_V2):
        return _not_a_record(at, size, magic)
    if size < MIN_RECORD:
        return CorruptRecord(at, f"a record of {size} bytes, the least is {MIN_RECORD}")
    return TruncatedRecord(at, f"the record has {size} bytes, {len(view) - at} are left")


def _not_a_record(at: int, size: int, magic: int) -> CorruptRecord:
    if magic == BLANK_MAGIC:
        return CorruptRecord(at, f"a blank of {size} bytes, the end of a commit-log file")
    return CorruptRecord(at, f"magic {magic:#010x} is not a record's")
