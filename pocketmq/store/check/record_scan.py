"""Finds the records of one commit-log file, and gaps between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from pocketmq.message.record import decode
from pocketmq.message.record_layout import (
    BLANK_MAGIC,
    MIN_BLANK,
    MIN_RECORD,
    RecordError,
    claimed_end,
    peek,
    size_of_parts,
)
from pocketmq.store.files import MappedFile
from pocketmq.store.log.log_walk import magic_places
from pocketmq.store.log.record_blocks import Records, TopicNames, read_block

_size: Final = Struct(">i").unpack_from


class Gap(NamedTuple):
    """Bytes [begin, end) of a file without a record where one should be. At `end` a record begins,
    or the padding that ends the file, or the file ends."""

    begin: int
    end: int
    reason: str


class FileEnd(NamedTuple):
    """Where the records of a file end, and whether a blank says so."""

    at: int
    blank: bool


Found: TypeAlias = Records | Gap | FileEnd


def scan_file(
    file: MappedFile,
    topics: TopicNames,
    advanced: Callable[[int], None] = lambda _: None,
    *,
    whole: bool = True,
) -> Iterator[Found]:
    """Return what is in a file, in its order: blocks of records, gaps, and at last its end. If a
    gap reaches the end of the file, no end of records follows it.

    `advanced` is called with the number of bytes looked at since the last call. A file that is not
    `whole` was cut short, so that there need be no room for padding after the last record.
    """
    spare = MIN_BLANK if whole else 0
    view, base = file.view, file.base_offset
    at = told = 0
    while True:
        block = read_block(view, base, at, len(view) - spare, topics)
        if block is None:
            found = _stop(file, at, whole=whole)
            yield found
            if isinstance(found, FileEnd) or found.end == file.size:
                advanced(file.size - told)
                return
            at = found.end
            continue
        if len(block.records.at):
            yield block.records
        behind = block.end
        if block.is_bad:
            gap = _gap(file, block.end)
            yield gap
            if gap.end == file.size:
                advanced(file.size - told)
                return
            behind = gap.end
        at = behind
        advanced(at - told)
        told = at


def _stop(file: MappedFile, at: int, *, whole: bool) -> Gap | FileEnd:
    """Describe the bytes where no record begins."""
    if at > file.size - MIN_BLANK:
        return FileEnd(file.size, True) if whole else FileEnd(at, False)
    size, magic = peek(file.view, at)
    if magic == BLANK_MAGIC:
        return FileEnd(at, True)
    if size == 0 and not file.has_data(at):
        return FileEnd(at, False)
    return _gap(file, at)


def _gap(file: MappedFile, at: int) -> Gap:
    """Find out how far the damage at `at` reaches."""
    view, base = file.view, file.base_offset
    try:
        record = decode(view, at)
        reason = f"it belongs to physical offset {record.physical_offset}"
    except RecordError as error:
        reason = error.reason
    size = _size(view, at)[0]
    for length in (size, size_of_parts(view, at)):
        if length is not None and length >= MIN_RECORD and _goes_on(view, base, at + length):
            return Gap(at, at + length, reason)
    for place in magic_places(file, max(at + 1, claimed_end(view, at, base + at))):
        if _is_record(view, base, place):
            return Gap(at, place, reason)
    return Gap(at, file.size, reason)


def _goes_on(view: memoryview, base: int, at: int) -> bool:
    """Return whether a record, or a blank that ends the file, begins at `at`."""
    if at > len(view) - MIN_BLANK:
        return False
    return peek(view, at) == (len(view) - at, BLANK_MAGIC) or _is_record(view, base, at)


def _is_record(view: memoryview, base: int, at: int) -> bool:
    try:
        return decode(view, at).physical_offset == base + at
    except RecordError:
        return False
