"""Looks through the files of a commit log, whatever is wrong with them."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing, suppress
from multiprocessing import get_context
from pathlib import Path
from stat import S_ISREG
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from pocketmq.message.record_crc import DIFFERS
from pocketmq.store.check.dry_files import DryFiles
from pocketmq.store.check.record_scan import (
    FileEnd,
    Found,
    Gap,
    scan_file,
)
from pocketmq.store.config import MAX_FILE_SIZE
from pocketmq.store.log.mapped_file_queue import FILE_NAME
from pocketmq.store.log.record_blocks import (
    IntArray,
    Records,
    TopicNames,
    altered,
    entry_rows,
    properties_places,
    tags_codes,
)

# One takes half a second to start, in which this one scans a gigabyte.
_BYTES_PER_PROCESS: Final = 2 * 1024 * 1024 * 1024
_EVEN: Final = 1024  # sizes that people choose are multiples of it
_MOST_MISSING: Final = 10_000  # files; one that is further away was put there by mistake


Met: TypeAlias = Callable[[int, Records, IntArray], None]


class LogFile(NamedTuple):
    """A file that exists, or should.

    Attributes:
        size: its bytes; 0 if the file is missing.
    """

    path: Path
    base: int
    size: int
    exists: bool


class Damage(NamedTuple):
    """Physical offsets [begin, end) that no record can be read from; `path` holds `begin`."""

    path: Path
    begin: int
    end: int
    reason: str


def common_size(directory: Path, otherwise: int) -> int:
    """Return the size of the files of a run, which are all made alike: `otherwise` if one of them
    has it, else what most have. It is `otherwise`, too, where the size of one file alone shows that
    it was cut. Sizes that no setting allows do not count."""
    files = _numbered(directory)
    sizes = Counter(size for _, size in files if size <= MAX_FILE_SIZE)
    del sizes[0]
    if not sizes or otherwise in sizes:
        return otherwise
    size = max(sizes, key=lambda size: (sizes[size], size))
    if sizes[size] > 1:
        return size
    misfit = any(int(path.name) % size for path, _ in files)
    uneven = bool(size % _EVEN) and otherwise > 0 and not otherwise % _EVEN
    return otherwise if otherwise and (misfit or uneven) else size


def list_files(directory: Path, size: int) -> tuple[list[LogFile], list[Path]]:
    """Return the run of files including those missing in between, and the files outside of the run:
    their names are not multiples of `size`, or too far ahead."""
    found: list[LogFile] = []
    strange = []
    for path, bytes_of_file in _numbered(directory):
        base = int(path.name)
        expected = found[-1].base + size if found else base
        if base % size or (base - expected) // size > _MOST_MISSING:
            strange.append(path)
            continue
        while found and found[-1].base + size < base:
            missing = found[-1].base + size
            found.append(LogFile(directory / f"{missing:020d}", missing, 0, False))
        found.append(LogFile(path, base, bytes_of_file, True))
    return found, strange


def has_data(file: LogFile) -> bool:
    """Return whether anything was written to a file; one that was made ahead is all zeros. Raises
    OSError."""
    if not file.size:
        return False
    mapped = DryFiles().open(file.path, file.base, file.size)
    try:
        return mapped.has_data(0)
    finally:
        mapped.close()


def _numbered(directory: Path) -> list[tuple[Path, int]]:
    """Return the files of a run, and how many bytes each has."""
    found = []
    with suppress(FileNotFoundError, NotADirectoryError):
        for path in sorted(directory.iterdir()):
            if FILE_NAME.fullmatch(path.name):
                with suppress(FileNotFoundError):  # it expired a moment ago
                    status = path.stat()
                    if S_ISREG(status.st_mode):
                        found.append((path, status.st_size))
    return found


class FileScan(NamedTuple):
    """What `scan_file` finds in one file.

    Attributes:
        topics: the names of the topics in it.
        entries: a row for each entry that the records get, and ...
        codes: ... their tags codes, by their properties; for each block of records.
        altered: bytes [begin, end) of records that differ from their own checksums.
    """

    found: list[Found]
    topics: list[str]
    entries: list[Records]
    codes: list[IntArray]
    altered: list[tuple[int, int]]


def scan_path(
    path: Path, base: int, size: int, whole: bool, advanced: Callable[[int], None] = lambda _: None
) -> FileScan | None:
    """Scan a file of the log; None when it is gone. Raises OSError."""
    try:
        mapped = DryFiles().open(path, base, size)
    except FileNotFoundError:  # it expired a moment ago
        return None
    try:
        topics = TopicNames()
        scan = FileScan([], topics.names, [], [], [])
        for found in scan_file(mapped, topics, advanced, whole=whole):
            scan.found.append(found)
            if isinstance(found, Records):
                view = mapped.view
                entries = entry_rows(view, found, topics)
                scan.entries.append(entries)
                scan.codes.append(tags_codes(view, *properties_places(view, entries)))
                wrong = found.rows(altered(view, found))
                begins, sizes = wrong.at.tolist(), wrong.size.tolist()
                scan.altered.extend((at, at + size) for at, size in zip(begins, sizes, strict=True))
        return scan
    finally:
        mapped.close()


class LogCheck:
    """One look through a commit log.

    `flushed` is the physical offset up to which it was on the disk, if that is known. `open`: a
    broker is writing to it. `processes` is how many read its files; by default as many as pay off.

    Attributes:
        files: see `list_files`; without empty ones at the end, which a start removes.
        strange: files that do not belong to the run.
        begin: physical offset of the first byte.
        end: physical offset after the last record.
        records: their number.
        damage: where records are missing, in order.
        altered: records that can be read, but differ from their own checksums.
        torn: physical offset of an incomplete write at the end; None without one.
    """

    def __init__(
        self,
        directory: Path,
        file_size: int,
        *,
        flushed: int | None,
        open: bool,
        advanced: Callable[[int], None] = lambda _: None,
        processes: int | None = None,
    ) -> None:
        self.directory = directory
        self.file_size = file_size
        self.files, self.strange = list_files(directory, file_size)
        while self.files and not self.files[-1].size:
            self.files.pop()
        self.begin = self.end = self._reached = self.files[0].base if self.files else 0
        self.records = 0
        self.damage: list[Damage] = []
        self.altered: list[Damage] = []
        self.torn: int | None = None
        self.topics = TopicNames()
        self._flushed = flushed or 0
        self._open = open
        self._advanced = advanced
        if processes is None:
            processes = min(os.cpu_count() or 1, self.bytes // _BYTES_PER_PROCESS)
        self._processes = processes

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def misfits(self) -> list[LogFile]:
        """Files that differ in size from the others, without other damage."""
        return [
            file
            for file in self.files
            if file.size not in (0, self.file_size)
            and not any(
                place.begin < file.base + self.file_size and file.base < place.end
                for place in self.damage
            )
        ]

    def run(self, met: Met) -> None:
        """Look at every file; `met` gets the base of each, a row for each entry that its records
        get, and the tags codes that follow from their properties. Raises OSError."""
        # A file that was made ahead has nothing in it yet, but its size.
        used = len(self.files)
        while used > 1 and self.files[used - 1].size and not has_data(self.files[used - 1]):
            used -= 1
        files = self.files[:used]
        with closing(self._scanned(files)) as scanned:
            for file in files:
                if file.size:
                    found = next(scanned)
                    if found is not None:
                        self._take(file, found, met, last=file is files[-1])
                else:
                    state = "is empty" if file.exists else "is missing"
                    self._note(file.base, file.base + self.file_size, f"the file {state}")
        self._judge_end()

    def _scanned(self, files: Sequence[LogFile]) -> Generator[FileScan | None]:
        """Return the scan of each file that has bytes; None when it is gone by now. A large log is
        scanned by several processes, since each is busy with Python most of the time."""
        files = [file for file in files if file.size]
        jobs = [
            (file.path, file.base, min(file.size, self.file_size), file.size >= self.file_size)
            for file in files
        ]
        if self._processes < 2 or len(jobs) < 2:
            for job in jobs:
                yield scan_path(*job, self._advanced)
            return
        # Not forked: the process may have threads.
        with ProcessPoolExecutor(self._processes, get_context("spawn")) as pool:
            waiting: deque[Future[FileScan | None]] = deque()
            for number, job in enumerate(jobs):
                waiting.append(pool.submit(scan_path, *job))
                if len(waiting) > self._processes:
                    found = waiting.popleft().result()
                    self._advanced(files[number - self._processes].size)
                    yield found
            for file in files[len(jobs) - len(waiting) :]:
                found = waiting.popleft().result()
                self._advanced(file.size)
                yield found

    def _take(self, file: LogFile, scan: FileScan, met: Met, *, last: bool) -> None:
        base, behind = file.base, file.base + self.file_size
        size = min(file.size, self.file_size)
        blocks = 0
        self.altered += [
            Damage(file.path, base + begin, base + end, DIFFERS) for begin, end in scan.altered
        ]
        for found in scan.found:
            if isinstance(found, Records):
                blocks += 1
                self.records += len(found.at)
                self.end = base + int(found.at[-1]) + int(found.size[-1])
            elif isinstance(found, Gap) and last and self._in_progress(base + found.begin):
                self.end = self._reached = base + found.begin
                break
            elif isinstance(found, Gap) and (found.end < size or not last):
                end = behind if found.end == size else base + found.end
                self._note(base + found.begin, end, found.reason)
            elif isinstance(found, Gap):
                self._torn(base + found.begin, found.reason)
            elif not last and not found.blank:
                self._note(base + found.at, behind, "zeros up to the end of the file")
            elif last:
                self._at_end(base, found)
        if blocks:
            columns = zip(*scan.entries[:blocks], strict=True)
            records = Records(*(np.concatenate(column).astype(np.int64) for column in columns))
            numbers = [self.topics.number(name.encode()) for name in scan.topics]
            records = records._replace(topic=np.array(numbers, np.int64)[records.topic])
            met(base, records, np.concatenate(scan.codes[:blocks]))
        if file.size < self.file_size:
            self._note(
                max(self.end, base), behind,
                f"the file has {file.size} bytes instead of {self.file_size}",
            )  # fmt: skip

    def _in_progress(self, physical_offset: int) -> bool:
        """Return whether what cannot be read may be a write that a running broker has begun."""
        return self._open and physical_offset >= self._flushed

    def _at_end(self, base: int, found: FileEnd) -> None:
        self.end = base + found.at
        self._reached = base + self.file_size if found.blank else self.end

    def _torn(self, begin: int, reason: str) -> None:
        self.end = self._reached = begin
        if begin < self._flushed:
            self._note(begin, self._flushed, reason)
        else:
            self.torn = begin

    def _judge_end(self) -> None:
        """Compare the end with the flushed offset."""
        known = self.damage[-1].end if self.damage else 0
        if not self._open:
            self._note(
                max(self._reached, known), self._flushed,
                "nothing, but the checkpoint says that it was flushed",
            )  # fmt: skip

    def _note(self, begin: int, end: int, reason: str) -> None:
        if self.damage:
            begin = max(begin, self.damage[-1].end)
        if begin >= end:
            return
        path = self.directory / f"{begin // self.file_size * self.file_size:020d}"
        self.damage.append(Damage(path, begin, end, reason))
