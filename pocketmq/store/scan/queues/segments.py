"""The parts of a commit log or a consume queue. Those of a store are files, mapped read-only: the
scan's only way to the disk. Those of an archive are elsewhere (`pocketmq.archive`).

A scan never changes a store, and takes files as it finds them: of any size, the last one cut
short, the first ones expired. What it has mapped stays readable when a broker removes the file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from pocketmq.store.errors import StoreError

Int64Array = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.uint8]

T = TypeVar("T")

# In RocketMQ's tiered storage a hash of the offset stands before it, to spread objects evenly.
_NAME: Final = re.compile(r"(?:[0-9a-f]{8})?[0-9]{20}")
_TRIES: Final = 10
_MAX_BASE: Final = 1 << 62  # so that every offset in a file fits 64 bits


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
    store has thousands of files. Objects made from a mapping keep it alive by themselves."""

    def __init__(self, limit: int = 128) -> None:
        self._limit = limit
        # Not by segments, which know their mappings: a cycle would keep descriptors until it is
        # collected.
        self._recent: OrderedDict[tuple[Path, str, int], ByteArray] = OrderedDict()

    def bytes_of(self, segment: MappedSegment) -> ByteArray:
        """Return the content of a file. Raises FileNotFoundError."""
        key = segment.directory, segment.name, segment.size
        found = self._recent.get(key)
        if found is not None:
            self._recent.move_to_end(key)
            return found
        with reading(segment.path), segment.path.open("rb") as file:
            # If a file was cut short since, the first access past its end would kill the process.
            size = os.fstat(file.fileno()).st_size
            if size < segment.size:
                raise OSError(errno.EIO, "the file has been cut short", str(segment.path))
            mapping = mmap(file.fileno(), segment.size, access=ACCESS_READ)
        found = self._recent[key] = np.frombuffer(mapping, np.uint8)
        if len(self._recent) > self._limit:
            self._recent.popitem(last=False)
        return found


class Segment(Protocol):
    """One part.

    Attributes:
        base: the offset of its first byte within the run.
        size: bytes when the run was listed.
    """

    @property
    def base(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def path(self) -> Path | str:
        """Its location: a file, or the URL of an object."""

    @property
    def bytes(self) -> ByteArray:
        """The content. Raises FileNotFoundError, or Unreadable."""

    @property
    def view(self) -> memoryview:
        """The content as a memoryview."""


class Unreadable(StoreError):
    """A part that was there when a scan was planned, and cannot be read."""


class UnreadableFile(Unreadable):
    """A path that the system does not let us read, or that is not a file."""

    def __init__(self, error: OSError, path: Path | str) -> None:
        # Of a descriptor, the error has its number.
        name = error.filename if isinstance(error.filename, str) else path
        super().__init__(f"cannot read {name}: {error.strerror}")


@contextlib.contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Raise UnreadableFile in place of OSError, unless a file or directory is missing: brokers
    remove them."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise UnreadableFile(error, path) from None


class Unread(NamedTuple):
    """Rows whose records cannot be read, as a mask, and why."""

    rows: npt.NDArray[np.bool_]
    error: Unreadable


class ByteSource(Protocol):
    """Brings in the bytes of records before they are looked at."""

    def cost(self, physical: Int64Array, size: Int64Array) -> Int64Array:
        """Return for each record (physical offset and size) how many bytes have to be read."""

    def expect(self, physical: Int64Array, size: Int64Array) -> None:
        """Begin to read records that will be fetched soon."""

    def fetch(self, physical: Int64Array, size: Int64Array) -> Unread | None:
        """Wait until records can be looked at; return those that never can."""


class _MappedSource:
    """Of mapped files, which bring in their bytes by themselves."""

    def cost(self, physical: Int64Array, size: Int64Array) -> Int64Array:
        return size

    def expect(self, physical: Int64Array, size: Int64Array) -> None:
        pass

    def fetch(self, physical: Int64Array, size: Int64Array) -> None:
        return None


class MappedSegment:
    """One file.

    Attributes:
        directory, name: its location.
        base: the offset of its first byte within the run.
        size: bytes when the run was listed.
    """

    __slots__ = ("_mappings", "base", "directory", "name", "size")

    def __init__(self, directory: Path, name: str, size: int, mappings: Mappings) -> None:
        self.directory = directory
        self.name = name
        self.base = int(name[-20:])
        self.size = size
        self._mappings = mappings

    @property
    def path(self) -> Path:
        """Its location."""
        return self.directory / self.name

    @property
    def bytes(self) -> ByteArray:
        """The content as a numpy array that shares the mapping. Raises FileNotFoundError."""
        return self._mappings.bytes_of(self)

    @property
    def view(self) -> memoryview:
        """The content as a memoryview."""
        return self.bytes.data


class Segments:
    """The parts of one run in order.

    Args:
        where: a directory, or a URL.
    """

    def __init__(
        self,
        where: Path | str,
        segments: Sequence[Segment],
        source: ByteSource = _MappedSource(),  # noqa: B008 it has no state
    ) -> None:
        self.where = where
        self.all = segments
        self.source = source
        self._bases = [segment.base for segment in self.all]

    @property
    def begin(self) -> int:
        """The first existing offset; 0 without files."""
        return self.all[0].base if self.all else 0

    @property
    def end(self) -> int:
        """The offset after the last file."""
        return self.all[-1].base + self.all[-1].size if self.all else 0

    def indexes(self, offsets: Int64Array) -> npt.NDArray[np.intp]:
        """For each offset the index in `all` of its file, or of the last file before it; -1 before
        all."""
        bases = np.array(self._bases, np.int64)
        return np.searchsorted(bases, offsets, side="right") - 1

    def find(self, offset: int) -> Segment | None:
        """Return the file that holds the byte at `offset`."""
        index = bisect_right(self._bases, offset) - 1
        if index < 0:
            return None
        segment = self.all[index]
        return segment if offset < segment.base + segment.size else None


NO_SEGMENTS: Final = Segments("", ())


def mapped(directory: Path, mappings: Mappings | None = None) -> Segments:
    """Return the files of one directory; a missing directory is a run of none.

    Runs that are used together share their `mappings`.
    """
    mappings = mappings or Mappings()
    # One of 0 bytes was created when the process ended.
    files = [
        MappedSegment(directory, name, size, mappings)
        for name, size in _listed(directory)
        if size and int(name[-20:]) < _MAX_BASE
    ]
    return Segments(directory, sorted(files, key=lambda file: file.base))


def _listed(directory: Path) -> Iterator[tuple[str, int]]:
    """Return the names of the files of a run, and how many bytes each has."""
    with (
        contextlib.suppress(FileNotFoundError, NotADirectoryError),
        reading(directory),
        os.scandir(directory) as entries,
    ):
        for entry in entries:
            if _NAME.fullmatch(entry.name):
                # It may have been removed since it was listed.
                with contextlib.suppress(FileNotFoundError), reading(entry.path):
                    status = entry.stat()
                    if not stat.S_ISREG(status.st_mode):
                        # A pipe or a device has a size of 0, as if it had just been created.
                        raise OSError(errno.EINVAL, "Not a regular file")
                    yield entry.name, status.st_size
