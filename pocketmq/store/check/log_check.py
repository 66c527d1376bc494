"""Looks through the files of a commit log, whatever is wrong with them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from pocketmq.store.check.dry_files import DryFiles
from pocketmq.store.check.record_scan import FileEnd, Gap, Records, TopicNames, scan_file

_NAME: Final = re.compile(r"[0-9]{20}")
_MOST_MISSING: Final = 10_000  # files; one that is further away was put there by mistake


class LogFile(NamedTuple):
    """A file that is there, or should be.

    Attributes:
        size: its bytes; 0 also where there is none.
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
    """Return the size that most files of a run have: they are all made alike."""
    sizes = Counter(path.stat().st_size for path in _numbered(directory))
    del sizes[0]
    return max(sizes, key=lambda size: (sizes[size], size)) if sizes else otherwise


def list_files(directory: Path, size: int) -> tuple[list[LogFile], list[Path]]:
    """Return the run of files with those that are missing in between, and what is not part of it:
    files with the name of no multiple of `size`."""
    found: list[LogFile] = []
    strange = []
    for path in _numbered(directory):
        base = int(path.name)
        expected = found[-1].base + size if found else base
        if base % size or (base - expected) // size > _MOST_MISSING:
            strange.append(path)
            continue
        while found and found[-1].base + size < base:
            missing = found[-1].base + size
            found.append(LogFile(directory / f"{missing:020d}", missing, 0, False))
        found.append(LogFile(path, base, path.stat().st_size, True))
    return found, strange


def _has_data(file: LogFile) -> bool:
    if not file.size:
        return False
    mapped = DryFiles().open(file.path, file.base, file.size)
    try:
        return mapped.has_data(0)
    finally:
        mapped.close()


def _numbered(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if _NAME.fullmatch(path.name))


class LogCheck:
    """One look through a commit log.

    `flushed` is the physical offset up to which it was on the disk, if that is known. `open`: a
    broker is writing to it.

    Attributes:
        files: see `list_files`; without empty ones at the end, which a start removes.
        strange: files that do not belong to the run.
        begin: physical offset of the first byte.
        end: behind the last record.
        records: how many there are.
        damage: where records are missing, in order.
        torn: physical offset of what was not written completely at the end; None without it.
    """

    def __init__(
        self,
        directory: Path,
        file_size: int,
        *,
        flushed: int | None,
        open: bool,
        advanced: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.directory = directory
        self.file_size = file_size
        self.files, self.strange = list_files(directory, file_size)
        while self.files and not self.files[-1].size:
            self.files.pop()
        self.begin = self.end = self._reached = self.files[0].base if self.files else 0
        self.records = 0
        self.damage: list[Damage] = []
        self.torn: int | None = None
        self.topics = TopicNames()
        self._flushed = flushed or 0
        self._open = open
        self._advanced = advanced

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def run(self, met: Callable[[int, Records], None]) -> None:
        """Look at every file; `met` gets the base and the records of each. Raises OSError."""
        # A file that was made ahead has nothing in it yet.
        used = len(self.files)
        while used > 1 and not _has_data(self.files[used - 1]):
            used -= 1
        for number, file in enumerate(self.files[:used], 1):
            if file.size:
                self._look_at(file, met, last=number == used)
            else:
                state = "is empty" if file.exists else "is missing"
                self._note(file.base, file.base + self.file_size, f"the file {state}")
        self._judge_end()

    def _look_at(self, file: LogFile, met: Callable[[int, Records], None], *, last: bool) -> None:
        base, behind = file.base, file.base + self.file_size
        try:
            mapped = DryFiles().open(file.path, base, file.size)
        except FileNotFoundError:  # it expired a moment ago
            return
        try:
            blocks = []
            whole = file.size == self.file_size
            for found in scan_file(mapped, self.topics, self._advanced, whole=whole):
                if isinstance(found, Records):
                    blocks.append(found)
                    self.records += len(found.at)
                    self.end = base + int(found.at[-1] + found.size[-1])
                elif isinstance(found, Gap) and (found.end < file.size or not last):
                    end = behind if found.end == file.size else base + found.end
                    self._note(base + found.begin, end, found.reason)
                elif isinstance(found, Gap):
                    self._torn(base + found.begin, found.reason)
                elif not last and not found.blank:
                    self._note(base + found.at, behind, "zeros up to the end of the file")
                elif last:
                    self._at_end(base, found)
            if blocks:
                met(
                    base, Records(*(np.concatenate(column) for column in zip(*blocks, strict=True)))
                )
        finally:
            mapped.close()
        if file.size != self.file_size:
            self._note(
                max(self.end, base), behind,
                f"the file has {file.size} bytes instead of {self.file_size}",
            )  # fmt: skip

    def _at_end(self, base: int, found: FileEnd) -> None:
        self.end = base + found.at
        self._reached = base + self.file_size if found.blank else self.end

    def _torn(self, begin: int, reason: str) -> None:
        self.end = self._reached = begin
        if begin < self._flushed:
            self._note(begin, self._flushed, reason)
        elif not self._open:
            self.torn = begin

    def _judge_end(self) -> None:
        """Compare the end with what was flushed."""
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
