"""The commit log: every message of every topic, one record after another.

A record never crosses the end of a file. Where the next one (and 8 bytes after it) does not fit,
a blank fills the file and the record begins the next one; a batch is treated as one record. Only
the event loop appends, so an append is: `reserve` a place, encode for that physical offset,
`commit`. Reference: CommitLog, DefaultAppendMessageCallback.
"""

from __future__ import annotations

import logging
from mmap import mmap
from struct import Struct
from typing import Final

from message.record import (
    MAGIC_V1,
    MAGIC_V2,
    MIN_BLANK,
    MIN_RECORD,
    encode_blank_into,
)
from message.sysflag import BORN_HOST_V6
from store.allocation import FileAllocator
from store.errors import RecordNotFound
from store.files import MappedFile
from store.mapped_file_queue import MappedFileQueue
from store.record_encoder import SIZE_BYTES

log = logging.getLogger(__name__)

_HEAD: Final = Struct(">iI20xqi8x")  # size, magic, physicalOffset, sysFlag
_pack_size: Final = Struct(">i").pack_into
_unpack_i64: Final = Struct(">q").unpack_from
_STORE_TIMESTAMP_AT: Final = (56, 68)  # behind an IPv4 or IPv6 born host
_NEVER: Final = 1 << 63


class CommitLog:
    """Append and read.

    Attributes:
        files: the run of mapped files.
        end: physical offset of the next record. A flush thread reads it: it moves on only when
            everything before it is written.
        store_timestamp: of the last record appended (ms); moves on after `end` does.
    """

    def __init__(self, files: MappedFileQueue, allocator: FileAllocator) -> None:
        self.files = files
        self.end = 0
        self.store_timestamp = 0
        self._allocator = allocator
        self._map: mmap | None = None  # of the file that is appended to
        self._base = 0  # where that file begins
        self._limit = 0  # physical offset where its last record must end; 0 without a file
        self._watermark = _NEVER  # physical offset at which to look after what lies ahead

    @property
    def min_offset(self) -> int:
        """Physical offset of the oldest record."""
        return self.files.first_offset

    @property
    def file_size(self) -> int:
        """Bytes of each file."""
        return self.files.file_size

    @property
    def max_record_size(self) -> int:
        """Bytes of the largest record (or batch) that fits into a file."""
        return self.files.file_size - MIN_BLANK

    @property
    def room(self) -> int:
        """Bytes of records that still fit into the current file; less than 0 without one."""
        return self._limit - self.end

    def resume(self, end: int) -> None:
        """Go on appending at `end`, which recovery found. What lies behind it is removed, so that
        no later recovery takes remains of an earlier life for messages. Raises DiskFull."""
        self.files.truncate(end)
        self.end = end
        file = self.files.find(end)
        if file is not None:
            file.allocate()
            file.zero_from(end - file.base_offset)
            self._use(file)

    def watch(self) -> None:
        """Look ahead of the append position from the next append on (not before: an idle store
        takes no memory)."""
        self._watermark = self.end

    def reserve(self, size: int) -> int:
        """The physical offset at which a record of `size` bytes (≤ `max_record_size`) goes.

        Raises DiskFull when it needs a new file and there is no room; the log is unchanged then.
        """
        if self.end + size > self._limit:
            self._roll()
        return self.end

    @property
    def place(self) -> tuple[mmap, int]:
        """Where the next record goes, once there is room for it: a mapping, and a byte of it."""
        assert self._map is not None, "reserve was not called"
        return self._map, self.end - self._base

    def commit(self, data: bytes, size: int, store_timestamp: int) -> None:
        """Write the record(s) encoded in `data`, without the first one's size word, at `end`;
        `size` is that word's value. `reserve` has made the room."""
        at = self.end - self._base
        length = len(data) + SIZE_BYTES
        self._map[at + SIZE_BYTES : at + length] = data  # type: ignore[index]
        self.seal(length, size, store_timestamp)

    def seal(self, length: int, size: int, store_timestamp: int) -> None:
        """Make the records at `place` part of the log: `length` bytes, of which all but the first
        record's `size` word are written."""
        # In one store: from here on the record is there (record_encoder says why).
        _pack_size(self._map, self.end - self._base, size)  # type: ignore[arg-type]
        end = self.end + length
        self.end = end
        self.store_timestamp = store_timestamp
        if end > self._watermark:
            self._look_ahead()

    def read(self, physical_offset: int, size: int) -> memoryview | None:
        """`size` bytes at a physical offset, None where the log does not hold (all of) them.
        The slice keeps its file mapped."""
        if physical_offset + size > self.end:
            return None
        file = self.files.find(physical_offset)
        if file is None:
            return None
        at = physical_offset - file.base_offset
        return file.view[at : at + size] if at + size <= file.size else None

    def record_at(self, physical_offset: int) -> memoryview:
        """The record that begins at `physical_offset`. Raises `RecordNotFound`."""
        head = self.read(physical_offset, MIN_RECORD) if physical_offset >= 0 else None
        if head is None:
            raise RecordNotFound(physical_offset, f"the log holds {self.min_offset} to {self.end}")
        size, magic, own_offset, _ = _HEAD.unpack_from(head)
        if magic not in (MAGIC_V1, MAGIC_V2) or own_offset != physical_offset:
            raise RecordNotFound(physical_offset, "another record's bytes, or a blank")
        record = self.read(physical_offset, size)
        if record is None:
            raise RecordNotFound(physical_offset, f"its size of {size} reaches out of the log")
        return record

    def store_timestamp_at(self, physical_offset: int, size: int) -> int:
        """The store timestamp (ms) of the record there; -1 when the log does not hold it."""
        record = self.read(physical_offset, size)
        if record is None or size < MIN_RECORD:
            return -1
        sys_flag = _HEAD.unpack_from(record)[3]
        at = _STORE_TIMESTAMP_AT[bool(sys_flag & BORN_HOST_V6)]
        timestamp: int = _unpack_i64(record, at)[0]
        return timestamp

    def next_file(self, physical_offset: int) -> int:
        """Where the file behind the one that holds `physical_offset` begins."""
        return physical_offset - physical_offset % self.file_size + self.file_size

    def dirty_files(self, start: int, end: int) -> list[MappedFile]:
        """The files with bytes between two physical offsets; any thread may ask."""
        return [
            file
            for file in self.files.mapped
            if file.base_offset < end and file.base_offset + file.size > start
        ]

    def _roll(self) -> None:
        """Go on in a new file. The old one gets its blank only when the new one is there."""
        previous = self._map
        base = self._base + self.file_size if previous is not None else self.end
        file = self._allocator.take(self.files.path_of(base), base, self.file_size)
        if previous is not None:
            at = self.end - self._base
            encode_blank_into(previous, at, self.file_size - at)
        self.files.append(file)
        self.end = base
        self._use(file)

    def _use(self, file: MappedFile) -> None:
        self._map = file.map
        self._base = file.base_offset
        self._limit = file.base_offset + file.size - MIN_BLANK
        self.watch()

    def _look_ahead(self) -> None:
        file = self.files.mapped[-1]
        at = self._allocator.look_ahead(
            file, self.end - file.base_offset, self.files.path_of(file.base_offset + file.size)
        )
        self._watermark = file.base_offset + at
