"""A run of mapped files of one size, each named by the offset of its first byte (%020d).

Commit logs and consume queues are such runs. The files follow each other without gaps; a run need
not begin at 0, since the oldest files expire. Reference: MappedFileQueue.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Final

from pocketmq.store.errors import FileSizeMismatch, NotAFile, StoreCorrupt
from pocketmq.store.files import Files, MappedFile, Retirement, descriptors_for_queues
from pocketmq.store.log.queue_mappings import QueueMappings

log = logging.getLogger(__name__)

FILE_NAME: Final = re.compile(r"[0-9]{20}")
"""The name of a file of such a run."""

_entry_name: Final = attrgetter("name")


class MappedFileQueue:
    """The files of one directory. Nothing is created before the first append.

    Attributes:
        mapped: the files in order. Replaced, never changed in place: a flush thread may be
            walking through it.
        file_size: bytes of each.
        retired: removed files that a reader may still hold.
    """

    def __init__(
        self,
        files: Files,
        directory: Path,
        file_size: int,
        setting: str,
        retired: Retirement,
        mappings: QueueMappings | None = None,
    ) -> None:
        """`setting` is the property that sets `file_size`, for error messages. With `mappings` this
        is one of many runs: its files save descriptors, and only those are mapped for which `find`
        or `use` was called lately."""
        self.directory = directory
        self.file_size = file_size
        self.retired = retired
        self.mapped: tuple[MappedFile, ...] = ()
        self._files = files
        self._setting = setting
        self._mappings = mappings

    @property
    def first_offset(self) -> int:
        """The offset at which the run begins; 0 when it has no files."""
        return self.mapped[0].base_offset if self.mapped else 0

    def load(
        self,
        unsynced_directories: tuple[Path, ...] = (),
        *,
        rebuilt_from: int | None = None,
        look: Callable[[MappedFile], None] | None = None,
    ) -> None:
        """Map the files. The first sync of each file includes `unsynced_directories`: after a
        crash it is not known whether the names in them are on the disk.

        `rebuilt_from`: what is missing from this offset on will be rebuilt, so if a power failure
        took a file in between, the later ones are removed. `look` is called with each file while it
        has a descriptor.

        Raises:
            NotAFile: a directory has the name of a file.
            FileSizeMismatch: a file was written with another size.
            StoreCorrupt: a file in between is missing or empty.
        """
        try:
            with os.scandir(self.directory) as found:
                entries = sorted(found, key=_entry_name)
        except (FileNotFoundError, NotADirectoryError):
            return
        paths: list[Path] = []
        sizes: list[int] = []
        for entry in entries:
            path = self.directory / entry.name
            if FILE_NAME.fullmatch(entry.name):
                if entry.is_dir():
                    raise NotAFile(path)
                paths.append(path)
                sizes.append(entry.stat().st_size)
            elif not entry.is_dir(follow_symlinks=False):
                log.warning("%s is not part of the store and is left alone", path)
        if sizes and not sizes[-1]:
            # Created, but the process ended before it got its size.
            self._files.remove(paths.pop())
            sizes.pop()
        mapped: list[MappedFile] = []
        for number, path in enumerate(paths):
            try:
                self._check(number, mapped[-1].base_offset if mapped else None, paths, sizes)
            except StoreCorrupt as error:
                missing = mapped[-1].base_offset + self.file_size if mapped else int(path.name)
                if rebuilt_from is None or missing < rebuilt_from:
                    raise
                log.warning("%s; from here on the files are made again", error)
                break
            mapped.append(self._open(path, unsynced_directories, look))
        for path in reversed(paths[len(mapped) :]):
            self._files.remove(path)
        self.mapped = tuple(mapped)

    def _open(
        self,
        path: Path,
        unsynced_directories: tuple[Path, ...],
        look: Callable[[MappedFile], None] | None,
    ) -> MappedFile:
        def open_file() -> MappedFile:
            file = self._files.open(path, int(path.name), self.file_size, unsynced_directories)
            if look is not None:
                look(file)
            return file

        return open_file() if self._mappings is None else self._shared(open_file, self._mappings)

    def _shared(self, make: Callable[[], MappedFile], mappings: QueueMappings) -> MappedFile:
        """Make one of the files that may be unmapped."""
        file = mappings.without_exhaustion(make)
        self._files.save_descriptor(file)
        mappings.add(file)
        return file

    def _check(self, number: int, before: int | None, paths: list[Path], sizes: list[int]) -> None:
        """Raise what is wrong with a file of `paths` after the one at offset `before`."""
        path, size = paths[number], sizes[number]
        base = int(path.name)
        if not size:
            raise StoreCorrupt(
                path, 0,
                f"the file is empty, but {paths[-1].name} follows it: it has lost its "
                f"{self.file_size} bytes, perhaps when the machine stopped or in a copy",
            )  # fmt: skip
        if size < self.file_size and self.file_size in sizes:
            raise StoreCorrupt(
                path, size, f"the file ends here, but the others have {self.file_size} bytes"
            )
        if size != self.file_size:
            raise FileSizeMismatch(path, size, self._setting, self.file_size)
        expected = base if before is None else before + size
        if base != expected or base % size:
            raise StoreCorrupt(path, 0, f"the file {expected:020d} before it is missing")

    def find(self, offset: int) -> MappedFile | None:
        """Return the file that holds the byte at `offset`, mapped. Raises OSError when it was not
        and cannot be."""
        mapped = self.mapped
        if not mapped:
            return None
        index = (offset - mapped[0].base_offset) // self.file_size
        if not 0 <= index < len(mapped):
            return None
        file = mapped[index]
        if not file.used:
            self.use(file)
        return file

    def use(self, file: MappedFile) -> None:
        """Have one of the files mapped. Raises OSError."""
        if self._mappings is not None:
            self._mappings.use(file)

    def path_of(self, base_offset: int) -> Path:
        """Return the path of the file that begins at `base_offset`."""
        return self.directory / f"{base_offset:020d}"

    def create(self, base_offset: int, *, allocated: int | None = None) -> MappedFile:
        """Create the file at `base_offset`, after the last one, and append it.

        `allocated` is that of `Files.create`.

        Raises DiskFull.
        """
        mappings = self._mappings

        def create() -> MappedFile:
            return self._files.create(
                self.path_of(base_offset),
                base_offset,
                self.file_size,
                allocated=allocated,
                most_descriptors=None if mappings is None else descriptors_for_queues(),
            )

        file = create() if mappings is None else self._shared(create, mappings)
        self.append(file)
        return file

    def append(self, file: MappedFile) -> None:
        """Append a file that was made elsewhere."""
        self.mapped = (*self.mapped, file)

    def own(self, file: MappedFile) -> MappedFile:
        """Return the file of the run to write to, with a descriptor: `file`, or, if a snapshot has
        a link to it, what takes its place. Raises OSError."""
        if not self._files.unshare(file.path):
            file.keep_descriptor()
            return file
        mapped = self._files.open(file.path, file.base_offset, file.size)
        self.mapped = tuple(mapped if each is file else each for each in self.mapped)
        self.retired.add(file)
        return mapped

    def save_descriptor(self, file: MappedFile) -> None:
        """Keep no descriptor of a file that is not written to any more."""
        self._files.save_descriptor(file)

    def truncate(self, end: int) -> None:
        """Remove the files that begin at `end` or later, except that the first one stays."""
        while len(self.mapped) > 1 and self.mapped[-1].base_offset >= end:
            last = self.mapped[-1]
            self.mapped = self.mapped[:-1]
            self.discard(last)

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
        # One at a time: a power failure that brought back a file between two others that are gone
        # would leave a gap.
        self._files.sync_directory(self.directory)
        self.retired.add(file)

    def take_all(self) -> tuple[MappedFile, ...]:
        """Take all files out of the run."""
        taken, self.mapped = self.mapped, ()
        return taken

    def remove_all(self) -> None:
        """Remove every file; slices that readers still hold stay valid. Raises OSError."""
        removed = bool(self.mapped)
        for file in self.mapped:
            self.mapped = self.mapped[1:]
            self._files.remove(file.path)
            self.retired.add(file)
        if removed:
            self._files.sync_directory(self.directory)

    def close(self) -> None:
        """Close every file, as soon as its last reader is gone."""
        for file in self.mapped:
            self.retired.add(file)
        self.mapped = ()
