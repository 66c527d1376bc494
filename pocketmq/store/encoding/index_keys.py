"""Finds the index keys of many records at once and hashes them, without a loop over records.

A record's body is followed by its topic and its properties. These tails, one after another in one
buffer, are searched by numpy: every 0x01 ends a property's name, and whether the bytes before it
are `UNIQ_KEY` or `KEYS` is one comparison of integers.

Java's hash of a string is a polynomial in 31 modulo 2^32, and 31 has an inverse there. So one
running sum over the whole buffer, of each byte times a power of that inverse, gives the hash of any
part of it: the difference of two sums, times a power of 31. Reference: IndexService.buildIndex,
MessageDecoder.string2messageProperties.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from pocketmq.message.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQ_KEY
from pocketmq.message.sysflag import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from pocketmq.message.tags import string_hash
from pocketmq.store.encoding.key_hash import TAG_MARK, key_hash

IntArray: TypeAlias = npt.NDArray[np.int64]
_Words: TypeAlias = npt.NDArray[np.uint32]

_UNIQ_NAME: Final = UNIQ_KEY.encode()
_KEYS_NAME: Final = KEYS.encode()
_TAGS_NAME: Final = TAGS.encode()
_UNIQ_KEY: Final = int.from_bytes(_UNIQ_NAME, "little")
_KEYS: Final = int.from_bytes(_KEYS_NAME, "little")
_TAGS: Final = int.from_bytes(_TAGS_NAME, "little")
_BLANK: Final = KEY_SEPARATOR.encode()
_INVERSE: Final = pow(31, -1, 2**32)
_HASH_SIGN: Final = ord("#")
_TAG_MARK: Final = string_hash(TAG_MARK)
_TAG_MARK_POWER: Final = 31 ** len(TAG_MARK)
_V2_LOW_BYTE: Final = 0xAB
_ASCII: Final = 0x7F
_FEW: Final = 16
_ALIKE_FIRST: Final = 64
_IPV6_MORE: Final = 12  # bytes that an IPv6 host is longer than an IPv4 host


class KeyBatch(NamedTuple):
    """Keys in the order in which they are entered.

    Attributes:
        hash: of `topic#key`, 0 to 2^31-1.
        physical: offset of the message in the commit log.
        timestamp: its store timestamp (ms).
    """

    hash: IntArray
    physical: IntArray
    timestamp: IntArray

    def __len__(self) -> int:
        return len(self.hash)

    def slice(self, start: int, stop: int | None = None) -> KeyBatch:
        """Return the keys with these numbers."""
        part = slice(start, stop)
        return KeyBatch(self.hash[part], self.physical[part], self.timestamp[part])

    def without(self, physical_offset: int, count: int) -> KeyBatch:
        """Without those of messages before a physical offset, and the first `count` of the one
        there."""
        return self.slice(int(np.searchsorted(self.physical, physical_offset)) + count)


def keys_of(data: memoryview, base: int, places: Sequence[int]) -> KeyBatch:
    """Return the keys of the records that begin at `places` within `data`, a commit-log file that
    begins at the physical offset `base`.

    Of each message its UNIQ_KEY, the parts of its KEYS, and its TAGS as one key after `TAG_MARK`,
    in this order; none of rolled-back transactions. Records whose lengths do not add up have none.
    """
    at = np.array(places, np.int64)
    numbers = _unaligned(data, ">i4")
    sys_flag = numbers[at + 36]
    at = at[sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK]
    tails = _Tails(data, numbers, at)
    alike = tails.keys_alike() if len(tails.at) > _FEW else None
    if alike is not None:
        rows, hashes = alike
    else:
        rows, begins, ends, tags = tails.keys()
        hashes = tails.hashes(rows, begins, ends, tags)
    return KeyBatch(hashes, base + tails.at[rows], tails.timestamp[rows])


def alike_from(data: memoryview, at: int, size: int, most: int) -> int:
    """Return the number of records from byte `at` on, at most `most`, that have `size` bytes each:
    the messages of a producer often have. The heads of all `most` must be within `data`."""
    known, count = 0, _ALIKE_FIRST
    while known < most:
        # Few at first: with many queues such runs are short, and follow one another.
        count = min(count, most - known)
        sizes = np.ndarray((count,), ">i4", data, at + known * size, (size,))
        other = np.flatnonzero(sizes != size)
        if len(other):
            return known + int(other[0])
        known += count
        count *= 4
    return most


class _Tails:
    """Topics and properties of records, gathered in one buffer. A row is a record."""

    def __init__(self, data: memoryview, numbers: npt.NDArray[Any], at: IntArray) -> None:
        sys_flag = numbers[at + 36]
        born_more = (sys_flag >> 4 & 1) * _IPV6_MORE
        store_more = (sys_flag >> 5 & 1) * _IPV6_MORE
        end = at + numbers[at]
        tail = at + 84 + born_more + store_more
        tail += 4 + numbers[np.minimum(tail, len(numbers) - 1)]
        version_2 = np.frombuffer(data, np.uint8)[at + 7] == _V2_LOW_BYTE
        whole = (tail > at) & (tail + 3 + version_2 <= end) & (end <= len(data))
        if not whole.all():
            at, end, tail, version_2 = at[whole], end[whole], tail[whole], version_2[whole]
            born_more = born_more[whole]
        self.at = at
        self.timestamp = _unaligned(data, ">i8")[at + 56 + born_more].astype(np.int64)
        self.bytes = _gather(data, tail, end)
        self.text = np.frombuffer(self.bytes or b"\0", np.uint8)[: len(self.bytes)]
        self.end = np.cumsum(end - tail)
        self.begin = self.end - (end - tail)
        length = self.text[self.begin].astype(np.int64)
        if version_2.any():
            low = self.text[self.begin + 1]
            length = np.where(version_2, length << 8 | low, length)
        self.topic = self.begin + 1 + version_2
        self.topic_end = np.minimum(self.topic + length, self.end - 2)
        self.properties = self.topic_end + 2

    def keys_alike(self) -> tuple[IntArray, IntArray] | None:
        """Row and hash of every key, as `keys` and `hashes` have them, when the first row shows
        where they are in all; else None.

        So it is when all are of one length, of ASCII, and differ only in the values of properties,
        and there neither in blanks nor in control characters: the messages of one producer, mostly.
        """
        count, length = len(self.at), int(self.end[0])
        topic, properties = int(self.topic[0]), int(self.properties[0])
        if (
            (np.diff(self.end) != length).any()
            or (self.topic - self.begin != topic).any()
            or (self.properties - self.begin != properties).any()
        ):
            return None
        text = self.bytes[:length]
        worth = np.zeros(length, bool)  # which bytes are of a property's value
        values: dict[bytes, tuple[int, int]] = {}
        at = properties
        for entry in text[properties:].split(b"\2"):
            name, _, value = entry.partition(b"\1")
            begin, end = at + len(entry) - len(value), at + len(entry)
            worth[begin:end] = True
            if value:
                values[name] = (begin, end)
            at = end + 1
        table = self.text.reshape(count, length)
        low, high = table.min(0), table.max(0)
        differ = low != high
        topic_end = properties - 2
        hashed = worth.copy()
        hashed[topic:topic_end] = True
        if (
            (differ & ~worth).any()
            or (differ & (low <= _BLANK[0])).any()
            or (hashed & (high > _ASCII)).any()
        ):
            return None
        prefix = f"{text[topic:topic_end].decode()}#"
        of_key, of_tags = string_hash(prefix), string_hash(prefix + TAG_MARK)
        keys = [(of_key, *values[_UNIQ_NAME])] if _UNIQ_NAME in values else []
        begin, end = values.get(_KEYS_NAME, (0, 0))
        for part in text[begin:end].split(_BLANK):
            if part:
                keys.append((of_key, begin, begin + len(part)))
            begin += len(part) + 1
        if _TAGS_NAME in values:
            keys.append((of_tags, *values[_TAGS_NAME]))
        hashes = np.empty((count, len(keys)), np.int64)
        power, _ = _powers(length)
        for number, (before, begin, end) in enumerate(keys):
            sums = table[:, begin:end].astype(np.uint32) @ power[: end - begin][::-1]
            sums += np.uint32(before * 31 ** (end - begin) % 2**32)
            hashes[:, number] = _folded(sums)
        return np.repeat(np.arange(count), len(keys)), hashes.ravel()

    def keys(self) -> tuple[IntArray, IntArray, IntArray, npt.NDArray[np.bool_]]:
        """Row, begin and end of every key, and whether it is of tags, in the order in which they
        are entered."""
        names = np.flatnonzero(self.text == 1)
        row = np.searchsorted(self.begin, names, "right") - 1
        closing = np.append(np.flatnonzero(self.text == 2), len(self.text))
        unique = self._values(names, row, closing, "<u8", _UNIQ_KEY)
        several = self._split(*self._values(names, row, closing, "<u4", _KEYS))
        tags = self._values(names, row, closing, "<u4", _TAGS)
        all_of_them = zip(unique, several, tags, strict=True)
        rows, begins, ends = (np.concatenate(columns) for columns in all_of_them)
        order = np.argsort(rows, kind="stable")
        of_tags = order >= len(rows) - len(tags[0])
        return rows[order], begins[order], ends[order], of_tags

    def _values(
        self, names: IntArray, row: IntArray, closing: IntArray, word: str, name: int
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Row, begin and end of the values of one property: the last non-empty one of each row.
        `names` are the offsets after names, `name` the wanted one as a `word`."""
        width = np.dtype(word).itemsize
        begin = names - width
        wanted = begin >= self.properties[row]
        wanted[wanted] = _unaligned(self.bytes, word)[begin[wanted]] == name
        names, row, begin = names[wanted], row[wanted], begin[wanted]
        # Else it is the end of a longer name, or lies within a value.
        wanted = (begin == self.properties[row]) | (self.text[begin - 1] == 2)
        value, row = names[wanted] + 1, row[wanted]
        end = np.minimum(closing[np.searchsorted(closing, value)], self.end[row])
        filled = value < end
        value, end, row = value[filled], end[filled], row[filled]
        last = np.append(row[1:] != row[:-1], True)[: len(row)]
        return row[last], value[last], end[last]

    def _split(
        self, row: IntArray, begin: IntArray, end: IntArray
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Return the parts between blanks. Nearly always there is one."""
        blank = np.flatnonzero(self.text == _BLANK[0])
        several = np.searchsorted(blank, end) > np.searchsorted(blank, begin)
        if not several.any():
            return row, begin, end
        parts: list[tuple[int, int, int]] = []
        for number, at, stop in zip(
            row[several].tolist(), begin[several].tolist(), end[several].tolist(), strict=True
        ):
            for part in self.bytes[at:stop].split(_BLANK):
                if part:
                    parts.append((number, at, at + len(part)))
                at += len(part) + 1
        columns = np.array(parts, np.int64).reshape(-1, 3).T
        alone = ~several
        return (
            np.append(row[alone], columns[0]),
            np.append(begin[alone], columns[1]),
            np.append(end[alone], columns[2]),
        )

    def hashes(
        self, row: IntArray, begin: IntArray, end: IntArray, tags: npt.NDArray[np.bool_]
    ) -> IntArray:
        """Return the hash of topic#key of every key; the arguments are the result of `keys`."""
        power, inverse = _powers(len(self.text) + 1)
        sums = np.zeros(len(self.text) + 1, np.uint32)
        np.cumsum(self.text * inverse[: len(self.text)], out=sums[1:])
        topic, topic_end = self.topic[row], self.topic_end[row]
        value = (sums[topic_end] - sums[topic]) * power[np.maximum(topic_end - 1, 0)]
        value = value * np.uint32(31) + np.uint32(_HASH_SIGN)
        marked = value * np.uint32(_TAG_MARK_POWER) + np.uint32(_TAG_MARK)
        value = np.where(tags, marked, value)
        value = value * power[end - begin] + (sums[end] - sums[begin]) * power[end - 1]
        hashes = _folded(value)
        high = np.flatnonzero(self.text > _ASCII)
        if len(high):
            foreign = np.searchsorted(high, end) > np.searchsorted(high, begin)
            foreign |= np.searchsorted(high, topic_end) > np.searchsorted(high, topic)
            for number in np.flatnonzero(foreign).tolist():
                key = str(self.bytes[begin[number] : end[number]], "utf-8", "replace")
                hashes[number] = key_hash(
                    str(self.bytes[topic[number] : topic_end[number]], "utf-8", "replace"),
                    TAG_MARK + key if tags[number] else key,
                )
        return hashes


def _folded(value: _Words) -> IntArray:
    """Hashes as `key_hash` folds them."""
    hashes: IntArray = np.abs(value.view(np.int32).astype(np.int64))
    hashes[hashes == 2**31] = 0
    return hashes


def _gather(data: memoryview, begin: IntArray, end: IntArray) -> bytes:
    """Return the pieces of `data` one after another."""
    length = end - begin
    if len(length) and (length == length[0]).all():
        # A record of numpy's is copied as a whole: 0.01 µs per piece, not 0.25.
        pieces: bytes = _unaligned(data, f"V{length[0]}")[begin].tobytes()
        return pieces
    # Slicing in Python is quicker than any way of numpy to gather pieces of unequal length.
    return b"".join([data[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True)])


def _unaligned(data: bytes | memoryview, word: str) -> npt.NDArray[Any]:
    """Return the words that begin at each byte of `data`."""
    count = max(0, len(data) - np.dtype(word).itemsize + 1)
    return np.ndarray((count,), word, data, strides=(1,))


_power_tables: tuple[_Words, _Words] = (np.ones(0, np.uint32), np.ones(0, np.uint32))


def _powers(count: int) -> tuple[_Words, _Words]:
    """At least `count` powers of 31, and of its inverse, modulo 2^32."""
    global _power_tables
    if len(_power_tables[0]) < count:
        size = 1 << (count - 1).bit_length()
        tables = []
        for base in (31, _INVERSE):
            table = np.full(size, base, np.uint32)
            table[0] = 1
            tables.append(np.cumprod(table, dtype=np.uint32))
        _power_tables = (tables[0], tables[1])
    return _power_tables
