"""One queue of a store at one moment: where its records begin and end, and what its entries say."""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import Final, NamedTuple

import numpy as np

from pocketmq.message.limits import LIGHT_QUEUE_PREFIX
from pocketmq.message.record_layout import MIN_RECORD
from pocketmq.message.sysflag import BORN_HOST_V6
from pocketmq.store.encoding.entry_array import EntryArray
from pocketmq.store.encoding.queue_entry import CONSUME_QUEUE_UNIT as UNIT
from pocketmq.store.scan.queues.queue_end import NO_ENTRIES, fills, last_entries, next_entries
from pocketmq.store.scan.queues.queue_slice import (
    FILLER_SIZE,
    NO_TAIL,
    QueueSlice,
    Tail,
    entries_of,
)
from pocketmq.store.scan.queues.segments import Segments

# queueId, queueOffset, physicalOffset, sysFlag, and the store timestamp after an IPv4 or an IPv6
# born host.
_PLACE: Final = struct.Struct(">12xi4xqqi16xq4xq")
_SCANNED_FILES: Final = 3  # how far back a crash can leave holes, as the reference takes it


class Place(NamedTuple):
    """The place of a record, as its head states it."""

    queue_id: int
    queue_offset: int
    physical_offset: int
    store_timestamp: int


class QueueSnapshot:
    """One queue. Its records are those of the entries [min_offset, known_end), then the tail.

    Attributes:
        segments: the files of its consume queue.
        last: the last entries of its consume queue, some of which may be after `known_end`.
        tail: set when the commit log has been searched.
        is_damaged: whether its entries seem to end too early, or are not this queue's.
        noted_end: where its broker noted that it ends; 0 if it did not.
    """

    def __init__(self, topic: str, queue_id: int, segments: Segments) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.segments = segments
        self.min_offset = self.known_end = segments.begin // UNIT
        self.tail: Tail = NO_TAIL
        self.last = NO_ENTRIES
        self.is_damaged = False
        self.noted_end = 0

    @property
    def max_offset(self) -> int:
        """After the last record."""
        return int(self.tail.offset[-1]) + 1 if len(self.tail.offset) else self.known_end

    def entry(self, offset: int) -> tuple[int, int]:
        """Return the physical offset and size in the entry at a queue offset below `known_end`;
        those of a filler if its file is missing."""
        if self.last.begin <= offset < self.last.end:
            return self.last.entry(offset)
        segment = self.segments.find(offset * UNIT)
        if segment is None:
            return 0, FILLER_SIZE
        entry = entries_of(segment)[offset - segment.base // UNIT]
        return int(entry["physical"]), int(entry["size"])

    def entries(self, start: int, stop: int) -> EntryArray | None:
        """Return the entries of [start, stop) if they are in memory."""
        return self.last.array(start, stop)

    def physical_of(self, offset: int) -> int | None:
        """Return the position of the record of a queue offset, even of an expired one; None if it
        is unknown. Raises FileNotFoundError."""
        if 0 <= offset < self.known_end:
            physical, size = self.entry(offset)
            return physical if 0 < size < FILLER_SIZE else None
        at = int(np.searchsorted(self.tail.offset, offset))
        if at < len(self.tail.offset) and self.tail.offset[at] == offset:
            return int(self.tail.physical[at])
        return None

    def max_physical(self) -> int:
        """Return the physical offset after the record of the last entry; -1 without entries."""
        for offset in range(self.known_end - 1, self.min_offset - 1, -1):
            physical, size = self.entry(offset)
            if size != FILLER_SIZE:
                return physical + size
        return -1

    def first_from(self, physical: int, low: int | None = None) -> int:
        """Return the lowest offset ≥ `low` whose entry points at `physical` or later."""
        offsets = range(self.min_offset if low is None else low, self.known_end)
        # Nearly always it is one of the two ends.
        if not offsets or self._is_from(offsets.start, physical):
            return offsets.start
        at, size = self.entry(offsets.stop - 1)
        if size != FILLER_SIZE and at < physical:
            return offsets.stop
        return offsets.start + bisect_left(
            offsets, True, key=lambda offset: self._is_from(offset, physical)
        )

    def slice(self) -> QueueSlice:
        """All of its records."""
        return QueueSlice(
            self.topic,
            self.queue_id,
            self.min_offset,
            self.max_offset,
            self.known_end,
            self.tail,
        )

    def find_end(self, *, crashed: bool) -> None:
        """Count the entries. After a crash there may be holes between them: the first one in the
        last files is the end. Raises FileNotFoundError."""
        for segment in (files := self.segments.all[-_SCANNED_FILES:]):
            last = last_entries(segment.path, segment.size, gapless=not crashed)
            self.known_end = segment.base // UNIT + last.end
            if last.end:
                self.last = last.behind(segment.base // UNIT)
            self.is_damaged |= last.is_broken_off
            if last.end * UNIT < segment.size:
                self.is_damaged |= segment is not files[-1]
                break

    def advance(self) -> bool:
        """Take the entries that a broker has added since, if the queue is still the same and one
        small read has them; else return False, and the queue has to be read again."""
        if not self.min_offset < self.known_end < self.last.end + 1:
            return False
        last = self.known_end - 1
        segment = self.segments.find(last * UNIT)
        if segment is None:
            return False
        try:
            content = next_entries(segment.path, last - segment.base // UNIT)
        except FileNotFoundError:
            return False
        if not content or fills(content) or content[:UNIT] != self.last.one(last):
            return False
        if last * UNIT + len(content) >= segment.base + segment.size:
            return False  # the next file may be there
        self.last = self.last.joined(last, content)
        self.known_end = self.last.end
        return True

    def trim(self, log: Segments) -> int:
        """Take only entries whose records the log has: the oldest may have expired, the last may
        point past its end, be half written, or remain from an earlier life of the topic. Return
        how many are left out at the end."""
        if log.begin:
            self.min_offset = self.first_from(log.begin)
        self.min_offset = self.after_fillers(self.min_offset)
        end = self.first_from(log.end, self.min_offset)
        while end > self.min_offset and not self._fits(log, end - 1):
            end -= 1
        dropped = self.known_end - end
        self.known_end = end
        self.is_damaged |= dropped > 0
        return dropped

    def _fits(self, log: Segments, offset: int) -> bool:
        physical, size = self.entry(offset)
        if size == FILLER_SIZE:
            return True
        place = place_in(log, physical)
        if place is None or place.physical_offset != physical:
            return False
        if log.find(physical + size - 1) is None:
            return False  # its end was not written, or not copied
        return self.topic.startswith(LIGHT_QUEUE_PREFIX) or (
            place.queue_id == self.queue_id and place.queue_offset == offset
        )

    def after_fillers(self, offset: int) -> int:
        """Return the lowest offset ≥ `offset` whose entry stands for a record, or `known_end`."""
        while offset < self.known_end and self.entry(offset)[1] == FILLER_SIZE:
            segment = self.segments.find(offset * UNIT)
            if segment is None:  # a file is missing
                begins = (each.base // UNIT for each in self.segments.all)
                offset = min((begin for begin in begins if begin > offset), default=self.known_end)
                continue
            sizes = entries_of(segment)["size"][offset - segment.base // UNIT :]
            sizes = sizes[: self.known_end - offset]
            real = np.flatnonzero(sizes != FILLER_SIZE)
            if len(real):
                return offset + int(real[0])
            offset += len(sizes)
        return offset

    def _is_from(self, offset: int, physical: int) -> bool:
        # Fillers may be anywhere; treated like the record after them they keep the order.
        offset = self.after_fillers(offset)
        return offset == self.known_end or self.entry(offset)[0] >= physical


def place_in(log: Segments, physical: int) -> Place | None:
    """Return the fields of the record at `physical`; None if none can be there."""
    segment = log.find(physical)
    if segment is None or physical - segment.base > segment.size - MIN_RECORD:
        return None
    return placed_by(segment.view, physical - segment.base)


def placed_by(view: memoryview, at: int = 0) -> Place:
    """Return the fields of the record at a byte."""
    queue_id, queue_offset, own, sys_flag, time_v4, time_v6 = _PLACE.unpack_from(view, at)
    return Place(queue_id, queue_offset, own, time_v6 if sys_flag & BORN_HOST_V6 else time_v4)
