"""A range of one queue as planned, and the records it consists of."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from pocketmq.store.encoding.entry_array import EntryArray, entry_array
from pocketmq.store.encoding.queue_entry import CONSUME_QUEUE_UNIT as UNIT
from pocketmq.store.scan.errors import RecordsLost, raise_loss
from pocketmq.store.scan.queues.segments import Int64Array, Segment, Segments, Unreadable

FILLER_SIZE: Final = 0x7FFFFFFF
"""Size in entries that stand for no record."""


NO_ROWS: Final = entry_array(memoryview(b""))


class Rows(NamedTuple):
    """Some records of one queue, in order: their queue offsets, and their entries."""

    offset: Int64Array
    physical: Int64Array
    size: Int64Array
    tags_code: Int64Array | None
    """None for records that no consume queue has an entry of."""

    def take(self, chosen: slice | np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Rows:
        """Return the chosen rows."""
        code = self.tags_code
        return Rows(
            self.offset[chosen],
            self.physical[chosen],
            self.size[chosen],
            None if code is None else code[chosen],
        )


def joined(pieces: Sequence[Rows]) -> Rows:
    """Return the rows of several queues, one after another, without the codes of their tags."""
    return Rows(
        np.concatenate([rows.offset for rows in pieces]),
        np.concatenate([rows.physical for rows in pieces]),
        np.concatenate([rows.size for rows in pieces]),
        None,
    )


class Tail(NamedTuple):
    """Records of one queue that its consume queue does not know yet, found in the commit log."""

    offset: Int64Array
    physical: Int64Array
    size: Int64Array
    store_timestamp: Int64Array

    def cut(self, start: int, stop: int) -> Tail:
        """Return those with queue offsets in [start, stop)."""
        if not len(self.offset):
            return self  # one object for all slices: a plan has thousands, and is pickled
        begin, end = np.searchsorted(self.offset, (start, stop))
        return Tail(*(column[begin:end] for column in self))


NO_TAIL: Final = Tail(*(np.empty(0, np.int64) for _ in range(4)))


@dataclass(frozen=True, slots=True)
class QueueSlice:
    """The records [start, stop) of one queue of a store. Small, and can be pickled.

    Attributes:
        known_end: records before this queue offset are found through the consume queue ...
        tail: ... and those from it on are here.
    """

    topic: str
    queue_id: int
    start: int
    stop: int
    known_end: int
    tail: Tail

    def __len__(self) -> int:
        """Records (and fillers): queue offsets in the tail may have gaps, even very large ones."""
        return max(0, min(self.stop, self.known_end) - self.start) + len(self.tail.offset)

    def offset_of(self, number: int) -> int:
        """Return the queue offset of the record with this number, counted from 0; `stop` after the
        last."""
        known = max(0, min(self.stop, self.known_end) - self.start)
        if number < known:
            return self.start + number
        number -= known
        return int(self.tail.offset[number]) if number < len(self.tail.offset) else self.stop

    def cut(self, start: int, stop: int) -> QueueSlice:
        """Return the part of it in [start, stop)."""
        start = max(start, self.start)
        stop = max(min(stop, self.stop), start)
        tail = self.tail.cut(start, stop)
        return QueueSlice(self.topic, self.queue_id, start, stop, self.known_end, tail)

    def rows(
        self, segments: Segments, lose: Callable[[int, RecordsLost], None] = raise_loss
    ) -> Iterator[Rows]:
        """Its records: one piece per part of the consume queue (`segments`), then the tail.

        `lose` is called for each part of the consume queue that is gone or cannot be read; it may
        raise.
        """
        start, stop = self.start, min(self.stop, self.known_end)
        while start < stop:
            reason = f"no file in {segments.where}"
            try:
                entries = _entries_from(segments, start)[: stop - start]
            except Unreadable as error:
                entries, reason = NO_ROWS, str(error)
            if not len(entries):
                bases = (segment.base // UNIT for segment in segments.all)
                behind = min((base for base in bases if start < base < stop), default=stop)
                lost = RecordsLost(self.topic, self.queue_id, start, behind - 1, reason)
                lose(behind - start, lost)
                start = behind
                continue
            yield Rows(
                np.arange(start, start + len(entries)),
                entries["physical"].astype(np.int64),
                entries["size"].astype(np.int64),
                entries["tags_code"].astype(np.int64),
            )
            start += len(entries)
        if len(self.tail.offset):
            yield Rows(self.tail.offset, self.tail.physical, self.tail.size, None)


def _entries_from(segments: Segments, offset: int) -> EntryArray:
    """Return the entries from a queue offset to the end of its file; none without a file."""
    segment = segments.find(offset * UNIT)
    if segment is not None:
        with contextlib.suppress(FileNotFoundError):  # removed since it was listed
            return entries_of(segment)[offset - segment.base // UNIT :]
    return NO_ROWS


def queue_directory(root: Path, topic: str, queue_id: int) -> Path:
    """Return the directory of a consume queue's files."""
    return Path(root, "consumequeue", topic, str(queue_id))


def entries_of(segment: Segment) -> EntryArray:
    """Return the whole entries in a file of a consume queue."""
    return entry_array(segment.view[: segment.size // UNIT * UNIT])
