"""Batches of messages of equal lengths: with it, without the accelerator, a broker takes batches of
100 messages of 100 bytes in half the time, of 32 messages of 1 KiB in two thirds (bench.stages).

Think of the batch as a table with one message per row: every field is a column, and the same holds
for the records in the commit log. So a batch becomes records by copying columns. Hardly any Python
runs per message.

numpy is slow to load, so `batch_encoder` imports this module on a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pocketmq.message.batch_body import MIN_ITEM
from pocketmq.message.buffers import ReadableBuffer
from pocketmq.message.checksum import CRC_MASK, crc32
from pocketmq.message.limits import MAX_PROPERTIES
from pocketmq.message.record_layout import BODY_CRC_AT, PHYSICAL_OFFSET_AT, QUEUE_OFFSET_AT
from pocketmq.message.reserved import may_name
from pocketmq.store.encoding.batch import ITEM_HEAD, Shared, unpack_item
from pocketmq.store.encoding.entry_array import ENTRY_DTYPE
from pocketmq.store.encoding.tags_codes import SEPARATED_TAGS, SEPARATOR, TAGS_MARK, tags_code

Rows = NDArray[np.void]

_LARGE_BODY = 16 * 1024  # bytes


def take_apart_uniform(
    body: ReadableBuffer, shared: Shared, queue_offset: int
) -> UniformBatch | None:
    """Return the batch, or None when `mixed_batch` has to look at it.

    That is so for messages of different lengths or flags, for large messages (a batch holds few of
    them), and for a body that may not be a batch at all.
    """
    end = len(body)
    if end < MIN_ITEM:
        return None
    size, flag, body_length = unpack_item(body, 0)
    length = size - MIN_ITEM - body_length
    if not 0 < body_length <= _LARGE_BODY or length < 0 or end % size:
        return None
    count = end // size
    rows: Rows = np.ndarray(count, _items(body_length, length), body)
    if (
        rows["head"].tobytes() != bytes(body[:ITEM_HEAD]) * count
        or rows["length"].tobytes() != length.to_bytes(2, "big") * count
    ):
        return None
    if may_name(rows["properties"].tobytes()):
        return None
    tail = shared.suffix
    if length and tail:
        # The last bytes of all messages: all end with the separator, or none does.
        separated = bytes(body[size - 1 :: size]).count(SEPARATOR)
        if not separated:
            tail = b"\x02" + tail
        elif separated < count:
            return None
    if length + len(tail) > MAX_PROPERTIES:
        return None
    return UniformBatch(shared, queue_offset, rows, flag, tail)


class UniformBatch:
    """A `pocketmq.store.encoding.batch.Batch`; `rows` are a view of its body."""

    def __init__(
        self, shared: Shared, queue_offset: int, rows: Rows, flag: int, tail: bytes
    ) -> None:
        self._shared = shared
        self._queue_offset = queue_offset
        self._rows = rows
        self._flag = flag
        self._tail = tail
        self._body_length = rows.dtype["body"].itemsize
        self._length = rows.dtype["properties"].itemsize
        self._record_size = shared.overhead + self._body_length + self._length + len(tail)
        self.count = len(rows)
        self.has_zeros = 0 in rows["properties"].tobytes()
        self.size = self._record_size * self.count

    def encode_into(
        self, buffer: bytearray, at: int, physical_offset: int
    ) -> tuple[bytes, Sequence[int]]:
        """See `pocketmq.store.encoding.batch.Batch`."""
        shared, rows, tail, count = self._shared, self._rows, self._tail, self.count
        size, begin = self._record_size, self._queue_offset
        head = shared.head(size, self._flag, self._body_length)
        middle = shared.middle(self._length + len(tail))
        records: Rows = np.ndarray(
            count,
            _records(len(head), self._body_length, len(middle), self._length, len(tail)),
            buffer,
            at,
        )
        end = physical_offset + self.size
        physical = np.arange(physical_offset, end, size)
        bodies = rows["body"]
        records["head"] = head
        records["crc"] = np.fromiter(map(crc32, bodies.tolist()), np.uint32, count) & CRC_MASK
        records["queue_offset"] = np.arange(begin, begin + count)
        records["physical_offset"] = physical
        records["body"] = bodies
        records["middle"] = middle
        records["properties"] = rows["properties"]
        records["tail"] = tail
        entries = np.empty(count, ENTRY_DTYPE)
        entries["physical"] = physical
        entries["size"] = size
        entries["tags_code"] = self._tags_codes()
        return entries.tobytes(), range(physical_offset, end, size)

    def _tags_codes(self) -> int | list[int]:
        """Return the tags code of all messages, or a list with that of each.

        The suffix comes last, so a tag in it counts for all.
        """
        count, length = self.count, self._length
        code = tags_code(self._tail)
        joined = b"" if code else self._rows["properties"].tobytes()
        marks = joined.count(TAGS_MARK)
        if not marks:
            return code
        # Often all messages have the same tag at the same place, and no other tag.
        first = joined[:length]
        at = first.rfind(SEPARATED_TAGS)
        stop = first.find(SEPARATOR, at + 1) + 1
        if marks == count and at >= 0 and stop:
            tags: Rows = np.ndarray(count, f"V{stop - at}", joined, at, (length,))
            if tags.tobytes() == first[at:stop] * count:
                return tags_code(first)
        return [
            tags_code(joined[begin : begin + length]) for begin in range(0, len(joined), length)
        ]


@lru_cache(maxsize=128)
def _items(body: int, properties: int) -> np.dtype[np.void]:
    """Describe a message of a batch body.

    Its head is compared as bytes, including magic and CRC: these mean nothing, and all clients
    write zeros there.
    """
    return _packed(
        head=(0, f"V{ITEM_HEAD}"),
        body=(ITEM_HEAD, f"V{body}"),
        length=(ITEM_HEAD + body, "V2"),
        properties=(ITEM_HEAD + body + 2, f"V{properties}"),
    )


@lru_cache(maxsize=128)
def _records(head: int, body: int, middle: int, properties: int, tail: int) -> np.dtype[np.void]:
    """Describe a stored record, with the fields that differ from row to row within its head.

    Columns that are filled from Python bytes are of kind S: a V column cannot take one value for
    all rows.
    """
    columns = {
        "crc": (BODY_CRC_AT, ">u4"),
        "queue_offset": (QUEUE_OFFSET_AT, ">i8"),
        "physical_offset": (PHYSICAL_OFFSET_AT, ">i8"),
    }
    at = 0
    for name, kind, size in (
        ("head", "S", head),
        ("body", "V", body),
        ("middle", "S", middle),
        ("properties", "V", properties),
        ("tail", "S", tail),
    ):
        columns[name] = at, f"{kind}{size}"
        at += size
    return _packed(**columns)


def _packed(**columns: tuple[int, str]) -> np.dtype[np.void]:
    """Return the type of a row from each column's offset and type; the last column ends it."""
    last, kind = list(columns.values())[-1]
    return np.dtype(
        {
            "names": list(columns),
            "offsets": [at for at, _ in columns.values()],
            "formats": [kind for _, kind in columns.values()],
            "itemsize": last + np.dtype(kind).itemsize,
        }
    )
