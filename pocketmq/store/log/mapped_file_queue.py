"""A run of mapped files of one size, each named by the offset of its first byte (%020d).

Commit logs and consume queues are such runs. The files follow each other without gaps; a run need
not begin at 0, since the oldest files expire. Reference: MappedFileQueue.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Final

from pocketmq.store.errors import FileSizeMismatch, StoreCorrupt
from pocketmq.store.files import Files, MappedFile, Retirement

log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[0-9]{20}")


class MappedFileQueue:
    """The files of one directory. Nothing is created before the first append.

    Attributes:
        mapped: the files in order. Replaced, never changed in place: a flush thread may be
            walking through it.
        file_size: bytes of each.
        retired: removed files that a reader may still hold.
    """

    def __init__(
        self, files: Files, directory: Path, file_size: int, setting: str, retired: Retirement
    ) -> None:
        """`setting` is the name of the property behind `file_size`, for error messages."""
        self.directory = directory
        self.file_size = file_size
        self.retired = retired
        self.mapped: tuple[MappedFile, ...] = ()
        self._files = files
        self._setting = setting

    @property
    def first_offset(self) -> int:
        """The offset at which the run begins; 0 when it has no files."""
        return self.mapped[0].base_offset if self.mapped else 0

    def load(self) -> None:
        """Map what is there.

        Raises:
            FileSizeMismatch: a file was written with another size.
            StoreCorrupt: a file is missing in between.
        """
        if not self.directory.is_dir():
            return
        found = sorted(path for path in self.directory.iterdir() if path.is_file())
        paths = [path for path in found if _NAME.fullmatch(path.name)]
        for path in set(found).difference(paths):
            log.warning("%s is not part of the store and is left alone", path)
        if paths and paths[-1].stat().st_size == 0:
            # Created, but the process ended before it got its size.
            self._files.remove(paths.pop())
        mapped: list[MappedFile] = []
        for path in paths:
            size = path.stat().st_size
            if size != self.file_size:
                raise FileSizeMismatch(path, size, self._setting, self.file_size)
            base = int(path.name)
            expected = mapped[-1].base_offset + self.file_size if mapped else base
            if base != expected or base % self.file_size:
                raise StoreCorrupt(path, 0, f"the file {expected:020d} before it is missing")
            mapped.append(self._files.open(path, base, size))
        self.mapped = tuple(mapped)

    def find(self, offset: int) -> MappedFile | None:
        """Return the file that holds the byte at `offset`."""
        mapped = self.mapped
        if not mapped:
            return None
        index = (offset - mapped[0].base_offset) // self.file_size
        return mapped[index] if 0 <= index < len(mapped) else None

    def path_of(self, base_offset: int) -> Path:
        """Return where the file that begins at `base_offset` lies."""
        return self.directory / f"{base_offset:020d}"

    def create(self, base_offset: int, *, allocated: int | None = None) -> MappedFile:
        """Create the file at `base_offset`, which is behind the last one, and append it.

        `allocated` is that of `Files.create`.

        Raises DiskFull.
        """
        file = self._files.create(
            self.path_of(base_offset), base_offset, self.file_size, allocated=allocated
        )
        self.append(file)
        return file

    def append(self, file: MappedFile) -> None:
        """Add a file, made elsewhere, behind the last one."""
        self.mapped = (*self.mapped, file)

    def truncate(self, end: int) -> None:
        """Remove the files that begin at `end` or later, except that the first one stays."""
        while len(self.mapped) > 1 and self.mapped[-1].base_offset >= end:
            self._remove(self.mapped[-1])

    def take_first(self) -> MappedFile:
        """Take the oldest file out of the run, for `discard`. Not the last one: where the run goes
        on would be forgotten."""
        first, *_ = mapped = self.mapped
        assert len(mapped) > 1
        self.mapped = mapped[1:]
        return first

    def discard(self, file: MappedFile) -> None:
        """Remove a file that was taken out of the run; off the event loop, since that of a large
        one takes long. Slices that readers still hold stay valid. Raises OSError."""
        self._files.remove(file.path)
        self.retired.add(file)

    def remove_all(self) -> None:
        """Remove every file; slices that readers still hold stay valid."""
        for file in self.mapped:
            self._remove(file)

    def close(self) -> None:
        """Close every file, as soon as its last reader is gone."""
        for file in self.mapped:
            self.retired.add(file)
        self.mapped = ()

    def _remove(self, file: MappedFile) -> None:
        self.mapped = tuple(other for other in self.mapped if other is not file)
        self.discard(file)
