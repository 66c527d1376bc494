"""Finds the records of one commit-log file, and the places where there should be some.

Where each record begins is known only from the size of the one before it: a loop in Python finds
that out for some thousand records, and numpy looks at the heads and tails of all of them. Only the
CRC of each body is one call in C. A record counts when recovery would take it (`log_walk`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from pocketmq.message.checksum import CRC_MASK, crc32
from pocketmq.message.record import (
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    MIN_BLANK,
    MIN_RECORD,
    RecordError,
    decode,
    peek,
    size_of_parts,
)
from pocketmq.store.files import MappedFile
from pocketmq.store.index.index_keys import alike_from
from pocketmq.store.log.log_walk import magic_places

IntArray: TypeAlias = npt.NDArray[np.int64]

_size: Final = Struct(">i").unpack_from
_AT_ONCE: Final = 8192  # records
_ALIKE: Final = 8  # records of one size after which it is worth while to ask for more of them
_HEAD: Final = 84  # bytes before the length of the body, with IPv4 hosts
_IPV6_MORE: Final = 12


class TopicNames:
    """Numbers for topics, so that arrays can hold them."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[bytes, int] = {}

    def number(self, topic: bytes) -> int:
        """Return the number of an encoded topic; -1 when it is not UTF-8."""
        found = self._numbers.get(topic)
        if found is None:
            try:
                name = topic.decode()
            except UnicodeDecodeError:
                return -1
            found = self._numbers[topic] = len(self.names)
            self.names.append(name)
        return found


class Records(NamedTuple):
    """Records of one file, one row each, in its order. Any integer type will do.

    Attributes:
        at: the byte of the file at which it begins.
        topic: a number of `TopicNames`.
    """

    at: npt.NDArray[Any]
    size: npt.NDArray[Any]
    topic: npt.NDArray[Any]
    queue_id: npt.NDArray[Any]
    queue_offset: npt.NDArray[Any]
    sys_flag: npt.NDArray[Any]

    def rows(self, rows: Any) -> Records:
        """Return the rows of a mask, a slice, or of numbers."""
        return Records(*(column[rows] for column in self))


class Gap(NamedTuple):
    """Bytes [begin, end) of a file in which there is no record, though there should be: at `end`
    there is a record, or the blank that ends the file, or the end of the file."""

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
    """Return what is in a file, in its order: blocks of records, gaps, and at last its end. A gap
    that reaches the end of the file has no end of records behind it.

    `advanced` is called with the bytes that were looked at since the last call. A file that is not
    `whole` was cut short, so that there need be no room for a blank behind the last record.
    """
    spare = MIN_BLANK if whole else 0
    view, base = file.view, file.base_offset
    at = told = 0
    while True:
        places, behind = _places(view, at, len(view) - spare)
        if not places:
            found = _stop(file, at, whole=whole)
            yield found
            if isinstance(found, FileEnd) or found.end == file.size:
                advanced(file.size - told)
                return
            at = found.end
            continue
        records, bad = _check(view, base, np.array(places, np.int64), topics)
        if len(records.at):
            yield records
        if bad is not None:
            gap = _gap(file, places[bad])
            yield gap
            if gap.end == file.size:
                advanced(file.size - told)
                return
            behind = gap.end
        at = behind
        advanced(at - told)
        told = at


def _places(view: memoryview, at: int, stop: int) -> tuple[list[int], int]:
    """Return where the next records before `stop` begin, as far as their sizes tell, and the byte
    behind them."""
    places: list[int] = []
    add, last = places.append, stop - MIN_RECORD
    before = alike = 0
    while at <= last and len(places) < _AT_ONCE:
        size = _size(view, at)[0]
        if size < MIN_RECORD or at + size > stop:
            break
        add(at)
        at += size
        alike = alike + 1 if size == before else 0
        before = size
        if alike == _ALIKE:
            alike = 0
            count = alike_from(view, at, size, min((stop - at) // size, _AT_ONCE))
            places += range(at, at + count * size, size)
            at += count * size
    return places, at


def _stop(file: MappedFile, at: int, *, whole: bool) -> Gap | FileEnd:
    """Say what lies where no record begins."""
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
    for place in magic_places(file, at + 1):
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


def _check(
    view: memoryview, base: int, at: IntArray, topics: TopicNames
) -> tuple[Records, int | None]:
    """Return the records before the first bad one, and its number."""
    i32, i64 = _unaligned(view, ">i4"), _unaligned(view, ">i8")
    u16, u8 = _unaligned(view, ">u2"), np.frombuffer(view, np.uint8)
    size = i32[at].astype(np.int64)
    end = at + size
    magic = i32[at + 4].view(">u4")
    version_2 = magic == MAGIC_V2
    sys_flag = i32[at + 36].astype(np.int64)
    head = at + _HEAD + ((sys_flag >> 4 & 1) + (sys_flag >> 5 & 1)) * _IPV6_MORE
    good = (magic == MAGIC_V1) | version_2
    good &= i64[at + 28] == base + at
    good &= head + 7 <= end
    body = head + 4
    body_length = i32[np.where(good, head, 0)].astype(np.int64)
    topic = body + body_length + 1 + version_2
    good &= (body_length >= 0) & (topic + 2 <= end)
    place = np.where(good, topic, 2)
    topic_length = u8[place - 1].astype(np.int64)
    if version_2.any():
        topic_length = np.where(version_2, u16[place - 2].astype(np.int64), topic_length)
    properties = topic + topic_length
    good &= properties + 2 <= end
    good &= properties + 2 + u16[np.where(good, properties, 0)] == end
    bad = int(np.argmin(good)) if not good.all() else len(at)
    bad = min(bad, _first_wrong_crc(view, i32, at[:bad], body[:bad], body_length[:bad]))
    numbers = _topics(view, topic[:bad], topic_length[:bad], topics)
    if (numbers < 0).any():
        bad = int(np.argmin(numbers >= 0))
    i4 = np.int32  # for less to send between processes
    records = Records(
        at[:bad].astype(i4), size[:bad].astype(i4), numbers[:bad].astype(i4),
        i32[at[:bad] + 12].astype(i4), i64[at[:bad] + 20].astype(np.int64),
        sys_flag[:bad].astype(i4),
    )  # fmt: skip
    return records, bad if bad < len(at) else None


def _first_wrong_crc(
    view: memoryview, i32: npt.NDArray[Any], at: IntArray, body: IntArray, length: IntArray
) -> int:
    """Return the number of the first record whose body has another CRC than it says; without one,
    how many there are."""
    bodies = map(view.__getitem__, map(slice, body.tolist(), (body + length).tolist()))
    crcs = np.fromiter(map(crc32, bodies), np.int64, len(at)) & CRC_MASK
    wrong = np.flatnonzero((crcs != i32[at + 8]) & (length > 0))
    return int(wrong[0]) if len(wrong) else len(at)


def _topics(view: memoryview, begin: IntArray, length: IntArray, topics: TopicNames) -> IntArray:
    """Return the numbers of topics. Most blocks have few of them."""
    numbers = np.full(len(begin), -1, np.int64)
    for each in np.unique(length).tolist():
        rows = np.flatnonzero(length == each)
        if not each:
            numbers[rows] = topics.number(b"")
            continue
        while len(rows):
            first = begin[rows[0]]
            same = _alike(view, begin[rows], each)
            numbers[rows[same]] = topics.number(bytes(view[first : first + each]))
            rows = rows[~same]
    return numbers


def _alike(view: memoryview, begin: IntArray, length: int) -> npt.NDArray[np.bool_]:
    """Return which texts of one length are equal to the first one. They are compared in words of up
    to eight bytes, the last of which may overlap the one before it: a tenth of the time of single
    bytes."""
    width = min(8, 1 << length.bit_length() - 1)
    words = _unaligned(view, f"u{width}")
    same = np.ones(len(begin), bool)
    for at in (*range(0, length - width, width), length - width):
        word = words[begin + at]
        same &= word == word[0]
    return same


def _unaligned(view: memoryview, dtype: str) -> npt.NDArray[Any]:
    """Return the numbers that begin at every byte."""
    width = np.dtype(dtype).itemsize
    return np.ndarray((len(view) - width + 1,), dtype, view, 0, (1,))
