"""Splits the ranges of queues into partitions that can be read side by side.

The queues of a store lie interleaved in one commit log. So a store is cut at places in its log, and
a partition holds the ranges of all queues between two such places: every page of the log is read
by one partition, in order, instead of by one for each queue. Small queues end up together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from pocketmq.store.encoding.entry_array import EntryArray
from pocketmq.store.scan.queues.queue_slice import FILLER_SIZE, QueueSlice
from pocketmq.store.scan.scanned_store import ScannedQueue

SPLIT_BYTES: Final = 128 * 1024 * 1024
"""A partition holds about this much, unless more partitions are asked for."""
WORTH_A_CORE: Final = 4 * 1024 * 1024
"""Less than this is not split only to keep another core busy."""
_SAMPLES: Final = 16
"""Places looked at per partition to find where to cut."""


@dataclass(frozen=True, slots=True)
class PartitionLimits:
    """How finely to split.

    Attributes:
        least: partitions, if there are as many records.
        cores: partitions that are worth having when there is enough to read for each.
        most_records: in one partition; None for no limit.
        wider: how many times the usual size a partition has, because little of it is read.
    """

    least: int = 1
    cores: int = 1
    most_records: int | None = None
    wider: int = 1

    def partitions(self, records: int, size: int, usual: int, worth_a_core: int) -> int:
        """Return how many partitions to make of some records, at least one, that come to a `size`
        in bytes or other units: of `usual` size, or smaller to keep cores busy, but not smaller
        than `worth_a_core`."""
        count = max(
            self.least,
            -(-size // (usual * self.wider)),
            min(self.cores, size // worth_a_core),
            -(-records // self.most_records) if self.most_records else 1,
            1,
        )
        return min(count, records)


class Sample(NamedTuple):
    """The physical offset of a record, and the (estimated) bytes that it represents."""

    physical: int
    size: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """A range of a queue that is to be read."""

    queue: ScannedQueue
    slice: QueueSlice

    def entry(self, number: int) -> tuple[int, int]:
        """Return the physical offset and size of the record with this number, or the next one."""
        offset = self.queue.after_fillers(self.slice.offset_of(number))
        if offset < self.slice.known_end:
            return self.queue.entry(offset)
        tail = self.slice.tail
        at = int(np.searchsorted(tail.offset, offset))
        if at < len(tail.offset):
            return int(tail.physical[at]), int(tail.size[at])
        return max(self.queue.max_physical(), 0), 0

    def sample(self, count: int) -> list[Sample]:
        """Return samples of up to `count` equal parts of the slice."""
        records = len(self.slice)
        count = min(count, records)
        entries = [self.entry(records * number // count) for number in range(count)]
        return [Sample(physical, size * records // count) for physical, size in entries]

    def bytes(self) -> int:
        """Return the bytes of the records, estimated if they are many."""
        entries = self._entries()
        if entries is not None:
            sizes = entries["size"]
            return int(sizes.sum(where=sizes != FILLER_SIZE))
        return sum(size for _, size in self.sample(_SAMPLES))

    def numbers_from(self, places: Sequence[int]) -> list[int]:
        """Return for each physical offset (in order) the number of records before it."""
        entries = self._entries()
        if entries is not None and not (entries["size"] == FILLER_SIZE).any():
            return list(map(int, np.searchsorted(entries["physical"], places)))
        numbers = []
        begin = 0
        for place in places:
            records = range(begin, len(self.slice))
            begin += bisect_left(records, place, key=lambda number: self.entry(number)[0])
            numbers.append(begin)
        return numbers

    def _entries(self) -> EntryArray | None:
        """Return its entries if they are in memory and nothing else is needed."""
        part = self.slice
        if part.stop > part.known_end:
            return None
        return self.queue.entries(part.start, part.stop)


def partitions(wanted: Sequence[Wanted], limits: PartitionLimits) -> list[list[QueueSlice]]:
    """Return the slices of one store in partitions, each of which has at least one record."""
    wanted = [part for part in wanted if len(part.slice)]
    sizes = [part.bytes() for part in wanted]
    total = sum(sizes)
    records = sum(len(part.slice) for part in wanted)
    if not records:
        return []
    count = limits.partitions(records, total, SPLIT_BYTES, WORTH_A_CORE)
    cuts = _cuts(wanted, sizes, count)
    split: list[list[QueueSlice]] = [[] for _ in range(len(cuts) + 1)]
    for part in wanted:
        for number, piece in enumerate(_pieces(part, cuts)):
            if len(piece):
                split[number].append(piece)
    found = [slices for slices in split if slices]
    most = limits.most_records or records
    found = [piece for slices in found for piece in _at_most(slices, most)]
    while len(found) < min(limits.least, records):
        largest = max(range(len(found)), key=lambda number: _records(found[number]))
        half = -(-_records(found[largest]) // 2)
        found[largest : largest + 1] = _at_most(found[largest], half)
    return found


def _cuts(wanted: Sequence[Wanted], sizes: Sequence[int], count: int) -> list[int]:
    """Return physical offsets that cut the wanted records into `count` parts of equal size."""
    if count < 2:
        return []
    per_byte = _SAMPLES * count / max(sum(sizes), 1)
    samples = [
        sample
        for part, size in zip(wanted, sizes, strict=True)
        for sample in part.sample(int(size * per_byte) + 1)
    ]
    return cuts_between(samples, count)


def cuts_between(samples: Iterable[Sample], count: int) -> list[int]:
    """Return physical offsets that cut the represented records into `count` parts of equal size."""
    samples = sorted(samples)
    cuts: list[int] = []
    seen = 0
    step = sum(sample.size for sample in samples) / count
    for place, size in samples:
        if seen >= step * (len(cuts) + 1) and (not cuts or place > cuts[-1]):
            cuts.append(place)
        seen += size
    return cuts[: count - 1]


def _pieces(part: Wanted, cuts: Sequence[int]) -> Iterator[QueueSlice]:
    """Return the slice of a queue, cut at physical offsets."""
    whole = part.slice
    begin = 0
    for end in part.numbers_from(cuts):
        yield whole.cut(whole.offset_of(begin), whole.offset_of(end))
        begin = end
    yield whole.cut(whole.offset_of(begin), whole.stop)


def _at_most(slices: list[QueueSlice], most: int) -> Iterator[list[QueueSlice]]:
    """Return the same slices in lists of at most `most` records."""
    current: list[QueueSlice] = []
    room = most
    for part in slices:
        begin = 0
        while begin < len(part):
            end = min(len(part), begin + room)
            current.append(part.cut(part.offset_of(begin), part.offset_of(end)))
            room -= end - begin
            begin = end
            if room == 0:
                yield current
                current, room = [], most
    if current:
        yield current


def _records(slices: list[QueueSlice]) -> int:
    return sum(map(len, slices))
