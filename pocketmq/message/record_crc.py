"""The checksum of a whole record, which is its last property (enabledAppendPropCRC).

The last 20 bytes of the record are `__CRC32#`, 0x01, ten decimal digits with the least significant
one first, and 0x02. The number is the CRC-32 of the bytes before them, without its top bit. So it
covers all fields, the tags and the keys, which the CRC of the body does not. Reference:
MessageDecoder.createCrc32, MessageExtEncoder, CommitLog.checkMessageAndReturnSize.
"""

from __future__ import annotations

from typing import Final

from pocketmq.message.buffers import ReadableBuffer
from pocketmq.message.checksum import CRC_MASK, crc32
from pocketmq.message.properties import CRC32

DIGITS: Final = 10
_SEPARATOR: Final = b"\x02"
_NAME: Final = CRC32.encode() + b"\x01"
BLANK_FIELD: Final = _NAME + b"0" * DIGITS + _SEPARATOR
"""The placeholder until the other bytes are final."""
FIELD_SIZE: Final = len(BLANK_FIELD)
"""20 bytes."""
DIFFERS: Final = "it differs from its own checksum (__CRC32#)"


def with_room(properties: bytes) -> bytes:
    """Return encoded properties with a blank field appended. An existing field belongs to another
    record, and is left out."""
    if _NAME in properties:
        entries = properties.split(_SEPARATOR)
        properties = _SEPARATOR.join(each for each in entries if not each.startswith(_NAME))
    if properties and not properties.endswith(_SEPARATOR):
        properties += _SEPARATOR
    return properties + BLANK_FIELD


def field(record: ReadableBuffer) -> bytes:
    """Return the field for a record, which is given without it."""
    digits = b"%010d" % (crc32(record) & CRC_MASK)
    return _NAME + digits[::-1] + _SEPARATOR


def fill_in(records: memoryview) -> None:
    """Fill in the fields of records that lie one after another, with a blank field in each."""
    at = 0
    while at < len(records):
        end = at + int.from_bytes(records[at : at + 4])
        records[end - FIELD_SIZE : end] = field(records[at : end - FIELD_SIZE])
        at = end


def stated_crc(record: memoryview) -> int | None:
    """Return the checksum that a record states; None if it has none."""
    found = bytes(record[-FIELD_SIZE:])
    digits = found[len(_NAME) : -1]
    if found.startswith(_NAME) and found.endswith(_SEPARATOR) and digits.isdigit():
        return int(digits[::-1])
    return None


def is_proven(record: memoryview) -> bool:
    """Return whether a record states its checksum, and has it."""
    return stated_crc(record) is not None and not is_altered(record)


def is_altered(record: memoryview) -> bool:
    """Return whether a record's actual checksum differs from the one that it states."""
    stated = stated_crc(record)
    return stated is not None and stated != crc32(record[:-FIELD_SIZE]) & CRC_MASK
