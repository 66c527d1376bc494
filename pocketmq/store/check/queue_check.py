"""Compares consume queues with the records of the commit log."""

from __future__ import annotations

import itertools
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pocketmq.message.limits import SCHEDULE_TOPIC, STORED_TOPIC_PATTERN
from pocketmq.message.multi_dispatch import is_light_queue
from pocketmq.store.check.log_check import common_size
from pocketmq.store.encoding.entry_array import ENTRY_DTYPE, EntryArray
from pocketmq.store.encoding.queue_entry import CONSUME_QUEUE_UNIT as UNIT
from pocketmq.store.file_copies import data_extents
from pocketmq.store.log.mapped_file_queue import FILE_NAME
from pocketmq.store.log.record_blocks import Records, TopicNames
from pocketmq.store.queue.consume_queue import FILLER_SIZE

_KEPT: Final = 256  # files whose entries stay in memory
_LEAST_CODE: Final = -(1 << 31)  # lower values are addresses in an extended queue
_NOTHING: Final = np.zeros(0, ENTRY_DTYPE)


class BadFile(NamedTuple):
    """A file of a queue that keeps a broker from starting."""

    path: Path
    reason: str


class Disagreement(NamedTuple):
    """Queue offsets [begin, end) whose entries do not fit the log."""

    topic: str
    queue_id: int
    begin: int
    end: int
    reason: str


class _Entries:
    """The entries in the first `size` bytes of queue files; those that were used last stay in
    memory."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._recent: OrderedDict[Path, EntryArray] = OrderedDict()

    def of(self, path: Path) -> EntryArray:
        found = self._recent.get(path)
        if found is None:
            try:
                found = _entries(path, self._size)
            except FileNotFoundError:  # it expired a moment ago
                found = _NOTHING
            self._recent[path] = found
            if len(self._recent) > _KEPT:
                self._recent.popitem(last=False)
        else:
            self._recent.move_to_end(path)
        return found


def _entries(path: Path, most: int) -> EntryArray:
    """Return the entries in the first `most` bytes of a file without the zeros at its end, which
    may be 6 MB and no data."""
    with path.open("rb") as file:
        extents = data_extents(file.fileno(), 0, min(most, os.fstat(file.fileno()).st_size))
        end = max((end for _, end in extents), default=0)
        file.seek(0)  # the look for holes has moved it
        return np.fromfile(file, ENTRY_DTYPE, -(-end // UNIT))


def queue_directories(directory: Path) -> list[Path]:
    """Return the directories of the queues that a broker opens."""
    return [
        path
        for path in sorted(directory.glob("*/*/"))
        if path.name.isdecimal()
        and (STORED_TOPIC_PATTERN.fullmatch(path.parent.name) or is_light_queue(path.parent.name))
    ]


def queue_file_size(directories: Sequence[Path], otherwise: int) -> int:
    """Return the size of the files in most of these directories."""
    sizes = [common_size(path, 0) for path in directories]
    return max(set(sizes) - {0}, key=sizes.count, default=otherwise)


class QueueFiles:
    """The files of one queue.

    Attributes:
        begin, end: the queue offsets that have entries, as they were found.
        not_entered: the number of messages of the log that belong at `end` or later; `missing` of
            them should have been entered.
        mistagged: queue offsets [begin, end) whose entries lead to their messages, but have other
            tags codes than these.
    """

    def __init__(
        self, topic: str, queue_id: int, directory: Path, size: int, entries: _Entries
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.directory = directory
        self.bad: list[BadFile] = []
        self._size = size
        self._entries = entries
        self.not_entered = self.missing = 0
        self._seen: list[tuple[int, int]] = []  # offsets that a record agrees with
        self.mistagged: list[tuple[int, int]] = []
        self._wrong: list[tuple[int, int]] = []
        self._older: list[tuple[int, int]] = []  # entries of later records, it seems
        self.files = self._list()
        self.begin = self.files[0] // UNIT if self.files else 0
        self._last_physical = -1
        self.end = self._find_end()

    def _list(self) -> list[int]:
        paths = sorted(
            p for p in self.directory.iterdir() if FILE_NAME.fullmatch(p.name) and p.is_file()
        )
        while paths and not paths[-1].stat().st_size:
            paths.pop()
        bases: list[int] = []
        for path in paths:
            size, base = path.stat().st_size, int(path.name)
            if not size:
                self.bad.append(BadFile(path, "the file is empty, but others follow it"))
            elif size != self._size:
                reason = f"the file has {size} bytes instead of {self._size}"
                self.bad.append(BadFile(path, reason))
            elif base % self._size or (bases and base != bases[-1] + self._size):
                self.bad.append(BadFile(path, "the file before it is missing"))
            bases.append(base)
        return bases

    def _find_end(self) -> int:
        for base in reversed(self.files):
            entries = self._entries.of(self._path(base))
            used = np.flatnonzero(entries["size"] > 0)
            if len(used):
                self._last_physical = int(entries["physical"][used[-1]])
                return base // UNIT + int(used[-1]) + 1
        return self.begin

    def _path(self, base: int) -> Path:
        return self.directory / f"{base:020d}"

    def at(self, offsets: npt.NDArray[np.int64]) -> EntryArray:
        """Return the entries of some offsets; zeros where an entry is missing."""
        found = np.zeros(len(offsets), ENTRY_DTYPE)
        per_file = self._size // UNIT
        files, numbers = np.divmod(offsets, per_file)
        for file in np.unique(files).tolist():
            base = file * self._size  # not in numpy: a damaged record may have any offset
            entries = self._entries.of(self._path(base)) if base in self.files else _NOTHING
            rows = np.flatnonzero((files == file) & (numbers < len(entries)))
            found[rows] = entries[numbers[rows]]
        return found

    def leads_to(self, offset: int, physical: int) -> bool:
        """Return whether the entry of a queue offset points at a physical offset."""
        if not self.begin <= offset < self.end:
            return False
        return int(self.at(np.array([offset]))["physical"][0]) == physical

    def file_of(self, offset: int) -> int:
        """Return the first queue offset of the file that an offset is in."""
        return offset - offset % (self._size // UNIT)

    def is_own(self, first: int, log_begin: int) -> bool:
        """Return whether the file that begins at a queue offset is this queue's: most of its
        entries lead to their messages, of those that the log, which begins at `log_begin`, has not
        expired."""
        entries = self._entries.of(self._path(first * UNIT))
        alive = np.count_nonzero((entries["size"] > 0) & (entries["physical"] >= log_begin))
        behind = first + self._size // UNIT
        agreeing = sum(max(0, min(end, behind) - max(begin, first)) for begin, end in self._seen)
        return 2 * agreeing >= int(alive)

    def has_place_for(self, offset: int, physical: int) -> bool:
        """Return whether the message of a queue offset may be at a physical offset: its own entry
        says so, or for an offset outside of the entries, the first or the last entry."""
        if offset >= self.end:
            return physical > self._last_physical
        if offset >= self.begin:
            return self.leads_to(offset, physical)
        return physical < int(self.at(np.array([self.begin]))["physical"][0])

    def is_in_log(self, offset: int) -> bool:
        """Return whether the log has the message of an offset, though the entry does not lead to
        it."""
        return any(begin <= offset < end for begin, end in (*self._wrong, *self._older))

    def compare(
        self,
        offsets: npt.NDArray[np.int64],
        physical: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        codes: npt.NDArray[np.int64],
        entered: int,
        deleted: int,
    ) -> None:
        """Compare the entries with the records of one commit-log file, whose properties give
        `codes`. Those before the physical
        offset `entered` have entries, but those before `deleted` need none."""
        entries = self.at(offsets)
        fits = (entries["physical"] == physical) & (entries["size"] == sizes)
        self._seen += ranges(offsets[fits])
        if self.topic != SCHEDULE_TOPIC:  # whose entries say when a message is due
            code = entries["tags_code"]
            self.mistagged += ranges(offsets[fits & (code != codes) & (code >= _LEAST_CODE)])
        others = ~fits & (physical >= deleted)
        # An entry of a later record: the topic was deleted and recreated, and the record is of its
        # earlier life. If the entry is damaged instead, no record agrees with it.
        older = others & (entries["physical"] > physical) & (entries["size"] > 0)
        self._older += ranges(offsets[older])
        wrong = offsets[others & ~older]
        # One before the record of the last entry is of an earlier life, too.
        behind = others & ~older & (offsets >= self.end) & (physical > self._last_physical)
        self.not_entered += int(np.count_nonzero(behind))
        self.missing += int(np.count_nonzero(behind & (physical < entered)))
        self._wrong += ranges(wrong[wrong < self.end])

    def _with_entries(self, begin: int, end: int) -> Iterator[npt.NDArray[np.int64]]:
        """Return the offsets [begin, end) that have files, by file: one may be far away."""
        for base in self.files:
            first, behind = base // UNIT, (base + self._size) // UNIT
            if max(first, begin) < min(behind, end):
                yield np.arange(max(first, begin), min(behind, end))

    def disagreements(self, log_begin: int, log_end: int, *, open: bool) -> list[Disagreement]:
        """Return what does not fit, once every record was compared. Entries of records before
        `log_begin` have expired; with `open`, those after `log_end` were made in the meantime."""
        found = [
            Disagreement(self.topic, self.queue_id, *each, "the entry does not lead to its message")
            for each in ([] if open else self._wrong)
        ]
        lost, expired = [], self.begin
        at = self.begin
        for begin, end in [*sorted(self._seen), (self.end, self.end)]:
            for offsets in self._with_entries(at, begin):
                entries = self.at(offsets)
                real = (entries["size"] != FILLER_SIZE) & (entries["size"] > 0)
                old = offsets[real & (entries["physical"] < log_begin)]
                if len(old):
                    expired = int(old[-1])
                real &= entries["physical"] >= log_begin
                if open:
                    real &= entries["physical"] < log_end
                lost += ranges(offsets[real])
            at = max(at, end)
        return found + [
            Disagreement(
                self.topic, self.queue_id, max(begin, expired), end, "no message at its place"
            )
            for begin, end in lost
            if end > expired
        ]


class QueueCheck:
    """All queues of a store.

    Attributes:
        queues: by topic and queue id.
        unknown: topics and queue ids of records without a queue, and the number of records; mostly
            of deleted topics.
        missing: those that have records before `entered`.
    """

    def __init__(
        self,
        directory: Path,
        otherwise: int,
        foreign: frozenset[str],
        entered: int,
        deleted: Mapping[str, int],
    ) -> None:
        """`otherwise` is the file size to use where there are no files. The queues of `foreign`
        topics are of another kind. Messages before the physical offset `entered` are in their
        queues; those of a `deleted` topic before its physical offset need not be."""
        self._foreign = foreign
        self._entered = entered
        self._deleted = deleted
        self.queues: dict[tuple[str, int], QueueFiles] = {}
        self.unknown: dict[tuple[str, int], int] = {}
        self.missing: set[tuple[str, int]] = set()
        paths = queue_directories(directory)
        self.file_size = queue_file_size(paths, otherwise)
        entries = _Entries(self.file_size)
        for path in paths:
            key = path.parent.name, int(path.name)
            self.queues[key] = QueueFiles(*key, path, self.file_size, entries)

    @property
    def entries(self) -> int:
        """The number of entries."""
        return sum(queue.end - queue.begin for queue in self.queues.values())

    @property
    def not_entered(self) -> int:
        """The number of messages of the log that belong after the ends of their queues."""
        return sum(queue.not_entered for queue in self.queues.values())

    @property
    def bad_files(self) -> list[BadFile]:
        """Files that keep a broker from starting."""
        return [bad for queue in self.queues.values() for bad in queue.bad]

    def compare(
        self, topics: TopicNames, base: int, records: Records, codes: npt.NDArray[np.int64]
    ) -> None:
        """Compare the entries of the commit-log file that begins at `base`, a row each; `codes` are
        their tags codes."""
        order = np.lexsort((records.at, records.queue_id, records.topic))
        records, codes = records.rows(order), codes[order]
        changes = (np.diff(records.topic) != 0) | (np.diff(records.queue_id) != 0)
        bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(records.at)]
        for first, behind in itertools.pairwise(bounds):
            if first == behind:
                continue
            part = records.rows(slice(first, behind))
            key = topics.names[int(part.topic[0])], int(part.queue_id[0])
            queue = self.queues.get(key)
            if key[0] in self._foreign:
                continue
            physical, deleted = base + part.at, self._deleted.get(key[0], 0)
            if queue is not None:
                queue.compare(
                    part.queue_offset, physical, part.size, codes[first:behind], self._entered,
                    deleted,
                )  # fmt: skip
            elif len(physical := physical[physical >= deleted]):
                self.unknown[key] = self.unknown.get(key, 0) + len(physical)
                if int(physical[0]) < self._entered:
                    self.missing.add(key)

    def disagreements(self, log_begin: int, log_end: int, *, open: bool) -> list[Disagreement]:
        """See `QueueFiles.disagreements`."""
        return [
            each
            for queue in self.queues.values()
            for each in queue.disagreements(log_begin, log_end, open=open)
        ]


def ranges(offsets: npt.NDArray[Any]) -> list[tuple[int, int]]:
    """Return rising numbers as ranges without gaps."""
    if not len(offsets):
        return []
    breaks = np.flatnonzero(np.diff(offsets) != 1)
    begins = offsets[np.concatenate(([0], breaks + 1))]
    ends = offsets[np.concatenate((breaks, [len(offsets) - 1]))] + 1
    return list(zip(begins.tolist(), ends.tolist(), strict=True))
