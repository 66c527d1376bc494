"""Finds records of the commit log that have no entry in a consume queue.

The rules are those of a broker's recovery: a record counts when it decodes, its CRC is right and
its physical offset is its own; the first place where that fails is the end of the log. A scan only
trusts what recovery would, with one difference: where records that the queues know follow a bad
place, the log is damaged there, not ended, and the search goes on after it.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from functools import cached_property
from pathlib import Path
from struct import Struct
from typing import Final

import numpy as np

from pocketmq.message.limits import STORED_TOPIC_PATTERN
from pocketmq.message.multi_dispatch import is_light_queue
from pocketmq.message.record_layout import (
    BLANK_MAGIC,
    MIN_BLANK,
    MIN_RECORD,
    RecordError,
    decode_parts,
    peek,
)
from pocketmq.store.deletions import read_deleted_topics
from pocketmq.store.files import read_small
from pocketmq.store.log.record_blocks import (
    Records,
    TopicNames,
    entry_rows,
    read_block,
    store_timestamps,
)
from pocketmq.store.scan.errors import StoreRecovering
from pocketmq.store.scan.patience import RECOVERY_SECONDS, Patience
from pocketmq.store.scan.planning.snapshot import State, StoreSnapshot, run_of
from pocketmq.store.scan.queues.queue_listing import EVERY_QUEUE, QueueChoice
from pocketmq.store.scan.queues.queue_slice import Tail
from pocketmq.store.scan.queues.queue_snapshot import QueueSnapshot
from pocketmq.store.scan.queues.segments import Segment, Segments, reading, undisturbed
from pocketmq.store.scan.records.known_records import KnownRecords
from pocketmq.store.store_lock import Recovery, recovery_of

log = logging.getLogger(__name__)

_CHECKPOINT: Final = Struct(">qq")
# The checkpoint's times are taken before the data they stand for are flushed (see
# store.checkpoint).
_SAFETY_MS: Final = 3_000
_MAX_OFFSET: Final = 2**60  # a larger one is damage


class _Growing:
    """The tail of one queue while it is being found."""

    def __init__(self, queue: QueueSnapshot) -> None:
        self.queue = queue
        self.end = queue.known_end
        self.max_physical = queue.max_physical()
        self.columns = tuple(array("q") for _ in range(4))
        self._misplaced = 0
        self._first_misplaced = ""

    def extend(self, found: Tail) -> None:
        """Enter records, in the order of the log."""
        offset, physical, size, _ = found
        step = np.diff(offset)
        room = (physical[1:] - physical[:-1] - size[:-1]) // MIN_RECORD
        one_by_one = len(offset)
        if ((step > 0) & (step <= room + 1)).all():  # nearly always
            one_by_one = 1 + int(np.searchsorted(offset[1:], self.end))
        self._add_each(found, slice(one_by_one))
        if one_by_one == len(offset):
            return
        if not self._can_follow(int(offset[one_by_one]), int(physical[one_by_one])):
            self._add_each(found, slice(one_by_one, None))
            return
        for column, values in zip(self.columns, found, strict=True):
            column.frombytes(values[one_by_one:].tobytes())
        self.end = int(offset[-1]) + 1
        self.max_physical = int(physical[-1] + size[-1])

    def _add_each(self, found: Tail, rows: slice) -> None:
        for row in zip(*(column[rows].tolist() for column in found), strict=True):
            self._add(*row)

    def _add(self, offset: int, physical: int, size: int, store_timestamp: int) -> None:
        """Enter a record, unless it is known. A newer one wins over an older one of its offset:
        the topic was deleted, and its queue began again at 0."""
        queue = self.queue
        if offset < self.end:
            if physical < self.max_physical and not self._is_older(offset, physical):
                return
            self._forget_from(offset, physical)
        elif offset > self.end and self.end == queue.min_offset:
            queue.min_offset = queue.known_end = offset
        elif not self._can_follow(offset, physical):
            self._misplaced += 1
            self._first_misplaced = self._first_misplaced or (
                f"the record at physical offset {physical} says that it is message {offset}, but "
                f"the queue ends at {self.end}"
            )
            return
        for column, value in zip(
            self.columns, (offset, physical, size, store_timestamp), strict=True
        ):
            column.append(value)
        self.end = offset + 1
        self.max_physical = physical + size

    def _can_follow(self, offset: int, physical: int) -> bool:
        """Return whether the log has room for all messages between the end and this one. If not,
        recovery takes the record for damaged, too."""
        return offset - self.end <= (physical - max(self.max_physical, 0)) // MIN_RECORD

    def tell_of_misplaced(self) -> None:
        """Log which records have no place in the queue."""
        if self._misplaced:
            log.warning(
                "%s/%d: left out %d damaged records of the commit log; the first: %s",
                self.queue.topic,
                self.queue.queue_id,
                self._misplaced,
                self._first_misplaced,
            )

    def tail(self) -> Tail:
        return Tail(*(np.array(column, np.int64) for column in self.columns))

    def _is_older(self, offset: int, physical: int) -> bool:
        """Return whether the record known at `offset` is before `physical`."""
        queue = self.queue
        if offset < queue.min_offset:
            return False
        if offset < queue.known_end:
            return queue.entry(offset)[0] < physical
        at = bisect_left(self.columns[0], offset)
        return self.columns[0][at] != offset or self.columns[1][at] < physical

    def _forget_from(self, offset: int, physical: int) -> None:
        queue = self.queue
        if offset < queue.known_end:
            if offset > queue.min_offset:  # a queue of a recreated topic begins at 0
                log.warning(
                    "%s/%d: left out the messages %d to %d, since the record at physical offset %d "
                    "says that it is message %d: it is damaged, or the topic was deleted",
                    queue.topic,
                    queue.queue_id,
                    offset,
                    queue.known_end - 1,
                    physical,
                    offset,
                )
            queue.known_end = offset
            queue.min_offset = min(queue.min_offset, offset)
        at = bisect_left(self.columns[0], offset)
        for column in self.columns:
            del column[at:]


def take_snapshot(
    root: Path,
    choice: QueueChoice = EVERY_QUEUE,
    before: StoreSnapshot | None = None,
    patience: Patience | None = None,
) -> StoreSnapshot:
    """Return the store at `root` as it is now, with the records that only its commit log knows.

    Queues that are not of `choice` need not be in it. They are not even opened if a broker has the
    store open, or if this broker closed it. While a broker recovers from a crash, its queues are
    too short: wait until it has.

    Args:
        before: see `StoreSnapshot`.

    Raises:
        NoStore: no store at `root`.
        StoreRecovering: the broker has not recovered in time.
        UnreadableFile, NotAFile, FileTooLarge: a file of it cannot be read.
    """
    patience = patience or Patience()
    while True:
        with reading(root):
            settled, run = recovery_of(root) is not Recovery.UNDER_WAY, run_of(root)
            if settled:
                found = snapshot_now(root, choice, before)
                # A recovery may have begun, and even ended, meanwhile.
                if recovery_of(root) is not Recovery.UNDER_WAY and run_of(root) == run:
                    return found
                before = None
        if not patience.wait():
            raise StoreRecovering(root, RECOVERY_SECONDS)


def snapshot_now(
    root: Path, choice: QueueChoice = EVERY_QUEUE, before: StoreSnapshot | None = None
) -> StoreSnapshot:
    """Do what `take_snapshot` does without waiting: queues are too short while a broker recovers.

    Raises NoStore.
    """

    def take() -> StoreSnapshot:
        snapshot = StoreSnapshot(root, choice, before)
        if snapshot.state is not State.OPEN:
            TailSearch(snapshot).run()
        return snapshot

    return undisturbed(take)


class TailSearch:
    """Walks through the end of a snapshot's commit log and completes its queues."""

    def __init__(self, snapshot: StoreSnapshot) -> None:
        self._snapshot = snapshot
        self._log: Segments = snapshot.log
        self._queues: dict[tuple[str, int], _Growing] = {}  # those with records to enter

    def run(self) -> None:
        """Fill in `tail`, `known_end` and perhaps `min_offset` of every queue, and add queues."""
        snapshot = self._snapshot
        start = self._start()
        # In noted queues, no entry is after the start.
        queues = () if snapshot.noted is not None else snapshot.queues.values()
        known = KnownRecords(self._log, queues, start)
        at: int | None = start
        while at is not None:
            end, reason = self._walk(at, known)
            at = known.next(end)
            if at is not None:
                log.warning(
                    "%s: no record can be read at physical offset %d (%s); going on at %d",
                    self._log.where,
                    end,
                    reason,
                    at,
                )
        if self._queues:
            snapshot.noted = None
        for key, growing in self._queues.items():
            growing.queue.tail = growing.tail()
            growing.tell_of_misplaced()
            snapshot.queues[key] = growing.queue
            snapshot.listing.add(*key)
        if snapshot.noted is not None:
            return
        for key, queue in snapshot.queues.items():
            if key not in self._queues and end < queue.max_physical():
                queue.known_end = queue.first_from(end)
            if queue.is_damaged:
                _tell_of_damage(queue)

    def _start(self) -> int:
        """Return where the walk begins: everything before has its entry."""
        snapshot = self._snapshot
        start = self._usual_start()
        if snapshot.noted is not None:
            return start
        damaged = (queue.max_physical() for queue in snapshot.queues.values() if queue.is_damaged)
        return max(self._log.begin, min([start, *damaged]))

    def _usual_start(self) -> int:
        """Return where the walk begins if no queue is damaged.

        After a clean stop that is where the records with entries end. After a crash entries may
        be missing before that; all up to a time in the checkpoint exist.
        """
        snapshot = self._snapshot
        if snapshot.noted is not None:
            return max(self._log.begin, snapshot.entered or 0)
        if snapshot.state is State.CLEAN:
            ends = (queue.max_physical() for queue in snapshot.queues.values())
            return max(self._log.begin, *ends, snapshot.entered or 0)
        path = snapshot.root / "checkpoint"
        raw = read_small(path)[: _CHECKPOINT.size] if path.exists() else b""
        if len(raw) < _CHECKPOINT.size:
            return self._log.begin
        certain = min(_CHECKPOINT.unpack(raw)) - _SAFETY_MS
        start, later = self._log.begin, self._log.end
        for queue in snapshot.queues.values():
            start, later = self._narrowed(queue, certain, start, later)
        return start

    def _narrowed(
        self, queue: QueueSnapshot, timestamp: int, start: int, later: int
    ) -> tuple[int, int]:
        """Return the physical offsets of the last record that is known to have been stored until
        `timestamp`, and of the first one known to have come later: those given, or those of records
        of this queue. Only between the two has a record to be looked at: a few, however many queues
        there are."""
        low, high = queue.min_offset, queue.known_end
        while low < high:
            middle = (low + high) // 2
            physical, _ = queue.entry(middle)
            if not start < physical < later:
                is_later = physical >= later
            else:
                place = self._snapshot.place(physical)
                is_later = place is None or place.store_timestamp > timestamp
                if place is not None and place.physical_offset == physical:
                    start, later = (start, physical) if is_later else (physical, later)
            if is_later:
                high = middle
            else:
                low = middle + 1
        return start, later

    def _walk(self, start: int, known: KnownRecords) -> tuple[int, str]:
        """Enter the unknown records from `start` on; return where that ends, and why."""
        at = start
        while (segment := self._log.find(at)) is not None:
            at, reason = self._walk_file(segment, at, known)
            if reason:
                return at, reason
            at = segment.base + segment.size
        return self._log.end, "the files end, or one is missing"

    def _walk_file(self, segment: Segment, start: int, known: KnownRecords) -> tuple[int, str]:
        """Enter the unknown records of a file; return where that ends, and why if too early."""
        view, base = segment.view, segment.base
        topics = TopicNames()
        at = start
        while (at := known.behind(at)) < base + segment.size - MIN_BLANK:
            if peek(view, at - base)[1] == BLANK_MAGIC:
                break
            next_known = known.next(at)
            stop = segment.size if next_known is None else min(segment.size, next_known - base)
            block = read_block(view, base, at - base, stop, topics)
            if block is not None:
                self._enter(segment, block.records, topics)
                at = base + block.end
            if block is None or (block.is_bad and peek(view, at - base)[1] != BLANK_MAGIC):
                return at, _why(view, base, at)
        return at, ""

    def _enter(self, segment: Segment, records: Records, topics: TopicNames) -> None:
        """Enter records of a file into their queues."""
        records = entry_rows(segment.view, records, topics)
        fits = records.queue_id >= 0
        fits &= (records.queue_offset >= 0) & (records.queue_offset < _MAX_OFFSET)
        found = Tail(
            records.queue_offset,
            records.at.astype(np.int64) + segment.base,
            records.size.astype(np.int64),
            store_timestamps(segment.view, records),
        )
        queue = records.topic.astype(np.int64) << 32 | records.queue_id
        order = np.argsort(queue[fits], kind="stable")
        chosen = np.flatnonzero(fits)[order]
        queue = queue[chosen]
        begins = np.flatnonzero(np.diff(queue, prepend=-1))
        for rows in np.split(chosen, begins[1:]):
            if len(rows):
                topic = topics.names[records.topic[rows[0]]]
                rows = rows[found.physical[rows] >= self._deleted.get(topic, 0)]
                if not len(rows):
                    continue
                growing = self._growing(topic, int(records.queue_id[rows[0]]))
                if growing is not None:
                    growing.extend(Tail(*(column[rows] for column in found)))

    @cached_property
    def _deleted(self) -> dict[str, int]:
        """The topics that were deleted, with the physical offset before which their messages are:
        the log still has these."""
        return read_deleted_topics(self._snapshot.root)

    def _growing(self, topic: str, queue_id: int) -> _Growing | None:
        """Return a queue; None for one that there cannot be, or that is not wanted."""
        key = (topic, queue_id)
        growing = self._queues.get(key)
        if growing is not None or not (
            STORED_TOPIC_PATTERN.fullmatch(topic) or is_light_queue(topic)
        ):
            return growing
        queue = self._snapshot.queues.get(key)
        if queue is None and not self._snapshot.choice.queue(*key):
            self._snapshot.listing.add(*key)
            return None
        queue = queue or QueueSnapshot(*key, self._snapshot.queue_segments(*key))
        growing = self._queues[key] = _Growing(queue)
        return growing


def _tell_of_damage(queue: QueueSnapshot) -> None:
    found = queue.tail.offset
    if len(found):
        log.warning(
            "%s/%d: the consume queue is damaged; %d messages at the queue offsets %d to %d were "
            "found in the commit log alone",
            queue.topic,
            queue.queue_id,
            len(found),
            found[0],
            found[-1],
        )
    if queue.max_offset < queue.noted_end:
        log.warning(
            "%s/%d: the messages at the queue offsets %d to %d are missing: when the broker closed "
            "the store, it had them",
            queue.topic,
            queue.queue_id,
            queue.max_offset,
            queue.noted_end - 1,
        )


def _why(view: memoryview, base: int, at: int) -> str:
    """Return why no record can be read at a physical offset in a file."""
    try:
        (_, _, _, _, _, _, physical_offset, *_), *_ = decode_parts(view, at - base)
    except RecordError as error:
        return error.reason
    if physical_offset != at:
        return f"a record that belongs to {physical_offset}"
    return "it reaches into the next record"
