"""Finds records of the commit log that no consume queue has an entry of.

The rules are those of a broker's recovery: a record counts when it decodes, its CRC is right and
it lies where it says; the first place where that fails is the end of the log. A scan only trusts
what recovery would, with one difference: where records that the queues know follow a bad place,
the log is damaged there, not ended, and the search goes on behind it.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final

import numpy as np

from pocketmq.message.checksum import body_crc
from pocketmq.message.limits import TOPIC_PATTERN
from pocketmq.message.record import BLANK_MAGIC, MIN_BLANK, Record, RecordError, decode, peek
from pocketmq.store.dispatch import has_queue_entry
from pocketmq.store.scan.known_records import KnownRecords
from pocketmq.store.scan.queue_slice import Tail
from pocketmq.store.scan.segments import Segments, undisturbed
from pocketmq.store.scan.snapshot import QueueSnapshot, State, StoreSnapshot, Wants, every_queue

log = logging.getLogger(__name__)

_CHECKPOINT: Final = Struct(">qq")
# The checkpoint's times are taken before what they stand for is flushed (see store.checkpoint).
_SAFETY_MS: Final = 3_000
_MAX_OFFSET: Final = 2**60  # a larger one is damage


class _Growing:
    """The tail of one queue while it is being found."""

    def __init__(self, queue: QueueSnapshot) -> None:
        self.queue = queue
        self.end = queue.known_end
        self.max_physical = queue.max_physical()
        self.columns = tuple(array("q") for _ in range(4))

    def add(self, record: Record) -> None:
        """Enter a record, unless it is known. A newer one wins over an older one of its offset:
        the queue began anew after its topic had been deleted."""
        queue = self.queue
        offset, physical = record.queue_offset, record.physical_offset
        if offset < self.end:
            if physical < self.max_physical and not self._is_older(offset, physical):
                return
            self._forget_from(offset)
        elif offset > self.end and self.end == queue.min_offset:
            queue.min_offset = queue.known_end = offset
        for column, value in zip(
            self.columns, (offset, physical, record.size, record.store_timestamp), strict=True
        ):
            column.append(value)
        self.end = offset + 1
        self.max_physical = physical + record.size

    def tail(self) -> Tail:
        return Tail(*(np.array(column, np.int64) for column in self.columns))

    def _is_older(self, offset: int, physical: int) -> bool:
        """Return whether the record known at `offset` lies before `physical`."""
        queue = self.queue
        if offset < queue.min_offset:
            return False
        if offset < queue.known_end:
            return queue.entry(offset)[0] < physical
        at = bisect_left(self.columns[0], offset)
        return self.columns[0][at] != offset or self.columns[1][at] < physical

    def _forget_from(self, offset: int) -> None:
        queue = self.queue
        if offset < queue.known_end:
            queue.known_end = offset
            queue.min_offset = min(queue.min_offset, offset)
        at = bisect_left(self.columns[0], offset)
        for column in self.columns:
            del column[at:]


def take_snapshot(root: Path, wants: Wants = every_queue) -> StoreSnapshot:
    """Return the store at `root` as it is now, with the records that only its commit log knows.

    Queues that `wants` refuses need not be in it. They are not even opened if a broker has the
    store open, or if this broker closed it: a store may have thousands.

    Raises:
        NoStore: there is none.
    """

    def take() -> StoreSnapshot:
        snapshot = StoreSnapshot(root, wants)
        if snapshot.state is not State.OPEN:
            TailSearch(snapshot).run()
        return snapshot

    return undisturbed(take)


class TailSearch:
    """Walks through the end of a snapshot's commit log and completes its queues."""

    def __init__(self, snapshot: StoreSnapshot) -> None:
        self._snapshot = snapshot
        self._log: Segments = snapshot.log
        self._queues = {key: _Growing(queue) for key, queue in snapshot.queues.items()}

    def run(self) -> None:
        """Fill in `tail`, `known_end` and perhaps `min_offset` of every queue, and add queues."""
        start = self._start()
        known = KnownRecords(self._log, self._snapshot.queues.values(), start)
        at: int | None = start
        while at is not None:
            end, reason = self._walk(at, known)
            at = known.next(end)
            if at is not None:
                log.warning(
                    "%s: no record can be read at physical offset %d (%s); going on at %d",
                    self._log.directory,
                    end,
                    reason,
                    at,
                )
        for key, growing in self._queues.items():
            queue = growing.queue
            if end < growing.max_physical and not len(growing.columns[0]):
                queue.known_end = queue.first_from(end)
            queue.tail = growing.tail()
            self._snapshot.queues[key] = queue
            self._snapshot.names.add(key)

    def _start(self) -> int:
        """Return where the walk begins: everything before has its entry.

        After a clean stop that is where the records with entries end. After a crash entries may
        be missing before that; all up to a time that the checkpoint names are there.
        """
        snapshot = self._snapshot
        if snapshot.state is State.CLEAN:
            ends = (queue.max_physical for queue in self._queues.values())
            return max(self._log.begin, *ends, snapshot.entered or 0)
        path = snapshot.root / "checkpoint"
        raw = path.read_bytes()[: _CHECKPOINT.size] if path.exists() else b""
        if len(raw) < _CHECKPOINT.size:
            return self._log.begin
        certain = min(_CHECKPOINT.unpack(raw)) - _SAFETY_MS
        start = self._log.begin
        for growing in self._queues.values():
            start = max(start, self._last_stored_by(growing.queue, certain))
        return start

    def _last_stored_by(self, queue: QueueSnapshot, timestamp: int) -> int:
        """Return the physical offset of the last record of a queue that was stored until
        `timestamp`."""
        low, high = queue.min_offset, queue.known_end
        found = -1
        while low < high:
            middle = (low + high) // 2
            physical, _ = queue.entry(middle)
            place = self._snapshot.place(physical)
            if place is not None and place.store_timestamp <= timestamp:
                low = middle + 1
                found = physical if place.physical_offset == physical else found
            else:
                high = middle
        return found

    def _walk(self, start: int, known: KnownRecords) -> tuple[int, str]:
        """Enter the unknown records from `start` on; where that ends, and why."""
        try:
            for record in _unknown_records(self._log, start, known):
                growing = self._growing(record)
                if growing is not None:
                    _check_crc(record)
                    growing.add(record)
        except RecordError as error:
            return error.offset, error.reason
        return self._log.end, "the files end, or one is missing"

    def _growing(self, record: Record) -> _Growing | None:
        """Return the queue a record belongs to; None for records that have no place in a queue."""
        if not (
            has_queue_entry(record.sys_flag)
            and record.queue_id >= 0
            and 0 <= record.queue_offset < _MAX_OFFSET
            and TOPIC_PATTERN.fullmatch(record.topic)
        ):
            return None
        key = (record.topic, record.queue_id)
        growing = self._queues.get(key)
        if growing is None:
            if not self._snapshot.wants(*key):
                self._snapshot.names.add(key)
                return None
            growing = _Growing(QueueSnapshot(*key, self._snapshot.queue_segments(*key)))
            self._queues[key] = growing
        return growing


def _unknown_records(segments: Segments, start: int, known: KnownRecords) -> Iterator[Record]:
    """Return the records from `start` on, without the known ones.

    Ends with the files, or where one is missing.

    Raises RecordError with a physical offset where there is no record.
    """
    at = start
    while (segment := segments.find(at)) is not None:
        view, base = segment.view, segment.base
        while (at := known.behind(at)) < base + segment.size - MIN_BLANK:
            try:
                if peek(view, at - base)[1] == BLANK_MAGIC:
                    break
                record = decode(view, at - base, check_crc=False)
            except RecordError as error:
                raise RecordError(at, error.reason) from None
            if record.physical_offset != at:
                raise RecordError(at, f"a record that belongs to {record.physical_offset}")
            at += record.size
            yield record
        at = base + segment.size


def _check_crc(record: Record) -> None:
    if body_crc(record.body) != record.body_crc:
        raise RecordError(record.physical_offset, "the body's CRC is wrong")
