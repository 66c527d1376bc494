"""A stored record as an object, and the records of a buffer one after another.

The layout of a record in bytes is in `record_layout`; scans and their executors read with that
module, because they make no objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from pocketmq.message import properties as property_text
from pocketmq.message.buffers import ReadableBuffer
from pocketmq.message.record_layout import (
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_V1,
    RecordError,
    decode_parts,
    encode_into,
    record_size,
)


class Record(msgspec.Struct, eq=False, gc=False):
    """One decoded record. `body` and `properties_bytes` are slices of the buffer it came from.

    Attributes not obvious from their names:
        size: bytes of the whole record.
        body: as stored, compressed if the sysFlag says so.
        born_host, store_host: packed, 8 or 20 bytes (`identity.unpack_host`).
        prepared_transaction_offset: physical offset of the half message of a committed one.
    Times are Unix milliseconds.
    """

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body_length: int
    body: memoryview
    topic: str
    properties_bytes: memoryview
    _properties: dict[str, str] | None = None

    @property
    def properties_text(self) -> str:
        """The properties as text; bytes that are not UTF-8 become U+FFFD."""
        return str(self.properties_bytes, "utf-8", "replace")

    @property
    def properties(self) -> dict[str, str]:
        """The properties, decoded at the first use."""
        if self._properties is None:
            self._properties = property_text.decode(self.properties_bytes)
        return self._properties


def decode(buffer: ReadableBuffer, at: int = 0, *, check_crc: bool = True) -> Record:
    """Read the record at `at`. Its body stays a slice of `buffer`.

    Raises: TruncatedRecord: the buffer ends before the record does. CorruptRecord: the bytes are
    not a record, or (with `check_crc`) the body's checksum differs.
    """
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    head, *rest = decode_parts(view, at, check_crc)
    return Record(*head, *rest)


def iter_records(
    buffer: ReadableBuffer, at: int = 0, *, check_crc: bool = True, strict: bool = False
) -> Iterator[Record]:
    """Return the records from `at` to the end of `buffer`, as a pull answer holds them.

    A record that cannot be decoded ends the list, as RocketMQ's clients expect; with `strict` it
    raises the `RecordError` instead.
    """
    view = memoryview(buffer)
    while at < len(view):
        try:
            record = decode(view, at, check_crc=check_crc)
        except RecordError:
            if strict:
                raise
            return
        yield record
        at += record.size


def encode_record(record: Record, topic: str, properties: Mapping[str, str]) -> bytes:
    """Return the bytes of a record with another topic, which is short enough for v1 or v2, and
    other properties."""
    name, text = topic.encode(), property_text.encode(properties).encode()
    v1 = len(name) <= MAX_TOPIC_V1
    size = record_size(len(record.body), len(name), len(text), record.sys_flag, 1 if v1 else 2)
    buffer = bytearray(size)
    encode_into(
        buffer, 0, size, MAGIC_V1 if v1 else MAGIC_V2, record.body_crc, record.queue_id,
        record.flag, record.queue_offset, record.physical_offset, record.sys_flag,
        record.born_timestamp, record.born_host, record.store_timestamp, record.store_host,
        record.reconsume_times, record.prepared_transaction_offset, record.body, name, text,
    )  # fmt: skip
    return bytes(buffer)
