"""Walks through the records of a commit-log file, thousands at a time.

Where each record begins is known only from the size of the one before it: a loop in Python finds
that out for some thousand records, and numpy looks at the heads and tails of all of them. Only the
CRC of each body and the tags code are calls for each record, or with the accelerator a loop in C. A
record counts when recovery would take it (`log_walk`).

A separate module, because importing numpy costs an idle broker 16 MB.
"""

from __future__ import annotations

from struct import Struct
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from pocketmq._accelerator import accelerator_wanted
from pocketmq.message.checksum import CRC_MASK, crc32
from pocketmq.message.limits import LIGHT_QUEUE_PREFIX
from pocketmq.message.multi_dispatch import LIGHT_QUEUE_ID, light_places
from pocketmq.message.properties import CRC32, INNER_MULTI_QUEUE_OFFSET
from pocketmq.message.record_crc import FIELD_SIZE, is_altered, is_proven
from pocketmq.message.record_layout import MAGIC_V1, MAGIC_V2, MIN_RECORD
from pocketmq.message.sysflag import (
    INNER_BATCH,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from pocketmq.store.encoding.index_keys import alike_from
from pocketmq.store.encoding.tags_codes import tags_code

IntArray: TypeAlias = npt.NDArray[np.int64]

_size: Final = Struct(">i").unpack_from
_AT_ONCE: Final = 8192  # records
_FEW_TOPICS: Final = 8  # of one length that are looked for in turn: a pass over the block each
_ALIKE: Final = 8  # records of one size after which it is worth while to ask for more of them
_HEAD: Final = 84  # bytes before the length of the body, with IPv4 hosts
_IPV6_MORE: Final = 12
_CRC_NAME: Final = int.from_bytes(CRC32.encode())  # eight bytes
_STORE_TIMESTAMP: Final = 56  # its byte, with an IPv4 born host
_MANY_NAMES: Final = 100_000
_DISPATCHED: Final = INNER_MULTI_QUEUE_OFFSET.encode()


class TopicNames:
    """Numbers for topics, so that arrays can hold them.

    Attributes:
        no_topics: the numbers of names that are light queues', but that records have as topics.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.no_topics: list[int] = []
        self._numbers: dict[bytes, int] = {}
        self._light: dict[str, int] = {}

    @property
    def is_large(self) -> bool:
        """Whether it should be replaced, lest it grows on and on."""
        return len(self.names) > _MANY_NAMES

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
            if name.startswith(LIGHT_QUEUE_PREFIX):
                self.no_topics.append(found)
        return found

    def number_of_light(self, name: str) -> int:
        """Return the number of a light queue."""
        found = self._light.get(name)
        if found is None:
            found = self._light[name] = len(self.names)
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


class Block(NamedTuple):
    """What `read_block` has found.

    Attributes:
        records: those that count.
        end: the offset after them.
        is_bad: whether the sizes before `end` call for another record there, and it does not
            count.
    """

    records: Records
    end: int
    is_bad: bool


def read_block(
    view: memoryview,
    base: int,
    at: int,
    stop: int,
    topics: TopicNames,
    most: int = _AT_ONCE,
    *,
    whole_crc: bool = False,
    torn_behind: int | None = None,
) -> Block | None:
    """Return the records of a file from byte `at` on that end before `stop`, about `most` at most;
    None if the bytes at `at` are too few for a record, or state no possible size.

    Args:
        base: the physical offset of the file's first byte.
        whole_crc: a record that differs from its own checksum does not count.
        torn_behind: nor does one with zeros in its properties that ends after this physical
            offset, unless it has its own checksum.
    """
    places, behind = record_places(view, at, stop, most)
    if not len(places):
        return None
    records, bad = _check(view, base, places, topics)
    if whole_crc and len(rows := altered(view, records)):
        bad = int(rows[0])
        records = records.rows(slice(bad))
    if torn_behind is not None and len(rows := _torn(view, records, torn_behind - base)):
        bad = int(rows[0])
        records = records.rows(slice(bad))
    return Block(records, behind if bad is None else int(places[bad]), bad is not None)


def entry_rows(view: memoryview, records: Records, topics: TopicNames) -> Records:
    """Return a row for each entry that the records of a block get in a queue, as
    `dispatch.places_of`: first for those in their own queues."""
    kind = records.sys_flag & TRANSACTION_MASK
    wanted = (kind != TRANSACTION_PREPARED) & (kind != TRANSACTION_ROLLBACK)
    wanted &= records.sys_flag & INNER_BATCH == 0
    records = records.rows(np.flatnonzero(wanted))
    begin, end = properties_places(view, records)
    rows: list[int] = []
    places: list[tuple[int, int]] = []
    for row in rows_with(view, begin, end, _DISPATCHED).tolist():
        text = str(view[int(begin[row]) : int(end[row])], "utf-8", "replace")
        for name, offset in light_places(topics.names[int(records.topic[row])], text):
            rows.append(row)
            places.append((topics.number_of_light(name), offset))
    own = records
    if topics.no_topics:
        own = records.rows(~np.isin(records.topic, topics.no_topics))
    if not rows:
        return own
    light = records.rows(rows)
    numbers, offsets = np.array(places, np.int64).T
    light = light._replace(
        topic=numbers, queue_id=np.full(len(rows), LIGHT_QUEUE_ID), queue_offset=offsets
    )
    return Records(*map(np.concatenate, zip(own, light, strict=True)))


def rows_with(view: memoryview, begin: IntArray, end: IntArray, part: bytes) -> IntArray:
    """Return the rows of the texts between bytes of a file that contain `part`."""
    if _compiled is None:
        return rows_with_in_python(view, begin, end, part)
    rows = np.empty(len(begin), np.int64)
    return rows[: _compiled.rows_with(view, begin, end, part, rows)]


def rows_with_in_python(view: memoryview, begin: IntArray, end: IntArray, part: bytes) -> IntArray:
    """Do the same without the accelerator."""
    places = enumerate(zip(begin.tolist(), end.tolist(), strict=True))
    rows = [row for row, (first, last) in places if part in view[first:last].tobytes()]
    return np.array(rows, np.int64)


def store_timestamps(view: memoryview, records: Records) -> IntArray:
    """Return when the broker has stored the records of a block, in ms."""
    at = records.at.astype(np.int64) + _STORE_TIMESTAMP
    at += (records.sys_flag >> 4 & 1) * _IPV6_MORE
    return _unaligned(view, ">i8")[at].astype(np.int64)


def properties_places(view: memoryview, records: Records) -> tuple[IntArray, IntArray]:
    """Return the bytes at which the encoded properties of the records of a block begin and end."""
    at = records.at.astype(np.int64)
    return properties_begins(view, at), at + records.size


def properties_begins(view: memoryview, at: IntArray) -> IntArray:
    """Return the bytes at which the encoded properties of the good records at `at` begin."""
    if _compiled is None:
        return properties_begins_in_python(view, at)
    begins = np.empty(len(at), np.int64)
    _compiled.properties_begins(view, at, MAGIC_V2, begins)
    return begins


def properties_begins_in_python(view: memoryview, at: IntArray) -> IntArray:
    """Do the same without the accelerator."""
    i32 = _unaligned(view, ">i4")
    head = at + _head_size(i32[at + 36])
    topic = head + 4 + i32[head]
    u8 = np.frombuffer(view, np.uint8)
    length = u8[topic].astype(np.int64)
    topic += 1
    version_2 = i32[at + 4].view(">u4") == MAGIC_V2
    if version_2.any():
        u16 = _unaligned(view, ">u2")
        length = np.where(version_2, u16[topic - 1].astype(np.int64), length)
        topic += version_2
    begins: IntArray = topic + length + 2
    return begins


def _head_size(sys_flag: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return _HEAD + ((sys_flag >> 4 & 1) + (sys_flag >> 5 & 1)) * _IPV6_MORE


def altered(view: memoryview, records: Records) -> IntArray:
    """Return the rows of the records of a block that differ from their own checksums."""
    place = records.at.astype(np.int64) + records.size - FIELD_SIZE
    rows = np.flatnonzero(_unaligned(view, ">u8")[place] == _CRC_NAME)
    wrong = [
        row
        for row, begin, size in zip(
            rows.tolist(), records.at[rows].tolist(), records.size[rows].tolist(), strict=True
        )
        if is_altered(view[begin : begin + size])
    ]
    return np.array(wrong, np.int64)


def tags_codes(view: memoryview, begin: IntArray, end: IntArray) -> IntArray:
    """Return the tags codes of encoded properties between bytes of a file."""
    if _compiled is None:
        return tags_codes_in_python(view, begin, end)
    codes = np.empty(len(begin), np.int64)
    _compiled.tags_codes(view, begin, end, codes, tags_code)
    return codes


def tags_codes_in_python(view: memoryview, begin: IntArray, end: IntArray) -> IntArray:
    """Do the same without the accelerator."""
    places = zip(begin.tolist(), end.tolist(), strict=True)
    codes = (tags_code(view[first:last].tobytes()) for first, last in places)
    return np.fromiter(codes, np.int64, len(begin))


def _torn(view: memoryview, records: Records, torn_behind: int) -> IntArray:
    """Return the rows of the records that end after a byte and have zeros in their properties, but
    no checksum that says that these were stored (`StoreWriter`)."""
    rows = np.flatnonzero(records.at.astype(np.int64) + records.size > torn_behind)
    if not len(rows):
        return rows
    begin, end = properties_places(view, records.rows(rows))
    first = int(records.at[rows[0]])
    zeros = np.flatnonzero(np.frombuffer(view[first : int(end[-1])], np.uint8) == 0) + first
    with_zeros = rows[np.searchsorted(zeros, begin) != np.searchsorted(zeros, end)]
    torn = [
        row
        for row, at, size in zip(
            with_zeros.tolist(),
            records.at[with_zeros].tolist(),
            records.size[with_zeros].tolist(),
            strict=True,
        )
        if not is_proven(view[at : at + size])
    ]
    return np.array(torn, np.int64)


def record_places(view: memoryview, at: int, stop: int, most: int) -> tuple[IntArray, int]:
    """Return where the next records before `stop` begin, by their sizes alone, and the offset after
    them."""
    if _compiled is None:
        return record_places_in_python(view, at, stop, most)
    places = np.empty(most, np.int64)
    count, behind = _compiled.record_places(view, at, stop, MIN_RECORD, places)
    return places[:count], behind


def record_places_in_python(
    view: memoryview, at: int, stop: int, most: int
) -> tuple[IntArray, int]:
    """Do the same without the accelerator."""
    places: list[int] = []
    add, last = places.append, stop - MIN_RECORD
    before = alike = 0
    while at <= last and len(places) < most:
        size = _size(view, at)[0]
        if size < MIN_RECORD or at + size > stop:
            break
        add(at)
        at += size
        alike = alike + 1 if size == before else 0
        before = size
        if alike == _ALIKE:
            alike = 0
            count = alike_from(view, at, size, min((stop - at) // size, most))
            places += range(at, at + count * size, size)
            at += count * size
    return np.array(places, np.int64), at


def _check(
    view: memoryview, base: int, at: IntArray, topics: TopicNames
) -> tuple[Records, int | None]:
    """Return the records before the first bad one, and its number."""
    found = heads(view, base, at)
    bad = first_wrong_crc(view, found.body, found.body_length, found.crc.astype(np.int32))
    numbers = topic_numbers(view, found.topic[:bad], found.topic_length[:bad], topics)
    if (numbers < 0).any():
        bad = int(np.argmin(numbers >= 0))
    i4 = np.int32  # for less to send between processes
    records = Records(
        at[:bad].astype(i4), found.size[:bad].astype(i4), numbers[:bad].astype(i4),
        found.queue_id[:bad].astype(i4), found.queue_offset[:bad].copy(),
        found.sys_flag[:bad].astype(i4),
    )  # fmt: skip
    return records, bad if bad < len(at) else None


class Heads(NamedTuple):
    """What records say in places that are known by their sizes, a row each.

    Attributes:
        body: the byte at which it begins.
        topic: the byte at which it begins, encoded.
    """

    size: IntArray
    queue_id: IntArray
    queue_offset: IntArray
    sys_flag: IntArray
    crc: IntArray
    body: IntArray
    body_length: IntArray
    topic: IntArray
    topic_length: IntArray


def heads(view: memoryview, base: int, at: IntArray) -> Heads:
    """Return the heads of the records at `at`, as `record_places` gives it, before the first one
    with another magic or physical offset, or whose lengths do not fit its size."""
    if _compiled is None:
        return heads_in_python(view, base, at)
    columns = np.empty((len(Heads._fields), len(at)), np.int64)
    count = _compiled.heads(view, base, at, MAGIC_V1, MAGIC_V2, columns)
    return Heads(*columns[:, :count])


def heads_in_python(view: memoryview, base: int, at: IntArray) -> Heads:
    """Do the same without the accelerator."""
    i32, i64 = _unaligned(view, ">i4"), _unaligned(view, ">i8")
    u16, u8 = _unaligned(view, ">u2"), np.frombuffer(view, np.uint8)
    size = i32[at].astype(np.int64)
    end = at + size
    magic = i32[at + 4].view(">u4")
    version_2 = magic == MAGIC_V2
    sys_flag = i32[at + 36].astype(np.int64)
    head = at + _head_size(sys_flag)
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
    columns = (
        size, i32[at + 12], i64[at + 20], sys_flag, i32[at + 8], body, body_length, topic,
        topic_length,
    )  # fmt: skip
    return Heads(*(column[:bad].astype(np.int64) for column in columns))


def first_wrong_crc(
    view: memoryview, body: IntArray, length: IntArray, expected: npt.NDArray[np.int32]
) -> int:
    """Return the index of the first body whose CRC differs from the expected one; without one, the
    number of bodies. An empty body has no CRC."""
    if _compiled is None:
        return first_wrong_crc_in_python(view, body, length, expected)
    number: int = _compiled.first_wrong_crc(view, body, length, expected, crc32, CRC_MASK)
    return number


def first_wrong_crc_in_python(
    view: memoryview, body: IntArray, length: IntArray, expected: npt.NDArray[np.int32]
) -> int:
    """Do the same without the accelerator."""
    bodies = map(view.__getitem__, map(slice, body.tolist(), (body + length).tolist()))
    crcs = np.fromiter(map(crc32, bodies), np.int64, len(body)) & CRC_MASK
    wrong = np.flatnonzero((crcs != expected) & (length > 0))
    return int(wrong[0]) if len(wrong) else len(body)


def topic_numbers(
    view: memoryview, begin: IntArray, length: IntArray, topics: TopicNames
) -> IntArray:
    """Return the numbers of the topics between bytes of a file; -1 for one that is not UTF-8."""
    if _compiled is None:
        return topic_numbers_in_python(view, begin, length, topics)
    numbers = np.empty(len(begin), np.int64)
    _compiled.topic_numbers(view, begin, length, numbers, topics.number)
    return numbers


def topic_numbers_in_python(
    view: memoryview, begin: IntArray, length: IntArray, topics: TopicNames
) -> IntArray:
    """Do the same without the accelerator. Most blocks have few topics."""
    numbers = np.full(len(begin), -1, np.int64)
    for each in np.unique(length).tolist():
        rows = np.flatnonzero(length == each)
        if not each:
            numbers[rows] = topics.number(b"")
            continue
        for _ in range(_FEW_TOPICS):
            if not len(rows):
                break
            first = begin[rows[0]]
            same = _alike(view, begin[rows], each)
            numbers[rows[same]] = topics.number(bytes(view[first : first + each]))
            rows = rows[~same]
        if len(rows):
            names = _unaligned(view, f"V{each}")[begin[rows]].tolist()
            numbers[rows] = list(map(topics.number, names))
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


def _find() -> ModuleType | None:
    if not accelerator_wanted():
        return None
    try:
        from pocketmq.store.log import _compiled_blocks
    except ImportError:
        return None
    return _compiled_blocks


_compiled = _find()
