"""Finds what can be archived: parts of a store's log that no longer change, with all entries.

A part ends with a file of the log, or, on demand, after the last flushed record. A broker adds
records to their queues in the order of the log. So if a first look at the queues finds the entry of
a record, a second look finds those of all records before it. Later records are left for the next
sync.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pocketmq.message.record_layout import BLANK_MAGIC, MIN_BLANK, peek
from pocketmq.store.scan.flushed import FlushedEnds
from pocketmq.store.scan.planning.snapshot import State, StoreSnapshot
from pocketmq.store.scan.planning.tail import take_snapshot
from pocketmq.store.scan.queues.queue_slice import FILLER_SIZE
from pocketmq.store.scan.queues.queue_snapshot import QueueSnapshot
from pocketmq.store.scan.queues.segments import Segments


class Span(NamedTuple):
    """Physical offsets [begin, end) within one file of a log."""

    begin: int
    end: int


class SealedLog(NamedTuple):
    """A store, and the end of the part of its log that can be archived.

    Attributes:
        end: the physical offset after the last record that can be archived.
    """

    store: StoreSnapshot
    end: int

    def spans(self, start: int, *, whole_files: bool) -> Iterator[Span]:
        """Return the parts that can be archived from the physical offset `start` on, in order. With
        `whole_files`, each ends with its file."""
        for segment in self.store.log.all:
            file_end = segment.base + segment.size
            begin, end = max(start, segment.base), min(self.end, file_end)
            if begin < end and (end == file_end or not whole_files):
                yield Span(begin, end)


def sealed_log(root: Path) -> SealedLog:
    """Return the store at `root` with the parts that can be archived.

    Raises:
        NoStore: it does not exist.
    """
    first = take_snapshot(root)
    flushed = FlushedEnds(first)
    ends = (_end_before(queue, flushed.of(queue)) for queue in first.queues.values())
    end = _behind_blank(first.log, max(ends, default=0))
    store = take_snapshot(root) if first.state is State.OPEN else first
    return SealedLog(store, end)


def _end_before(queue: QueueSnapshot, stop: int) -> int:
    """Return the physical offset after the last record of a queue before the offset `stop`."""
    tail = queue.tail.cut(queue.known_end, stop)
    if len(tail.offset):
        return int(tail.physical[-1] + tail.size[-1])
    for offset in range(min(stop, queue.known_end) - 1, queue.min_offset - 1, -1):
        physical, size = queue.entry(offset)
        if size != FILLER_SIZE:
            return physical + size
    return 0


def _behind_blank(log: Segments, end: int) -> int:
    """Return the end of the file, if only a blank follows."""
    segment = log.find(end)
    if segment is None:
        return end
    at, size = end - segment.base, segment.size
    if size - at < MIN_BLANK or (at and peek(segment.view, at)[1] == BLANK_MAGIC):
        return segment.base + size
    return end
