"""The commit log: every message of every topic, one record after another.

A record never crosses the end of a file. Where the next one (and 8 bytes after it) does not fit,
a blank fills the file and the record begins the next one; a batch is treated as one record. Only
the event loop appends, so an append is: `reserve` a place, encode for that physical offset,
`append`. Reference: CommitLog, DefaultAppendMessageCallback.

Appended records gather in a buffer and are written in one go: when it is full, when somebody wants
to read them, and when `write` is called, before which nothing of them may be acknowledged. The
first four bytes, the first record's size, are written last: until then the place reads as "nothing
here", so that neither a crash half-way nor a reader in another process takes a part of a message,
or of a batch, for a whole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from struct import Struct
from time import perf_counter_ns
from typing import Final

from pocketmq.message.buffers import ReadableBuffer
from pocketmq.message.record_layout import (
    MAGIC_V1,
    MAGIC_V2,
    MIN_BLANK,
    MIN_RECORD,
    encode_blank_into,
)
from pocketmq.message.sysflag import BORN_HOST_V6
from pocketmq.store.errors import RecordNotFound
from pocketmq.store.files import MappedFile
from pocketmq.store.log.allocation import FileAllocator
from pocketmq.store.log.mapped_file_queue import MappedFileQueue
from pocketmq.store.log.slow_waits import SlowWaits

log = logging.getLogger(__name__)

_HEAD: Final = Struct(">iI20xqi8x")  # size, magic, physicalOffset, sysFlag
_unpack_i64: Final = Struct(">q").unpack_from
_STORE_TIMESTAMP_AT: Final = (56, 68)  # after an IPv4 or IPv6 born host
_NEVER: Final = 1 << 63
_SIZE_BYTES: Final = 4
_LONG_WAITS: Final = 1000  # a second has no more
_BUFFER: Final = 256 * 1024  # stays in the processor's cache
_JOINED: Final = 64 * 1024  # up to here joining parts and one copy is faster than a copy of each
_LARGEST_BUFFER: Final = 4 * 1024 * 1024


class CommitLog:
    """Append and read; `clock` gives nanoseconds, to find long waits.

    Attributes:
        files: the run of mapped files.
        end: physical offset of the next record.
        written: everything before this physical offset is in the files. Other threads look at this,
            never at `end`.
        whole: physical offset after the last record known to be whole: `written`, except on a
            slave, which gets the log in pieces and checks the records later (`checked`).
        last_write: physical offset at which the last write began: from there to `written` are whole
            records.
        max_record_size: bytes of the largest record (or batch) that fits into a file.
        store_timestamp: of the last record written (ms); moves on after `written` does.
        long_waits: for the files, and how many bytes had to wait.
        on_failed: called with the error each time the buffer cannot be written.
        on_written: called after each write, if it is set: there is more to replicate.
    """

    def __init__(
        self,
        files: MappedFileQueue,
        allocator: FileAllocator,
        *,
        clock: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self._clock = clock
        self.files = files
        self.max_record_size = files.file_size - MIN_BLANK
        self.end = 0
        self.written = 0
        self.whole = 0
        self.last_write = 0
        self.store_timestamp = 0
        self._allocator = allocator
        self._file: MappedFile | None = None  # the one that is appended to
        # Physical offsets: records up to the limit fit into the buffer, and the last one of the
        # file ends at the file's limit. 0 without a file.
        self._limit = 0
        self._file_limit = 0
        self._watermark = _NEVER  # physical offset at which to check the next file
        self._use_buffer(_BUFFER)
        self._last_timestamp = 0  # of the last record in it
        self.long_waits = SlowWaits(_LONG_WAITS)
        self.on_failed: Callable[[OSError], None] = lambda error: None
        self.on_written: Callable[[], None] | None = None

    @property
    def min_offset(self) -> int:
        """Physical offset of the oldest record."""
        return self.files.first_offset

    @property
    def file_size(self) -> int:
        """Bytes of each file."""
        return self.files.file_size

    @property
    def room(self) -> int:
        """Bytes of records that can be appended without a write or a new file."""
        return self._limit - self.end

    def resume(self, end: int, last_write: int) -> None:
        """Go on appending at `end`, which recovery found, after the record at `last_write`. Bytes
        after `end` are removed, so that no later recovery takes remains of an earlier life for
        messages. Raises DiskFull."""
        self.files.truncate(end)
        self.end = self.written = self.whole = end
        self.last_write = last_write
        file = self.files.find(end)
        if file is None:
            self._file, self._limit, self._file_limit = None, 0, 0
        else:
            file = self.files.own(file)
            file.allocate()
            file.zero_from(end - file.base_offset)
            self._use(file)
        for other in self.files.mapped:
            if other is not file:
                self.files.save_descriptor(other)

    def watch(self) -> None:
        """Look ahead from the next write on."""
        self._watermark = self.end

    def reserve(self, size: int) -> int:
        """Return the physical offset at which a record of `size` bytes (≤ `max_record_size`) goes.

        Raises DiskFull when it needs a new file and there is no room, and OSError when the
        buffer cannot be written; the log is unchanged then.
        """
        if self.end + size > self._limit:
            self._make_room(size)
        return self.end

    def widen(self, size: int) -> None:
        """Have `room` for `size` bytes, as far as the file reaches and the largest buffer goes.
        Raises OSError when the buffer cannot be written."""
        if size > self.room:
            self.write()
            self._widen(min(size, _LARGEST_BUFFER))

    def _widen(self, size: int) -> None:
        if size > len(self._buffer):
            self._use_buffer(size)
        self._limit = min(self._file_limit, self.end + len(self._buffer))

    def _use_buffer(self, size: int) -> None:
        self._buffer = bytearray(size)  # the bytes between `written` and `end`
        # To fill it: bytearray's slice assignment first copies anything but a bytearray.
        self._view = memoryview(self._buffer)

    @property
    def place(self) -> tuple[bytearray, int]:
        """Where to encode the record(s) that `reserve` has made room for, before `seal`: a buffer,
        and a byte of it."""
        return self._buffer, self.end - self.written

    def append(self, parts: Sequence[ReadableBuffer], length: int, store_timestamp: int) -> None:
        """Add encoded record(s), `length` bytes in all, at `end`; `reserve` has made the room."""
        begin = self.end - self.written
        if length < _JOINED:
            self._view[begin : begin + length] = b"".join(parts)
        else:
            for part in parts:
                end = begin + len(part)
                self._view[begin:end] = part
                begin = end
        self.seal(length, store_timestamp)

    def seal(self, length: int, store_timestamp: int) -> None:
        """Make the `length` bytes at `place` part of the log."""
        self.end += length
        self._last_timestamp = store_timestamp

    def write(self) -> None:
        """Write the buffer into the file.

        Raises OSError; the buffer is not lost then, but stays for the next time.
        """
        length = self.end - self.written
        if not length:
            return
        file = self._file
        assert file is not None, "reserve was not called"
        at = self.written - file.base_offset
        began = self._clock()
        try:
            file.write(at + _SIZE_BYTES, self._view[_SIZE_BYTES:length])
            file.write(at, self._view[:_SIZE_BYTES])
        except OSError as error:
            error.filename = error.filename or str(file.path)
            self.on_failed(error)
            raise
        self.long_waits.note(self._clock() - began, length)
        self.last_write = self.written
        self.written = self.whole = self.end
        self.store_timestamp = self._last_timestamp
        # A large one is kept for the next large record: allocating it takes longer than filling it.
        if length <= _BUFFER < len(self._buffer):
            self._use_buffer(_BUFFER)
        self._limit = min(self._file_limit, self.end + _BUFFER)
        if self.end > self._watermark:
            self._look_ahead()
        if self.on_written is not None:
            self.on_written()

    # --- a slave's log ------------------------------------------------------------------------

    def begin_at(self, physical_offset: int) -> None:
        """Have an empty log begin at `physical_offset`, where one of the master's files does."""
        assert not self.files.mapped, "the log is not empty"
        self.end = self.written = self.whole = self.last_write = physical_offset

    def append_raw(self, data: memoryview) -> None:
        """Write bytes of a master's log at `written`, past the buffer, whatever they hold. They
        must not cross the end of the file. A file that is full is followed by a new one.

        Raises DiskFull, OSError; the log is unchanged then.
        """
        file = self._file
        if file is None or self.written == file.base_offset + file.size:
            file = self._next_file(self.written)
        at = self.written - file.base_offset
        if at + len(data) > file.size:
            raise ValueError(f"{len(data)} bytes at byte {at} pass the end of {file.path}")
        file.write(at, data)
        self.end = self.written = self.written + len(data)
        self._limit = min(self._file_limit, self.end + _BUFFER)
        if self.end > self._watermark:
            self._look_ahead()

    def checked(self, end: int, store_timestamp: int) -> None:
        """Note that there are only whole records from `whole` up to `end`, the last of which was
        stored at `store_timestamp` (ms)."""
        self.last_write = self.whole
        self.whole = end
        self.store_timestamp = store_timestamp

    def cut(self, end: int) -> None:
        """Forget everything from the record's border `end` on. Raises OSError."""
        self._allocator.forget()
        self.resume(end, 0)

    # --- reading ------------------------------------------------------------------------------

    def read(self, physical_offset: int, size: int) -> memoryview | None:
        """`size` bytes at a physical offset, None where the log does not hold (all of) them, or
        cannot be written. The slice keeps its file mapped."""
        if physical_offset + size > self.written:
            if physical_offset + size > self.end:
                return None
            try:
                self.write()
            except OSError:
                return None
        file = self.files.find(physical_offset)
        if file is None:
            return None
        at = physical_offset - file.base_offset
        return file.view[at : at + size] if at + size <= file.size else None

    def record_at(self, physical_offset: int) -> memoryview:
        """Return the record that begins at `physical_offset`. Raises `RecordNotFound`."""
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
        """Return the store timestamp (ms) of the record there; -1 when the log does not hold it."""
        record = self.read(physical_offset, size)
        if record is None or size < MIN_RECORD:
            return -1
        sys_flag = _HEAD.unpack_from(record)[3]
        at = _STORE_TIMESTAMP_AT[bool(sys_flag & BORN_HOST_V6)]
        timestamp: int = _unpack_i64(record, at)[0]
        return timestamp

    def next_file(self, physical_offset: int) -> int:
        """Return where the file after the one that holds `physical_offset` begins."""
        return physical_offset - physical_offset % self.file_size + self.file_size

    def dirty_files(self, start: int, end: int) -> list[MappedFile]:
        """Return the files with bytes between two physical offsets; any thread may ask."""
        return [
            file
            for file in self.files.mapped
            if file.base_offset < end and file.base_offset + file.size > start
        ]

    def _make_room(self, size: int) -> None:
        self.write()
        if self.end + size > self._file_limit:
            began = self._clock()
            self._roll()
            self.long_waits.note(self._clock() - began, size)
        self._widen(size)

    def _roll(self) -> None:
        """Go on in a new file. The old one gets its padding only once the new one exists."""
        previous = self._file
        base = previous.base_offset + previous.size if previous is not None else self.end
        self._next_file(base)
        if previous is not None and self.end < base:
            at = self.end - previous.base_offset
            encode_blank_into(previous.map, at, previous.size - at)
        self.end = self.written = self.whole = base

    def _next_file(self, base: int) -> MappedFile:
        file = self._allocator.take(self.files.path_of(base), base, self.file_size)
        self.files.append(file)
        self._use(file)
        return file

    def _use(self, file: MappedFile) -> None:
        self._file = file
        self._file_limit = file.base_offset + file.size - MIN_BLANK
        self.watch()

    def _look_ahead(self) -> None:
        file = self.files.mapped[-1]
        at = self._allocator.look_ahead(
            file, self.end - file.base_offset, self.files.path_of(file.base_offset + file.size)
        )
        self._watermark = file.base_offset + at
