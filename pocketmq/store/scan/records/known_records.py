"""The records at the end of a commit log that consume queues have entries of.

A search for the others has to go through the log record by record. Checked all at once, and joined
to runs without gaps, the known ones can be stepped over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from pocketmq.message.limits import LIGHT_QUEUE_PREFIX
from pocketmq.store.encoding.queue_entry import CONSUME_QUEUE_UNIT as UNIT
from pocketmq.store.scan.queues.queue_slice import FILLER_SIZE, entries_of
from pocketmq.store.scan.queues.queue_snapshot import QueueSnapshot
from pocketmq.store.scan.queues.segments import Int64Array, Segments
from pocketmq.store.scan.records.heads import Heads, locate

_CHUNK: Final = 65_536


class KnownRecords:
    """Known records from the physical offset `start` on which are records by their heads."""

    def __init__(self, log: Segments, queues: Iterable[QueueSnapshot], start: int) -> None:
        pieces = [piece for queue in queues for piece in _entries(queue, start)]
        physical, size = np.concatenate([np.empty((2, 0), np.int64), *pieces], axis=1)
        order = np.argsort(physical)
        physical, size = physical[order], size[order]
        good = _are_records(log, physical, size)
        self._begins: Int64Array = physical[good]
        ends = self._begins + size[good]
        # Each record has the end of the last one of its run.
        last = np.append(ends[:-1] != self._begins[1:], True) if len(ends) else np.empty(0, bool)
        number = np.searchsorted(np.flatnonzero(last), np.arange(len(ends)))
        self._run_ends: Int64Array = ends[last][number]

    def behind(self, at: int) -> int:
        """Return where the run of known records that begins at `at` ends; `at` without a run."""
        number = int(np.searchsorted(self._begins, at))
        if number < len(self._begins) and self._begins[number] == at:
            return int(self._run_ends[number])
        return at

    def next(self, at: int) -> int | None:
        """Return the physical offset of the first known record after `at`."""
        number = int(np.searchsorted(self._begins, at, side="right"))
        return int(self._begins[number]) if number < len(self._begins) else None


def _entries(queue: QueueSnapshot, start: int) -> Iterable[Int64Array]:
    """Return the physical offsets and sizes of a queue's entries for records from `start` on."""
    if queue.topic.startswith(LIGHT_QUEUE_PREFIX):
        return  # its records belong to other queues, which may not know them
    if queue.max_physical() <= start:
        return
    offset = queue.first_from(start)
    while offset < queue.known_end:
        # Mostly they were read when the end was looked for: mapping the files of ten thousand
        # queues again is a third of the time of a plan.
        entries = queue.entries(offset, queue.known_end)
        if entries is None:
            segment = queue.segments.find(offset * UNIT)
            assert segment is not None
            entries = entries_of(segment)[offset - segment.base // UNIT :]
            entries = entries[: queue.known_end - offset]
        real = entries[entries["size"] != FILLER_SIZE]
        yield np.array([real["physical"], real["size"]], np.int64)
        offset += len(entries)


def _are_records(log: Segments, physical: Int64Array, size: Int64Array) -> npt.NDArray[np.bool_]:
    good = np.zeros(len(physical), np.bool_)
    for begin in range(0, len(physical), _CHUNK):
        chunk = slice(begin, begin + _CHUNK)
        records, inside = locate(log, physical[chunk], size[chunk])
        heads = Heads(records)
        rows = begin + np.flatnonzero(inside)
        good[rows] = heads.good & (heads.fields["physical_offset"] == physical[rows])
    return good
