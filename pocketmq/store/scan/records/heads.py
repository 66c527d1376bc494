"""The fixed fields of many records at once, as numpy arrays, and the check that they are records.

A head ends with the length of the body; its layout depends on whether the hosts are IPv4 or IPv6.
Nearly always all are IPv4: then one gather of 88 bytes per record has everything.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pocketmq.message.record_layout import MAGIC_V1, MAGIC_V2, MIN_RECORD
from pocketmq.store.scan.queues.segments import ByteArray, Int64Array, Segments
from pocketmq.store.scan.records.gather import Places, fixed_rows


def _dtype(born_host: int, store_host: int) -> np.dtype[Any]:
    return np.dtype(
        [
            ("size", ">i4"),
            ("magic", ">u4"),
            ("body_crc", ">i4"),
            ("queue_id", ">i4"),
            ("flag", ">i4"),
            ("queue_offset", ">i8"),
            ("physical_offset", ">i8"),
            ("sys_flag", ">i4"),
            ("born_timestamp", ">i8"),
            ("born_host", f"V{born_host}"),
            ("store_timestamp", ">i8"),
            ("store_host", f"V{store_host}"),
            ("reconsume_times", ">i4"),
            ("prepared_transaction_offset", ">i8"),
            ("body_length", ">i4"),
        ]
    )


# By bits 4 (born host) and 5 (store host) of the sysFlag, shifted down.
_DTYPES: Final = tuple(_dtype(born, store) for store in (8, 20) for born in (8, 20))
_HOST_BITS: Final = 0x30
_HOST_SHIFT: Final = 4
_PLAIN: Final = _DTYPES[0]
_FULL: Final = _DTYPES[3]  # with room for either kind of host


def locate(
    log: Segments, physical: Int64Array, size: Int64Array
) -> tuple[Places, npt.NDArray[np.bool_]]:
    """Return the positions of records in the mapped files of the log, and which of them are there.

    Only records within a file, by their offset and size, get a position: numpy and Arrow would read
    wherever an entry of a consume queue points.
    """
    index = log.indexes(physical)
    bases = np.array([segment.base for segment in log.all] or [0], np.int64)
    sizes = np.array([segment.size for segment in log.all] or [0], np.int64)
    offset = physical - bases[index]
    inside = (index >= 0) & (size >= MIN_RECORD) & (offset <= sizes[index] - size)
    index, offset = index[inside], offset[inside]
    used, buffer = np.unique(index, return_inverse=True)
    buffers = [log.all[number].bytes for number in used.tolist()]
    return Places(buffers, buffer, offset, size[inside]), inside


class Heads:
    """The heads of the records at some positions, and the positions of their parts.

    Attributes:
        fields: a structured array with the names of the record's fields. Hosts have 8 bytes, or
            20 with those of IPv4 hosts zero-padded (when any host of the block is IPv6).
        body: begin and length of each body.
        topic: begin and length of each topic.
        properties: begin and length of each properties text.
        good: whether the lengths add up to a record. The other attributes say nothing about rows
            that are not good.
    """

    def __init__(self, records: Places) -> None:
        """`records` are whole records according to the consume queue: each begins at least
        `MIN_RECORD` bytes before the end of its buffer and ends within it."""
        self.fields, head_size = _read(records)
        size = records.length
        body_length = self.fields["body_length"].astype(np.int64)
        magic = self.fields["magic"]
        version_2 = magic == MAGIC_V2
        length_bytes = 1 + version_2.astype(np.int64)
        good = (magic == MAGIC_V1) | version_2
        good &= self.fields["size"] == size
        room = size - head_size - length_bytes - 2
        good &= (body_length >= 0) & (body_length <= room)
        # Where the body ends, or a harmless place in rows that are not records.
        body_end = np.where(good, head_size + body_length, 0)
        topic_length = records.bytes_at(body_end).astype(np.int64)
        if version_2.any():
            low = records.bytes_at(body_end + 1)
            topic_length = np.where(version_2, topic_length << 8 | low, topic_length)
        topic_end = body_end + length_bytes + topic_length
        good &= topic_end + 2 <= size
        properties_length = size - topic_end - 2
        topic_end = np.where(good, topic_end, 0)
        stated = records.bytes_at(topic_end).astype(np.int64) << 8 | records.bytes_at(topic_end + 1)
        good &= stated == properties_length
        self.good: npt.NDArray[np.bool_] = good
        self.topic = Places(
            records.buffers, records.buffer, records.offset + body_end + length_bytes, topic_length
        )
        self.body = Places(records.buffers, records.buffer, records.offset + head_size, body_length)
        self.properties = Places(
            records.buffers, records.buffer, records.offset + topic_end + 2, properties_length
        )


def _read(records: Places) -> tuple[npt.NDArray[Any], Int64Array]:
    """Return the heads, and their sizes: all in one gather unless there are IPv6 hosts."""
    plain = _gather(records, _PLAIN)
    layout = (plain["sys_flag"] & _HOST_BITS) >> _HOST_SHIFT
    if not layout.any():
        return plain, np.full(len(plain), _PLAIN.itemsize, np.int64)
    # Rows that are too short for their layout keep zeros, which never decode as a record.
    fields = np.zeros(len(plain), _FULL)
    head_size = np.full(len(plain), _PLAIN.itemsize, np.int64)
    for number, dtype in enumerate(_DTYPES):
        rows = np.flatnonzero((layout == number) & (records.length >= dtype.itemsize))
        if not len(rows):
            continue
        part = _gather(records.rows(rows), dtype)
        for name in dtype.names or ():
            if name in ("born_host", "store_host"):
                width = dtype[name].itemsize
                target = np.zeros((len(rows), 20), np.uint8)
                target[:, :width] = _bytes_of(part[name])
                fields[name][rows] = target.view("V20")[:, 0]
            else:
                fields[name][rows] = part[name]
        head_size[rows] = dtype.itemsize
    return fields, head_size


def _gather(records: Places, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    length = np.full(len(records.offset), dtype.itemsize, np.int64)
    return fixed_rows(Places(records.buffers, records.buffer, records.offset, length), dtype)


def _bytes_of(column: npt.NDArray[Any]) -> ByteArray:
    width = column.dtype.itemsize
    return np.ascontiguousarray(column).view(np.uint8).reshape(len(column), width)
