"""Where the entries of a consume-queue file end, found with two or three small reads.

A file of 6 MB may hold a handful of entries, and a store has thousands of files. To map one and
halve it brings in 128 KiB around each byte that is looked at, which for 8,000 queues is more than
the page cache of most machines.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final

import numpy as np

from pocketmq.store.encoding.entry_array import EntryArray, entry_array
from pocketmq.store.encoding.queue_entry import CONSUME_QUEUE_UNIT as UNIT
from pocketmq.store.scan.queues.segments import reading

_BLOCK: Final = 4096 // UNIT * UNIT
_ENTRY: Final = Struct(">qi8x")


class LastEntries:
    """The last entries of a queue, in memory.

    Attributes:
        begin, end: queue offsets of the first of them, and after the last.
        is_broken_off: whether something was found after them.
    """

    __slots__ = ("_bytes", "begin", "end", "is_broken_off")

    def __init__(self, end: int, content: bytes, *, is_broken_off: bool = False) -> None:
        self.is_broken_off = is_broken_off
        self.begin = end - len(content) // UNIT
        self.end = end
        self._bytes = content

    def entry(self, offset: int) -> tuple[int, int]:
        """Return the physical offset and size in the entry at a queue offset of [begin, end)."""
        physical, size = _ENTRY.unpack_from(self._bytes, (offset - self.begin) * UNIT)
        return physical, size

    def one(self, offset: int) -> bytes:
        """Return the bytes of the entry at a queue offset."""
        at = (offset - self.begin) * UNIT
        return self._bytes[at : at + UNIT]

    def array(self, begin: int, end: int) -> EntryArray | None:
        """Return the entries at the queue offsets [begin, end); None unless all are here."""
        if begin < self.begin or end > self.end:
            return None
        return entry_array(memoryview(self._bytes))[begin - self.begin : end - self.begin]

    def behind(self, offset: int) -> LastEntries:
        """Return the same entries with offsets that are higher by `offset`."""
        return LastEntries(self.end + offset, self._bytes)

    def joined(self, offset: int, content: bytes) -> LastEntries:
        """Return the entries up to a queue offset, followed by those in `content`."""
        joined = self._bytes[: (offset - self.begin) * UNIT] + content
        return LastEntries(offset + len(content) // UNIT, joined[-_BLOCK:])


NO_ENTRIES: Final = LastEntries(0, b"")


def last_entries(path: Path | str, size: int, *, gapless: bool) -> LastEntries:
    """Return the last entries of the run with which a file begins; `size` is the file's bytes.

    The offsets are counted from the begin of the file. In a `gapless` file nothing follows an empty
    entry; else, as after a crash, there may be holes, and the first one is the end.
    Raises UnreadableFile, FileNotFoundError.
    """
    with _opened(path) as fd:
        if gapless:  # most files have a handful of entries
            content = os.pread(fd, min(_BLOCK, size // UNIT * UNIT), 0)
            count = entries_in(content)
            if count * UNIT < _BLOCK:
                return _last_of(count, content)
        stop = min(-(-_data_end(fd, size) // UNIT), size // UNIT)
        if not gapless:
            content = os.pread(fd, stop * UNIT, 0)
            empty = entry_array(memoryview(content)[: len(content) // UNIT * UNIT])["size"] <= 0
            count = int(np.argmax(empty)) if empty.any() else len(empty)
            return _last_of(count, content)
        begin = max(stop - _BLOCK // UNIT, 0)
        content = os.pread(fd, (stop - begin) * UNIT, begin * UNIT)
        count = entries_in(content)
        if not count and begin:
            begin, stop = 0, begin
            end = bisect_left(range(stop), True, key=lambda at: _is_empty(fd, at))
            begin = max(end - _BLOCK // UNIT, 0)
            content = os.pread(fd, (end - begin) * UNIT, begin * UNIT)
            count = len(content) // UNIT
        return LastEntries(begin + count, content[: count * UNIT])


def _last_of(count: int, content: bytes) -> LastEntries:
    """Return the last ones of the `count` entries with which the bytes of a file begin."""
    end = count * UNIT
    is_broken_off = bool(content[end:].strip(b"\0"))
    return LastEntries(count, content[max(end - _BLOCK, 0) : end], is_broken_off=is_broken_off)


def next_entries(path: Path | str, number: int) -> bytes:
    """Return some entries of a gapless file from the one with this number on. If they fill 4 KB,
    there may be more. Raises UnreadableFile, FileNotFoundError."""
    with _opened(path) as fd:
        content = os.pread(fd, _BLOCK, number * UNIT)
    return content[: entries_in(content) * UNIT]


def fills(content: bytes) -> bool:
    """Return whether more entries may follow those of `next_entries`."""
    return len(content) == _BLOCK


def entries_in(content: bytes) -> int:
    """Return with how many entries the bytes of a gapless file begin."""
    numbers = range(len(content) // UNIT)
    return bisect_left(numbers, True, key=lambda at: _ENTRY.unpack_from(content, at * UNIT)[1] <= 0)


def _is_empty(fd: int, number: int) -> bool:
    return not entries_in(os.pread(fd, UNIT, number * UNIT))


def _data_end(fd: int, size: int) -> int:
    """Return an offset after which the file has only zeros up to the next part that was written:
    files are made with holes. It is `size` if the file system does not tell."""
    with contextlib.suppress(OSError):
        return os.lseek(fd, 0, os.SEEK_HOLE)
    return size


@contextlib.contextmanager
def _opened(path: Path | str) -> Iterator[int]:
    with reading(path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)
