"""The log of an archive in memory, as far as it was loaded: a source of bytes for a scan.

Each part is an anonymous mapping of its size, into which ranges of its object are read. So offsets
are those of the store, and the record parser sees no difference; only the ranges that were read
take memory. Bytes are read in blocks: adjacent blocks in one request, several requests at a time,
and some ahead of use. The least recently used blocks are freed.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from mmap import MADV_DONTNEED, MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Any, Final

import numpy as np

from pocketmq.archive.errors import ObjectDamaged
from pocketmq.archive.objects import Objects
from pocketmq.archive.parts import Part
from pocketmq.store.scan.queues.segments import (
    ByteArray,
    Int64Array,
    Segments,
    Unread,
    Unreadable,
)

BLOCK: Final = 128 * 1024
"""The least bytes to read. A request takes about as long as a connection needs for ten of these, so
smaller ones would save little."""
REQUEST: Final = 4 * 1024 * 1024
"""The most bytes of a request."""
REQUESTS: Final = 8
"""Requests at a time."""
KEPT: Final = 256 * 1024 * 1024
"""Bytes in memory. A partition is planned for half of this: all its queues are read from one copy
of its range."""
# Most of a mapping is never written to; other systems do not reserve memory.
_NORESERVE: Final = 0x4000 if sys.platform == "linux" else 0


class LogPart:
    """One part of the log, as a segment of it."""

    def __init__(self, objects: Objects, part: Part) -> None:
        self.base = part.begin
        self.size = part.end - part.begin
        self.path = objects.url(part.log.name)
        self._objects = objects
        self._name = part.log.name
        self._opening = threading.Lock()
        self._file: Any = None
        self._map: mmap | None = None
        self._bytes: ByteArray = np.empty(0, np.uint8)

    @property
    def bytes(self) -> ByteArray:
        """The content, with zeros in unread ranges."""
        if self._map is None:
            self._map = mmap(-1, self.size, MAP_PRIVATE | MAP_ANONYMOUS | _NORESERVE)
            self._bytes = np.frombuffer(self._map, np.uint8)
        return self._bytes

    @property
    def view(self) -> memoryview:
        """The content as a memoryview."""
        return self.bytes.data

    def read(self, begin: int, end: int) -> None:
        """Read a range. May be called by any thread. Raises ArchiveError."""
        file = self._opened()
        content = self._objects.read_range(file, self._name, begin, end - begin)
        if len(content) != end - begin:
            raise ObjectDamaged(self.path, f"it ends at byte {begin + len(content)}")
        self._bytes[begin:end] = np.frombuffer(content, np.uint8)

    def forget(self, block: int) -> None:
        """Free the memory of a block."""
        assert self._map is not None, "it was read"
        begin = block * BLOCK
        self._map.madvise(MADV_DONTNEED, begin, min(BLOCK, self.size - begin))

    def _opened(self) -> Any:
        with self._opening:
            if self._file is None:
                file = self._objects.open(self._name)
                size = self._objects.size_of(file, self._name)
                if size != self.size:
                    reason = f"it has {size} bytes; {self.size} were uploaded"
                    raise ObjectDamaged(self.path, reason)
                self._file = file
            return self._file


class SparseLog:
    """Reads the blocks of some parts that records lie in; a `ByteSource`."""

    def __init__(self, parts: Sequence[LogPart], *, kept: int = KEPT) -> None:
        self._parts = parts
        self._bases = np.array([part.base for part in parts], np.int64)
        self._most = kept // BLOCK
        self._reads = ThreadPoolExecutor(REQUESTS, "ranges")
        # By part number and block, the most recently used last.
        self._blocks: OrderedDict[tuple[int, int], Future[None]] = OrderedDict()

    def cost(self, physical: Int64Array, size: Int64Array) -> Int64Array:
        """Return how many bytes of blocks each record adds to those of the previous one."""
        number, first, last = self._places(physical, size)
        new = np.ones(len(physical), bool)
        new[1:] = (number[1:] != number[:-1]) | (first[1:] != last[:-1])
        return (last - first + new) * BLOCK

    def expect(self, physical: Int64Array, size: Int64Array) -> None:
        """Start reading the blocks of records."""
        self._expect(self._keys(physical, size))

    def _expect(self, keys: list[tuple[int, int]]) -> None:
        missing: list[tuple[int, int]] = []
        for key in keys:
            if key in self._blocks:
                self._blocks.move_to_end(key)
            else:
                missing.append(key)
        run: list[tuple[int, int]] = []
        for key in missing:
            if run and (key != (run[0][0], run[0][1] + len(run)) or len(run) * BLOCK >= REQUEST):
                self._read(run)
                run = []
            run.append(key)
        if run:
            self._read(run)
        while len(self._blocks) > self._most:
            (number, block), read = self._blocks.popitem(last=False)
            read.exception()  # it may be in flight
            self._parts[number].forget(block)

    def fetch(self, physical: Int64Array, size: Int64Array) -> Unread | None:
        """Wait until the blocks of records are loaded; return the records that cannot be read.

        Raises:
            Unreachable: the archive does not answer.
        """
        keys = self._keys(physical, size)
        self._expect(keys)
        bad: dict[tuple[int, int], Unreadable] = {}
        for key in keys:
            error = self._blocks[key].exception()
            if isinstance(error, Unreadable):
                bad[key] = error
            elif error is not None:
                raise error
        if not bad:
            return None
        number, first, last = self._places(physical, size)
        rows = np.zeros(len(physical), bool)
        for part, block in bad:
            rows |= (number == part) & (first <= block) & (block <= last)
        return Unread(rows, next(iter(bad.values())))

    def _read(self, run: list[tuple[int, int]]) -> None:
        """Start reading adjacent blocks."""
        number, block = run[0]
        part = self._parts[number]
        part.bytes  # noqa: B018 the mapping is made by this thread
        begin = block * BLOCK
        end = min(begin + len(run) * BLOCK, part.size)
        read = self._reads.submit(part.read, begin, end)
        for key in run:
            self._blocks[key] = read

    def _keys(self, physical: Int64Array, size: Int64Array) -> list[tuple[int, int]]:
        """Return the blocks of records, in order."""
        number, first, last = self._places(physical, size)
        found: dict[tuple[int, int], None] = {}
        # Most records are in the block of the previous one.
        places = np.stack((number, first, last), axis=1)
        new = np.ones(len(places), bool)
        new[1:] = (places[1:] != places[:-1]).any(axis=1)
        for part, begin, end in places[new].tolist():
            for block in range(begin, end + 1):
                found[part, block] = None
        return list(found)

    def _places(
        self, physical: Int64Array, size: Int64Array
    ) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return for each record the number of its part, and its first and last block there."""
        number = np.clip(np.searchsorted(self._bases, physical, "right") - 1, 0, None)
        at = np.clip(physical - self._bases[number], 0, None)
        sizes = np.array([part.size for part in self._parts], np.int64)[number]
        first = np.minimum(at, sizes - 1) // BLOCK
        last = np.minimum(at + np.clip(size, 1, None), sizes) - 1
        return number.astype(np.int64), first, np.maximum(last // BLOCK, first)


def log_of(objects: Objects, parts: Sequence[Part], *, kept: int = KEPT) -> Segments:
    """Return the log of an archive for a scan."""
    segments = [LogPart(objects, part) for part in parts]
    return Segments(objects.url("log"), segments, SparseLog(segments, kept=kept))
