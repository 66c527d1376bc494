"""What a store holds at one moment: its queues, where they end, and what only the log knows.

A consume queue lags after a crash, and a copy of a store may lack its last bytes. So a snapshot
takes of each queue what its entries and the commit log agree on, and then searches the commit log
for records without an entry (`store.scan.tail`), as the recovery of a broker would, but changes
nothing. While a broker has the store open this search is left out: what is committed has an entry,
and a record without one may still be under way.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
from collections import Counter
from dataclasses import replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from pocketmq.store.encoding.queue_entry import CONSUME_QUEUE_UNIT as UNIT
from pocketmq.store.files import read_small
from pocketmq.store.foreign_store import check_readable
from pocketmq.store.log.checkpoint import EnteredUpTo, read_entered
from pocketmq.store.queue.bounds_text import BOUNDS_FILE, opened
from pocketmq.store.scan.continuity import KnownQueue, Replaced, compare, mark_of_empty, missing
from pocketmq.store.scan.errors import NoStore
from pocketmq.store.scan.queues.queue_listing import EVERY_QUEUE, QueueChoice, QueueListing
from pocketmq.store.scan.queues.queue_slice import queue_directory
from pocketmq.store.scan.queues.queue_snapshot import Place, QueueSnapshot, place_in
from pocketmq.store.scan.queues.segments import Mappings, Segments, mapped, reading, undisturbed
from pocketmq.store.scan.records.topic_table import configured_queues, created_offsets, local_files
from pocketmq.store.scan.scanned_store import ScannedQueue
from pocketmq.store.scan.store_files import LocalFiles
from pocketmq.store.scan.stream_offsets import Mark
from pocketmq.store.store_lock import ABORT_FILE, is_locked

log = logging.getLogger(__name__)

_MANY_QUEUES: Final = 256
"""Opening this many takes about 40 ms. From there on it is worth asking what the broker noted."""

_Noted: TypeAlias = tuple[int, int, int, int]
"""The numbers of one queue in the file `queuebounds`: see `store.queue.queue_bounds`."""


class State(Enum):
    """How the last process that had the store left it."""

    CLEAN = "clean"
    OPEN = "open"
    CRASHED = "crashed"


class NotedBounds(NamedTuple):
    """What a broker noted of one queue, in queue offsets.

    Attributes:
        begin: at which its first file begins; -1 without a file.
        end: after the last entry.
        physical: the physical offset after the last entry's record; -1 without an entry.
    """

    begin: int
    end: int
    physical: int


class Notes(NamedTuple):
    """What a broker noted of the wanted queues when it closed the store.

    Attributes:
        bounds: where each of them begins and ends. The oldest records may have expired.
        share: the part of all records of the store that they have.
    """

    bounds: dict[str, dict[int, NotedBounds]]
    share: float


class StoreSnapshot:
    """The store at `root` as its consume queues know it now; `tail.take_snapshot` completes it.

    Args:
        choice: the queues that are needed. Others are not opened, unless that is how to find out
            where all entries end.
        before: an earlier snapshot with the same choice. Both must be of the same run of a broker
            that has the store open. Its queues are taken over, and must not be used any more.

    Attributes:
        listing: the existing queues.
        log: the files of the commit log.
        entered: the physical offset before which all records are in their queues; None if that has
            to be found out.
        noted: set if the queues are many and the notes can be relied on; no queue is open then.

    Raises:
        NoStore: no store at `root`.
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
        # The queues first: then the log already has what they point at.
        known: dict[tuple[str, int], QueueSnapshot] = before.queues if before else {}
        self.queues = {name: self._read_queue(*name, known.get(name)) for name in self._chosen}
        self.log = mapped(root / "commitlog", self._mappings)
        if before and before.log.begin != self.log.begin:
            self.queues = {name: self._read_queue(*name) for name in self.queues}
        for queue in self.queues.values():
            self._trim(queue)
        if self.state is not State.OPEN:
            self._tell_of_empty_files()
            self._find_misfits()
        if entered and entered.queue_bounds:
            self._compare_with_notes(_noted_in(root / BOUNDS_FILE, entered.queue_bounds))

    def _tell_of_empty_files(self) -> None:
        """Log which files at the begin of the commit log have lost their content. The others are
        seen when their records are read; an empty one at the end was just made."""
        for path in (self.root / "commitlog").iterdir():
            if path.name.isdecimal() and int(path.name) < self.log.begin and path.is_file():
                log.warning(
                    "%s is empty: the messages at the physical offsets %d to %d are missing",
                    path,
                    int(path.name),
                    self.log.begin - 1,
                )

    def _find_misfits(self) -> None:
        """Find queues with a file that has another size than most: it was cut or replaced."""
        sizes = {
            name: {segment.size for segment in queue.segments.all}
            for name, queue in self.queues.items()
        }
        usual = Counter(itertools.chain.from_iterable(sizes.values())).most_common(1)
        for name, found in sizes.items():
            self.queues[name].is_damaged |= any(size != usual[0][0] for size in found)

    def _compare_with_notes(self, table: dict[str, dict[str, _Noted]]) -> None:
        """Find queues that end before the end that their broker noted, or are gone."""
        for topic, noted in table.items():
            for number, (begin, end, physical, _) in noted.items():
                name = topic, int(number)
                # The rest has expired.
                if physical <= self.log.begin or not self.choice.queue(*name):
                    continue
                queue = self.queues.get(name)
                if queue is None:
                    queue = self.queues[name] = QueueSnapshot(*name, self.queue_segments(*name))
                    self.listing.add(*name)
                if queue.known_end < end:
                    queue.is_damaged, queue.noted_end = True, end
                found = queue.segments.begin // UNIT
                if queue.segments.all and 0 <= begin < found:
                    log.warning(
                        "%s/%d: the entries at the queue offsets %d to %d are missing: when the "
                        "broker closed the store, it had them",
                        *name,
                        begin,
                        found - 1,
                    )

    @cached_property
    def queues(self) -> dict[tuple[str, int], QueueSnapshot]:
        """The queues by topic and queue id. If they are `noted`, they are opened now."""
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
        table = _noted_in(self.root / BOUNDS_FILE, entered.queue_bounds)
        noted: dict[str, dict[int, NotedBounds]] = {}
        records = 0
        for topic, queue_id in self._chosen:
            row = table.get(topic, {}).get(str(queue_id))
            if row is None:
                return None
            begin, end, physical, _ = row
            if end < 0 or physical > entered.offset:
                return None
            noted.setdefault(topic, {})[queue_id] = NotedBounds(begin, end, physical)
            records += _records(row)
        everything = sum(_records(row) for queues in table.values() for row in queues.values())
        return Notes(noted, records / max(everything, 1))

    @cached_property
    def files(self) -> LocalFiles:
        """Where readers find the files that a plan refers to."""
        return replace(local_files(self.root), crashed=self.state is State.CRASHED)

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

    def log_begin(self, queue: ScannedQueue) -> int:
        """Return the physical offset at which the log begins."""
        return self.log.begin

    def mark(self, queue: ScannedQueue, offset: int) -> Mark | None:
        """Return the mark of the record before a queue offset, or of the record at it if the
        previous one has expired, or that there is neither; None if neither can be read."""
        known = self.queues[queue.topic, queue.queue_id]
        for at in (offset - 1, offset):
            found = self._mark_at(known, at)
            if found and found.stored:
                return found
        return mark_of_empty(offset, queue.min_offset, queue.max_offset)

    def replaced(self, topic: str, queue_id: int, offset: int, mark: Mark) -> Replaced | None:
        """Return what has replaced the queue that a mark was taken of; None if it is the same, or
        if that cannot be told."""
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            return missing(mark, self.log.begin)
        found = self._mark_at(queue, mark.offset)
        if found and not found.stored:  # expired: only its entry is left
            found = found._replace(stored=mark.stored)
        first = self._mark_at(queue, queue.min_offset)
        created = 0 if found else self._created.get(topic, 0)
        bounds = queue.min_offset, queue.max_offset
        return compare(offset, mark, KnownQueue(*bounds, first, found, created))

    @cached_property
    def _created(self) -> dict[str, int]:
        return created_offsets(self.root)

    def _mark_at(self, queue: QueueSnapshot, offset: int) -> Mark | None:
        """Return the mark of a queue offset; it was stored at 0 if the log does not have it."""
        with contextlib.suppress(FileNotFoundError):
            physical = queue.physical_of(offset)
            if physical is not None:
                place = self.place(physical)
                is_there = place is not None and place.physical_offset == physical
                return Mark(offset, physical, place.store_timestamp if place and is_there else 0)
        return None

    def place(self, physical: int) -> Place | None:
        """Return the fields of the record at `physical`; None if none can be there."""
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
                "%s/%d: the last %d entries of the consume queue point at no record of it; they "
                "begin at queue offset %d",
                queue.topic,
                queue.queue_id,
                dropped,
                queue.known_end,
            )


def _noted_in(path: Path, digest: int) -> dict[str, dict[str, _Noted]]:
    """Return what a broker noted of its queues when it closed the store; nothing if the file is
    missing, or its digest differs."""
    try:
        found, body = opened(read_small(path))
        return dict(json.loads(body)) if found == digest else {}
    except (FileNotFoundError, ValueError):
        return {}


def _records(noted: _Noted) -> int:
    begin, end, _, _ = noted
    return end - begin if begin >= 0 else 0


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


def check_store(root: Path) -> None:
    """Check that `root` is the root directory of a store. Raises NoStore, ForeignStore,
    UnreadableFile."""
    with reading(root):
        check_readable(root)
        has_log = (root / "commitlog").is_dir()
    if not has_log:
        raise NoStore(root)


def run_of(root: Path) -> tuple[bytes, int]:
    """Return the identity of one run of a broker: the abort file, which it makes when it has opened
    the store; its content and time (ns)."""
    with contextlib.suppress(FileNotFoundError):
        return read_small(root / ABORT_FILE), (root / ABORT_FILE).stat().st_mtime_ns
    return b"", 0


def state_of(root: Path) -> State:
    """Return how the last process that had the store at `root` left it."""
    abort = root / ABORT_FILE
    if not abort.exists():
        return State.CLEAN
    text = read_small(abort).decode("ascii", "replace").strip()
    if text == str(os.getpid()) or is_locked(root):
        return State.OPEN
    return State.CRASHED
