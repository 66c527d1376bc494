"""Files that can be read and seemingly written, while nothing on the disk changes."""

from __future__ import annotations

import os
import sys
import tempfile
from mmap import ACCESS_COPY
from pathlib import Path

from pocketmq.store.file_copies import open_regular
from pocketmq.store.files import Files, MappedFile


class _Copy(MappedFile):
    """A mapping with changes that are not in the file."""

    __slots__ = ()

    def unmap(self) -> bool:
        """Refuse."""
        return False


class DryFiles(Files):
    """Writes to a mapping stay in this process, and nothing is created or removed. So recovery can
    be run on a store to see what it would do."""

    def create(
        self,
        path: Path,
        base_offset: int,
        size: int,
        *,
        allocated: int | None = None,
        most_descriptors: int | None = None,
    ) -> MappedFile:
        """Map a file of zeros that has no name. Raises OSError."""
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
        os.ftruncate(fd, size)
        return MappedFile(self, path, fd, base_offset, size)

    def open(
        self,
        path: Path,
        base_offset: int,
        size: int,
        unsynced_directories: tuple[Path, ...] = (),
    ) -> MappedFile:
        """Map a file whose changes are seen here only. Raises OSError."""
        fd = self.open_again(path)
        try:
            return _Copy(self, path, fd, base_offset, size, access=ACCESS_COPY)
        except BaseException:
            os.close(fd)
            raise

    def open_again(self, path: Path) -> int:
        """Return a descriptor for reading. Raises OSError, NotAFile."""
        return open_regular(path)

    def save_descriptor(self, file: MappedFile) -> None:
        """Keep no descriptor of a file that can be opened again."""
        if isinstance(file, _Copy):
            file.save_descriptor()

    def most_mappings(self) -> int:
        """All of them: their writes exist nowhere else."""
        return sys.maxsize

    def allocate(self, fd: int, size: int) -> None:
        """Do nothing."""

    def write(self, fd: int, data: memoryview, at: int) -> None:
        """Refuse: this would change a file. Raises PermissionError."""
        raise PermissionError("a store that is being checked is not written to")

    def fdatasync(self, fd: int) -> None:
        """Do nothing."""

    def sync_directory(self, directory: Path) -> None:
        """Do nothing."""

    def replace(
        self, path: Path, content: bytes, backup: Path | None = None, *, mode: int = 0o644
    ) -> None:
        """Do nothing."""

    def unshare(self, path: Path) -> bool:
        """Do nothing: writes stay in this process anyway."""
        return False

    def remove(self, path: Path) -> None:
        """Do nothing."""

    def remove_directory(self, directory: Path) -> None:
        """Do nothing."""
