"""What a store holds at one moment: its queues, where they end, and what only the log knows.

A consume queue lags behind the commit log after a crash, and a copy of a store may lack its last
bytes. So a snapshot takes of each queue what its entries and the commit log agree on, and then
looks into the commit log for records without an entry (`store.scan.tail`), as the recovery of a
broker would, but changes nothing. While a broker has the store open there is no such looking:
what is committed has an entry, and what has none may still be under way.
"""

from __future__ import annotations

import logging
import os
import struct
from bisect import bisect_left
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from pocketmq.message.record import MIN_RECORD
from pocketmq.message.sysflag import BORN_HOST_V6
from pocketmq.store.config import CONSUME_QUEUE_UNIT as UNIT
from pocketmq.store.files import Files
from pocketmq.store.log.checkpoint import EnteredUpTo, read_entered
from pocketmq.store.queue.entry_array import EntryArray
from pocketmq.store.queue.queue_bounds import Bounds, BoundsFile, BoundsTable
from pocketmq.store.scan.errors import NoStore
from pocketmq.store.scan.queue_end import NO_ENTRIES, fills, last_entries, next_entries
from pocketmq.store.scan.queue_listing import EVERY_QUEUE, QueueChoice, QueueListing
from pocketmq.store.scan.queue_slice import (
    FILLER_SIZE,
    NO_TAIL,
    QueueSlice,
    Tail,
    entries_of,
    queue_directory,
)
from pocketmq.store.scan.scanned_store import ScannedQueue
from pocketmq.store.scan.segments import Mappings, Segments, mapped, undisturbed
from pocketmq.store.scan.store_files import LocalFiles
from pocketmq.store.scan.topic_table import configured_queues
from pocketmq.store.store_lock import ABORT_FILE, is_locked

log = logging.getLogger(__name__)

# queueId, queueOffset, physicalOffset, sysFlag, and the store timestamp behind an IPv4 or an IPv6
# born host.
_PLACE: Final = struct.Struct(">12xi4xqqi16xq4xq")
LIGHT_QUEUE_PREFIX: Final = "%LMQ%"
"""Of topics whose queues hold records that name the queue they were sent to."""
_SCANNED_FILES: Final = 3  # how far back a crash can leave holes, as the reference takes it
_MANY_QUEUES: Final = 256
"""To open as many takes about 40 ms. From there on it is worth asking what the broker noted."""


class State(Enum):
    """How the last process that had the store left it."""

    CLEAN = "clean"
    OPEN = "open"
    CRASHED = "crashed"


class Place(NamedTuple):
    """What the head of a record says about where it belongs."""

    queue_id: int
    queue_offset: int
    physical_offset: int
    store_timestamp: int


class Notes(NamedTuple):
    """What a broker noted of the wanted queues when it closed the store.

    Attributes:
        bounds: where each of them begins and ends. The oldest records may have expired.
        share: the part of all records of the store that they have.
    """

    bounds: BoundsTable
    share: float


class QueueSnapshot:
    """One queue. Its records are those of the entries [min_offset, known_end), then the tail.

    Attributes:
        segments: the files of its consume queue.
        last: the last entries of its consume queue, some of which may lie behind `known_end`.
        tail: set when the commit log has been looked through.
    """

    def __init__(self, topic: str, queue_id: int, segments: Segments) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.segments = segments
        self.min_offset = self.known_end = segments.begin // UNIT
        self.tail: Tail = NO_TAIL
        self.last = NO_ENTRIES

    @property
    def max_offset(self) -> int:
        """Behind the last record."""
        return int(self.tail.offset[-1]) + 1 if len(self.tail.offset) else self.known_end

    def entry(self, offset: int) -> tuple[int, int]:
        """Return the physical offset and size that the entry at a queue offset below `known_end`
        has; those of a filler where its file is missing."""
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

    def max_physical(self) -> int:
        """Return the physical offset behind the record of the last entry; -1 without entries."""
        for offset in range(self.known_end - 1, self.min_offset - 1, -1):
            physical, size = self.entry(offset)
            if size != FILLER_SIZE:
                return physical + size
        return -1

    def first_from(self, physical: int, low: int | None = None) -> int:
        """Return the lowest offset ≥ `low` whose entry points at `physical` or behind it."""
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
        """Everything there is of it."""
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
        for segment in self.segments.all[-_SCANNED_FILES:]:
            last = last_entries(segment.path, segment.size, gapless=not crashed)
            self.known_end = segment.base // UNIT + last.end
            if last.end:
                self.last = last.behind(segment.base // UNIT)
            if last.end * UNIT < segment.size:
                break

    def advance(self) -> bool:
        """Take the entries that a broker has added since, if the queue is the one it was and that
        is one small read; else return False, and the queue has to be read anew."""
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
        point behind its end, be half written, or remain from an earlier life of the topic. Return
        how many are left out at the end."""
        if log.begin:
            self.min_offset = self.first_from(log.begin)
        self.min_offset = self.after_fillers(self.min_offset)
        end = self.first_from(log.end, self.min_offset)
        while end > self.min_offset and not self._fits(log, end - 1):
            end -= 1
        dropped = self.known_end - end
        self.known_end = end
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
        # Fillers may stand anywhere; taken like the record behind them they keep the order.
        offset = self.after_fillers(offset)
        return offset == self.known_end or self.entry(offset)[0] >= physical


class StoreSnapshot:
    """The store at `root` as its consume queues know it now; `tail.take_snapshot` completes it.

    Args:
        choice: the queues that are needed. Others are not opened, unless that is how to find out
            where all entries end.
        before: an earlier snapshot with the same choice. Both must be of the same run of a broker
            that has the store open. Its queues are taken over, and must not be used any more.

    Attributes:
        listing: which queues there are.
        log: the files of the commit log.
        entered: the physical offset before which all records are in their queues; None where that
            has to be found out.
        noted: set if there are many queues and the notes can be relied on; none is open then.

    Raises:
        NoStore: there is none.
    """

    def __init__(
        self, root: Path, choice: QueueChoice = EVERY_QUEUE, before: StoreSnapshot | None = None
    ) -> None:
        self.root = root
        check_store(root)
        self.state = state_of(root)
        self._mappings: Mappings = before._mappings if before else Mappings()
        self.listing = QueueListing(root / "consumequeue")
        # Without a queue, none of the records is in one, whatever the checkpoint says.
        closed = self.state is State.CLEAN and self.listing
        entered = read_entered(root / "checkpoint") if closed else None
        self.entered = entered.offset if entered else None
        # Where the end of all entries has to be found out, it takes all queues.
        is_whole = self.state is not State.OPEN and self.entered is None
        self.choice = EVERY_QUEUE if is_whole else choice
        self._chosen = list(self.listing.chosen(self.choice))
        self.noted = self._read_notes(entered) if entered else None
        if self.noted is not None:
            return
        # The queues first: what they point at is in the log by then.
        known: dict[tuple[str, int], QueueSnapshot] = before.queues if before else {}
        self.queues = {name: self._read_queue(*name, known.get(name)) for name in self._chosen}
        self.log = mapped(root / "commitlog", self._mappings)
        if before and before.log.begin != self.log.begin:
            self.queues = {name: self._read_queue(*name) for name in self.queues}
        for queue in self.queues.values():
            self._trim(queue)

    @cached_property
    def queues(self) -> dict[tuple[str, int], QueueSnapshot]:
        """The queues by topic and queue id. Where they are `noted`, they are opened now."""
        queues = undisturbed(lambda: {name: self._read_queue(*name) for name in self._chosen})
        for queue in queues.values():
            self._trim(queue)
        return queues

    def _read_notes(self, entered: EnteredUpTo) -> Notes | None:
        if len(self._chosen) <= _MANY_QUEUES or not entered.queue_bounds:
            return None
        self.log = mapped(self.root / "commitlog", self._mappings)
        if self.log.end < entered.offset:  # a copy that lacks its end
            return None
        found = BoundsFile(Files(), self.root).load(entered.queue_bounds, clean=True)
        if not found.current:
            return None
        noted: dict[str, dict[int, Bounds]] = {}
        for topic, queue_id in self._chosen:
            bounds = found.table.get(topic, {}).get(queue_id)
            if bounds is None or not bounds.is_known or bounds.physical > entered.offset:
                return None
            noted.setdefault(topic, {})[queue_id] = bounds
        return Notes(noted, _records(noted) / max(_records(found.table), 1))

    @cached_property
    def files(self) -> LocalFiles:
        """Where readers find what a plan speaks of."""
        return LocalFiles(self.root)

    @property
    def broker_name(self) -> str:
        """The name of the broker."""
        return self.files.broker_name

    @cached_property
    def configured(self) -> dict[str, int]:
        """How many queues the broker has of each topic, also of those without messages."""
        return configured_queues(self.root)

    def first_stored_from(self, queue: ScannedQueue, timestamp: int) -> int:
        """Return the queue offset of the first record stored at `timestamp` (ms) or later."""
        return first_stored_from(self.log, queue, timestamp)

    def place(self, physical: int) -> Place | None:
        """Return what the record at `physical` says of itself; None where there can be none."""
        return place_in(self.log, physical)

    def queue_segments(self, topic: str, queue_id: int) -> Segments:
        """Return the files of a consume queue."""
        return mapped(queue_directory(self.root, topic, queue_id), self._mappings)

    def _read_queue(
        self, topic: str, queue_id: int, before: QueueSnapshot | None = None
    ) -> QueueSnapshot:
        if before is not None and before.advance():
            return before
        queue = QueueSnapshot(topic, queue_id, self.queue_segments(topic, queue_id))
        queue.find_end(crashed=self.state is State.CRASHED)
        return queue

    def _trim(self, queue: QueueSnapshot) -> None:
        dropped = queue.trim(self.log)
        if dropped and self.state is not State.OPEN:
            log.warning(
                "%s/%d: the last %d entries of the consume queue point at no record of it",
                queue.topic,
                queue.queue_id,
                dropped,
            )


def _records(table: BoundsTable) -> int:
    return sum(
        bounds.end - bounds.begin
        for queues in table.values()
        for bounds in queues.values()
        if bounds.begin >= 0
    )


def first_stored_from(log: Segments, queue: ScannedQueue, timestamp: int) -> int:
    """Return the queue offset of the first record stored at `timestamp` (ms) or later."""
    low, high = queue.min_offset, queue.known_end
    while low < high:
        middle = (low + high) // 2
        offset = queue.after_fillers(middle)
        place = place_in(log, queue.entry(offset)[0]) if offset < queue.known_end else None
        if place is None or place.store_timestamp >= timestamp:
            high = middle
        else:
            low = middle + 1
    if low < queue.known_end:
        return low
    tail = queue.tail
    at = int(np.searchsorted(tail.store_timestamp, timestamp))
    return int(tail.offset[at]) if at < len(tail.offset) else queue.max_offset


def place_in(log: Segments, physical: int) -> Place | None:
    """Return what the record at `physical` says of itself; None where there can be none."""
    segment = log.find(physical)
    if segment is None or physical - segment.base > segment.size - MIN_RECORD:
        return None
    queue_id, queue_offset, own, sys_flag, time_v4, time_v6 = _PLACE.unpack_from(
        segment.view, physical - segment.base
    )
    return Place(queue_id, queue_offset, own, time_v6 if sys_flag & BORN_HOST_V6 else time_v4)


def check_store(root: Path) -> None:
    """Raise NoStore unless `root` is the root directory of a store."""
    if not (root / "commitlog").is_dir():
        raise NoStore(root)


def state_of(root: Path) -> State:
    """Return how the last process that had the store at `root` left it."""
    abort = root / ABORT_FILE
    if not abort.exists():
        return State.CLEAN
    text = abort.read_text("ascii", "replace").strip()
    if text == str(os.getpid()) or is_locked(root):
        return State.OPEN
    return State.CRASHED
