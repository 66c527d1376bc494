"""Walks through the records of a commit log, and finds out what follows the last one.

Recovery trusts only what it can decode: a record counts if its magic, its lengths, its body's CRC
and its own physical offset are right. Where the walk ends there may be zeros (the end), a torn
record (a crash while it was written), or worse: a bad place followed by good records. The body's
CRC does not cover the properties; the CRC of the whole record does, if there is one and it is to be
checked (`record_crc`). Where a power failure may have torn a record, zeros in its properties
count as a hole: a sector that is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pocketmq.message.record import Record, decode
from pocketmq.message.record_crc import DIFFERS, is_altered, is_proven
from pocketmq.message.record_layout import (
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    MIN_BLANK,
    CorruptRecord,
    RecordError,
    claimed_end,
    peek,
    size_of_parts,
)
from pocketmq.store.files import MappedFile
from pocketmq.store.log.mapped_file_queue import MappedFileQueue


class Survivors(NamedTuple):
    """Good records after a bad place."""

    physical_offset: int  # of the first one
    store_timestamp: int  # of the first one, ms
    messages: int


class LogWalk:
    """The records from `start` (a record's physical offset, or a file's begin) to the end.

    `timestamp` is the store timestamp of the record before `start`, if that is known. Records that
    end after the physical offset `torn_behind` may have been torn by a power failure; None: no
    record may. The last record may be incomplete if it ends after `cut_behind`. With `whole_crc`, a
    record that differs from its own checksum does not count.

    Attributes:
        end: physical offset after the last good record; right when the iteration is over.
        last: physical offset of the last good record; `start` without one.
        reached: physical offset up to which bytes were read: `end`, or the end of the last file if
            nothing more was written into it.
        store_timestamp: of the last record met (ms).
        torn_behind: as given.
        reason: why the walk ended at `end`; None when the files ended.
    """

    def __init__(
        self,
        files: MappedFileQueue,
        start: int,
        timestamp: int = 0,
        *,
        torn_behind: int | None = None,
        cut_behind: int | None = None,
        whole_crc: bool = False,
    ) -> None:
        self.end = self.reached = self.last = start
        self.store_timestamp = timestamp
        self.reason: RecordError | None = None
        self._files = files
        self.torn_behind = torn_behind
        self._cut_behind = cut_behind
        self._whole_crc = whole_crc

    def __iter__(self) -> Iterator[Record]:
        file = self._files.find(self.end)
        while file is not None:
            base = file.base_offset
            try:
                while (at := self.end - base) <= file.size - MIN_BLANK:
                    record = decode(file.view, at)
                    if record.physical_offset != self.end:
                        raise CorruptRecord(at, f"it belongs to offset {record.physical_offset}")
                    if self._whole_crc and is_altered(file.view[at : at + record.size]):
                        raise CorruptRecord(at, DIFFERS)
                    if self._is_torn(record, file.view[at : at + record.size]):
                        raise CorruptRecord(at, "a part of its properties is missing")
                    self.last = self.end
                    self.end += record.size
                    self.store_timestamp = record.store_timestamp
                    yield record
            except RecordError as error:
                if peek(file.view, at)[1] != BLANK_MAGIC:
                    self.reason = error
                    self.reached = self.end
                    return
            self.reached = base + file.size
            next_file = self._files.find(base + file.size)
            if next_file is not None:
                self.end = next_file.base_offset
            file = next_file

    def next_part(self) -> tuple[MappedFile, int]:
        """Return the file of the next record, and the offset in it after which records may be cut
        short. To be called while a record is looked at."""
        file = self._files.find(self.end - 1)
        assert file is not None
        stop = file.size - MIN_BLANK
        if self._cut_behind is not None:
            stop = min(stop, self._cut_behind - file.base_offset)
        return file, stop

    def pass_over(self, end: int, last: int, store_timestamp: int) -> None:
        """Go on at the physical offset `end` of the same file, after records that somebody else has
        looked at; `last` is the physical offset of the last one."""
        self.end, self.last, self.store_timestamp = end, last, store_timestamp

    def _is_torn(self, record: Record, data: memoryview) -> bool:
        end = record.physical_offset + record.size
        if self.torn_behind is not None and end > self.torn_behind:
            return 0 in record.properties_bytes and not is_proven(data)
        if self._cut_behind is not None and end > self._cut_behind:
            return bytes(record.properties_bytes[-1:]) == b"\0" and not self._has_data_from(end)
        return False

    def interrupted(self) -> bool:
        """Return whether a whole record is at `end` except for its first four bytes, which are
        zero: those are written last, so the record was never acknowledged."""
        file = self._files.find(self.end)
        if file is None:
            return False
        at = self.end - file.base_offset
        size = size_of_parts(file.view, at)
        if size is None or any(file.view[at : at + 4]):
            return False
        whole = bytearray(file.view[at : at + size])
        whole[:4] = size.to_bytes(4, "big")
        try:
            return decode(whole).physical_offset == self.end
        except RecordError:
            return False

    def remains(self) -> bool:
        """Return whether anything but zeros follows `end`."""
        return self._has_data_from(self.end)

    def _has_data_from(self, end: int) -> bool:
        return any(file.has_data(max(0, end - file.base_offset)) for file in self._behind(end))

    def survivors(self, *, wiped: bool) -> Survivors | None:
        """Good records after `end` that were written after the last one before it.

        Older ones are remains of an earlier life of the log that a recovery cut off; unless it
        `wiped` them, as pocketmq's does and the reference's does not. Nor is what only looks like a
        record in the body of one that was not written to its end.
        """
        begin = self._claimed_end()
        for file in self._behind(begin):
            start = max(0, begin - file.base_offset)
            for at in magic_places(file, start):
                try:
                    record = decode(file.view, at)
                except RecordError:
                    continue
                offset = file.base_offset + at
                if record.physical_offset == offset > self.end and (
                    wiped or record.store_timestamp >= self.store_timestamp
                ):
                    messages = sum(1 for _ in LogWalk(self._files, offset))
                    return Survivors(offset, record.store_timestamp, messages)
        return None

    def _claimed_end(self) -> int:
        file = self._files.find(self.end)
        if file is None:
            return self.end
        at = self.end - file.base_offset
        return file.base_offset + claimed_end(file.view, at, self.end)

    def _behind(self, end: int) -> list[MappedFile]:
        return [file for file in self._files.mapped if file.base_offset + file.size > end]


def magic_places(file: MappedFile, start: int) -> Iterator[int]:
    """Return where records may begin, judged by their magic, in rising order within each extent."""
    magics = [magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2)]
    for begin, end in file.data_extents(start):
        # Before 3.11.5, Python's `find` reads the byte after `end`, which may be after the mapping
        # (https://github.com/python/cpython/issues/105235). No record begins in the last bytes.
        end = min(end, file.size - 1)
        found = [(file.map.find(magic, begin, end), magic) for magic in magics]
        while found := [(at, magic) for at, magic in found if at >= 0]:
            at, magic = min(found)
            if at >= start + 4:
                yield at - 4
            found.remove((at, magic))
            found.append((file.map.find(magic, at + 1, end), magic))
