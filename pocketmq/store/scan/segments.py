"""The files of a commit log or a consume queue, mapped read-only: the scan's only way to the disk.

A scan never changes a store, and takes files as it finds them: of any size, the last one cut
short, the first ones expired. What it has mapped stays readable when a broker removes the file.
"""

from __future__ import annotations

import contextlib
import re
from collections import OrderedDict
from collections.abc import Callable
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.uint8]

T = TypeVar("T")

_NAME: Final = re.compile(r"[0-9]{20}")
_TRIES: Final = 10


def undisturbed(action: Callable[[], T]) -> T:
    """Return the result of `action`. Repeat it when a file that it has listed is gone.

    A broker removes expired files, and the queues of a topic that is deleted.

    Raises FileNotFoundError when that never ends.
    """
    for _ in range(_TRIES - 1):
        with contextlib.suppress(FileNotFoundError):
            return action()
    return action()


class Mappings:
    """The most recently used files of a scan, mapped. Each mapping holds a file descriptor, and a
    store has files by the thousand. What was made from a mapping keeps it alive by itself."""

    def __init__(self, limit: int = 128) -> None:
        self._limit = limit
        # Not by segments, which know their mappings: a cycle would keep descriptors until it is
        # collected.
        self._recent: OrderedDict[tuple[Path, int], ByteArray] = OrderedDict()

    def bytes_of(self, segment: Segment) -> ByteArray:
        """Return the content of a file. Raises FileNotFoundError."""
        key = segment.path, segment.size
        found = self._recent.get(key)
        if found is not None:
            self._recent.move_to_end(key)
            return found
        with segment.path.open("rb") as file:
            mapping = mmap(file.fileno(), segment.size, access=ACCESS_READ)
        found = self._recent[key] = np.frombuffer(mapping, np.uint8)
        if len(self._recent) > self._limit:
            self._recent.popitem(last=False)
        return found


class Segment:
    """One file.

    Attributes:
        path: where it lies.
        base: the offset of its first byte within the run.
        size: bytes when the run was listed.
    """

    __slots__ = ("_mappings", "base", "path", "size")

    def __init__(self, path: Path, base: int, size: int, mappings: Mappings) -> None:
        self.path = path
        self.base = base
        self.size = size
        self._mappings = mappings

    @property
    def bytes(self) -> ByteArray:
        """The content as a numpy array that shares the mapping. Raises FileNotFoundError."""
        return self._mappings.bytes_of(self)

    @property
    def view(self) -> memoryview:
        """The content as a memoryview."""
        return self.bytes.data


class Segments:
    """The files of one directory in order; a missing directory is a run of none.

    Runs that are used together share their `mappings`.
    """

    def __init__(self, directory: Path, mappings: Mappings | None = None) -> None:
        self.directory = directory
        mappings = mappings or Mappings()
        found = []
        for path in _listed(directory):
            with contextlib.suppress(FileNotFoundError):
                size = path.stat().st_size
                if size:  # one of 0 bytes was created when the process ended
                    found.append(Segment(path, int(path.name), size, mappings))
        self.all = sorted(found, key=lambda segment: segment.base)
        self._bases = np.array([segment.base for segment in self.all], np.int64)

    @property
    def begin(self) -> int:
        """The first offset there is; 0 without files."""
        return self.all[0].base if self.all else 0

    @property
    def end(self) -> int:
        """The offset behind the last file."""
        return self.all[-1].base + self.all[-1].size if self.all else 0

    def indexes(self, offsets: Int64Array) -> npt.NDArray[np.intp]:
        """For each offset the index in `all` of the file it lies in or behind; -1 before all."""
        return np.searchsorted(self._bases, offsets, side="right") - 1

    def find(self, offset: int) -> Segment | None:
        """Return the file that holds the byte at `offset`."""
        index = int(np.searchsorted(self._bases, offset, side="right")) - 1
        if index < 0:
            return None
        segment = self.all[index]
        return segment if offset < segment.base + segment.size else None


def _listed(directory: Path) -> list[Path]:
    try:
        return [path for path in directory.iterdir() if _NAME.fullmatch(path.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
