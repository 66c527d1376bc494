"""Makes the consume-queue entries of some thousand records at once, with numpy.

Only if every record is the next one of its queue: unusual ones are left to `queue_builder`,
which looks at single records. A separate module, because importing numpy costs an idle broker
16 MB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pocketmq.message.sysflag import INNER_BATCH, TRANSACTION_MASK, TRANSACTION_ROLLBACK
from pocketmq.store.log.record_blocks import (
    Records,
    TopicNames,
    entry_rows,
    properties_places,
    read_block,
    store_timestamps,
    tags_codes,
)
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.pending_entries import PendingEntries

_ENTRY: Final = np.dtype([("offset", ">i8"), ("size", ">i4"), ("code", ">i8")])


class _Part(NamedTuple):
    """The records of one queue within a block."""

    queue: ConsumeQueue
    first: int  # queue offset
    rows: npt.NDArray[np.intp]


class BlockBuilder:
    """Enters blocks of records; `queue_of` returns a queue, open, or None. With `whole_crc`, a
    record that differs from its own checksum does not count."""

    def __init__(
        self,
        queue_of: Callable[[str, int], ConsumeQueue | None],
        pending: PendingEntries,
        *,
        whole_crc: bool,
    ) -> None:
        self._queue_of = queue_of
        self._pending = pending
        self._whole_crc = whole_crc
        self._topics = TopicNames()

    def enter(self, view: memoryview, base: int) -> tuple[int, int] | None:
        """Enter the whole records of `view`, the first of which has the physical offset `base`.

        Return the physical offset after them, and when the last one was stored (ms); None, and
        do nothing, when one of them is unusual. Raises DiskFull, OSError; then nothing is entered.
        """
        if self._topics.is_large:
            self._topics = TopicNames()
        block = read_block(view, base, 0, len(view), self._topics, whole_crc=self._whole_crc)
        if block is None or not len(block.records.at):
            return None
        records = block.records
        timestamp = int(store_timestamps(view, records.rows(slice(-1, None)))[0])
        kind = records.sys_flag & TRANSACTION_MASK
        if (records.sys_flag & INNER_BATCH).any() or (kind == TRANSACTION_ROLLBACK).any():
            return None
        records = entry_rows(view, records, self._topics)
        parts = self._parts(records)
        if parts is None:
            return None
        for part in parts:
            part.queue.make_room(len(part.rows))
        entries = np.empty(len(records.at), _ENTRY)
        entries["offset"] = records.at.astype(np.int64) + base
        entries["size"] = records.size
        entries["code"] = tags_codes(view, *properties_places(view, records))
        physical_end = base + block.end
        for queue, first_offset, rows in parts:
            queue.next_offset = first_offset + len(rows)
            data = entries[rows].tobytes()
            self._pending.add(physical_end, queue, first_offset, data, timestamp)
        return physical_end, timestamp

    def _parts(self, records: Records) -> list[_Part] | None:
        key = records.topic.astype(np.int64) << 32 | records.queue_id.astype(np.uint32)
        rows = np.argsort(key, kind="stable")
        key = key[rows]
        parts = []
        for group in np.split(rows, np.flatnonzero(np.diff(key)) + 1):
            if not len(group):
                continue
            name = self._topics.names[int(records.topic[group[0]])]
            queue = self._queue_of(name, int(records.queue_id[group[0]]))
            if queue is None or queue.delayed:
                return None
            first = queue.next_offset
            expected = np.arange(first, first + len(group))
            if not np.array_equal(records.queue_offset[group], expected):
                return None
            parts.append(_Part(queue, first, group))
        return parts
