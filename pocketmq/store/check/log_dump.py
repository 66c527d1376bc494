"""Reads the records of a range one after another, and says what cannot be read and goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from pocketmq.message.limits import LIGHT_QUEUE_PREFIX
from pocketmq.message.record import Record, decode
from pocketmq.message.record_layout import RecordError
from pocketmq.store.check.dry_files import DryFiles
from pocketmq.store.check.log_check import LogFile, has_data, list_files
from pocketmq.store.check.queue_check import ranges
from pocketmq.store.check.record_scan import FileEnd, Gap, scan_file
from pocketmq.store.files import MappedFile, Retirement
from pocketmq.store.log.record_blocks import Records, TopicNames
from pocketmq.store.queue.consume_queue import FILLER_SIZE
from pocketmq.store.scan.errors import RecordsLost
from pocketmq.store.scan.planning.snapshot import StoreSnapshot
from pocketmq.store.scan.queues.queue_slice import Rows
from pocketmq.store.scan.queues.queue_snapshot import QueueSnapshot

# A broker stamps records in the order of the log, but its clock may be set back a little.
_CLOCK_STEP_MS: Final = 60_000
NO_END: Final = 1 << 63


class Unreadable(NamedTuple):
    """A place without a record where one should be."""

    where: str
    reason: str


class Span(NamedTuple):
    """Offsets [begin, end): physical offsets of a log, queue offsets of a queue."""

    begin: int = 0
    end: int = NO_END


class LogDump:
    """The records of a commit log that begin within `span`.

    A file is left out if none of its records was stored within `times` (ms, as offsets of a span);
    of the other files all records are given. `flushed` is the physical offset up to which the log
    is known to be on the disk; with `open`, a broker writes after it.
    """

    def __init__(
        self,
        directory: Path,
        file_size: int,
        span: Span,
        times: Span,
        *,
        flushed: int,
        open: bool,
    ) -> None:
        self._file_size = file_size
        self._span = span
        self._times = times
        self._flushed = flushed
        self._open = open
        files, _ = list_files(directory, file_size)
        while files and not has_data(files[-1]):
            files.pop()  # made ahead
        self._files = files
        self._retired = Retirement()

    def __iter__(self) -> Iterator[Record | Unreadable]:
        """A record shares the mapping of its file: do not keep it. Raises OSError."""
        for number, file in enumerate(self._files):
            behind = file.base + self._file_size
            if behind <= self._span.begin or self._ended_before(number):
                continue
            if file.base >= self._span.end or self._began_after(number):
                return
            if not file.size:
                state = "is empty" if file.exists else "is missing"
                yield self._unreadable(file.base, behind, f"{file.path} {state}")
                continue
            try:
                mapped = DryFiles().open(file.path, file.base, file.size)
            except FileNotFoundError:
                continue  # it expired a moment ago
            try:
                yield from self._of_file(file, mapped, last=file is self._files[-1])
            finally:
                self._retired.add(mapped)
                self._retired.sweep()

    def _of_file(
        self, file: LogFile, mapped: MappedFile, *, last: bool
    ) -> Iterator[Record | Unreadable]:
        begin, end = self._span
        base, behind = file.base, file.base + self._file_size
        for found in scan_file(mapped, TopicNames(), whole=file.size == self._file_size):
            if isinstance(found, Records):
                at = found.at.astype(np.int64)
                first, after = np.searchsorted(at, (begin - base, min(end - base, file.size)))
                for place in at[first:after].tolist():
                    yield decode(mapped.view, place, check_crc=False)
                if after < len(at):
                    return
            elif isinstance(found, Gap):
                if last and self._open and base + found.begin >= self._flushed:
                    return  # a write that is under way
                stop = behind if found.end == file.size and not last else base + found.end
                if base + found.begin < end and stop > begin:
                    reason = f"{file.path} at byte {found.begin}: {found.reason}"
                    yield self._unreadable(base + found.begin, stop, reason)
            elif not found.blank and not last and base + found.at < end:
                yield self._unreadable(*_rest(file, found, behind))

    @staticmethod
    def _unreadable(begin: int, end: int, reason: str) -> Unreadable:
        return Unreadable(f"physical offsets {begin} to {end}", reason)

    def _ended_before(self, number: int) -> bool:
        """Return whether all records of a file were stored before the times, according to the next
        file."""
        if not self._times.begin or number + 1 == len(self._files):
            return False
        stored = _first_stored(self._files[number + 1])
        return stored is not None and stored + _CLOCK_STEP_MS < self._times.begin

    def _began_after(self, number: int) -> bool:
        if self._times.end == NO_END:
            return False
        stored = _first_stored(self._files[number])
        return stored is not None and stored - _CLOCK_STEP_MS > self._times.end


class QueueDump:
    """The records of a queue with queue offsets in `span`."""

    def __init__(self, store: StoreSnapshot, queue: QueueSnapshot, span: Span) -> None:
        self._store = store
        self._queue = queue
        self._name = f"{queue.topic}/{queue.queue_id}"
        self._span = span

    def __iter__(self) -> Iterator[Record | Unreadable]:
        """A record shares the mapping of its file. Raises OSError."""
        lost: list[RecordsLost] = []
        part = self._queue.slice().cut(*self._span)
        for rows in part.rows(self._queue.segments, lambda _, error: lost.append(error)):
            yield from map(_of_loss, lost)
            lost.clear()
            yield from self._of_rows(rows)
        yield from map(_of_loss, lost)

    def _of_rows(self, rows: Rows) -> Iterator[Record | Unreadable]:
        fillers = rows.size == FILLER_SIZE
        for begin, end in ranges(rows.offset[fillers]):
            where = f"{self._name}: queue offsets {begin} to {end - 1}"
            yield Unreadable(where, "no message, it was lost")
        rows = rows.take(~fillers)
        for offset, physical in zip(rows.offset.tolist(), rows.physical.tolist(), strict=True):
            try:
                yield self._record(offset, physical)
            except RecordError as error:
                yield Unreadable(
                    f"{self._name}: queue offset {offset}, physical offset {physical}", error.reason
                )

    def _record(self, offset: int, physical: int) -> Record:
        """Return the record of an entry. Raises RecordError."""
        segment = self._store.log.find(physical)
        if segment is None:
            raise RecordError(physical, "the commit log has no such place")
        try:
            record = decode(segment.view, physical - segment.base)
        except FileNotFoundError:
            raise RecordError(physical, "it has expired") from None
        place = record.topic, record.queue_id, record.queue_offset
        light = self._queue.topic.startswith(LIGHT_QUEUE_PREFIX)
        if not light and place != (self._queue.topic, self._queue.queue_id, offset):
            named = f"{record.topic}/{record.queue_id}, queue offset {record.queue_offset}"
            raise RecordError(physical, f"the record there is that of {named}")
        return record


def _of_loss(error: RecordsLost) -> Unreadable:
    where = f"{error.topic}/{error.queue_id}: queue offsets {error.first} to {error.last}"
    return Unreadable(where, error.reason)


def _rest(file: LogFile, found: FileEnd, behind: int) -> tuple[int, int, str]:
    reason = f"{file.path} at byte {found.at}: zeros up to the end of the file"
    return file.base + found.at, behind, reason


def _first_stored(file: LogFile) -> int | None:
    """Return the store timestamp (ms) of the first record of a file; None when it has none."""
    if not file.size:
        return None
    mapped = DryFiles().open(file.path, file.base, file.size)
    try:
        return decode(mapped.view, check_crc=False).store_timestamp
    except RecordError:
        return None
    finally:
        mapped.close()
