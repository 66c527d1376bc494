"""The entries of hundreds of thousands of records at once, by queue, for a recovery.

Records that are unusual are left for the walk, which looks at single ones. A separate module,
because importing numpy costs an idle broker 16 MB.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from pocketmq.message.limits import SCHEDULE_TOPIC
from pocketmq.message.record import decode
from pocketmq.message.sysflag import INNER_BATCH, TRANSACTION_MASK, TRANSACTION_ROLLBACK
from pocketmq.store.delay_level import DelayLevels
from pocketmq.store.dispatch import tags_code_of
from pocketmq.store.encoding.entry_array import ENTRY_DTYPE, EntryArray
from pocketmq.store.encoding.queue_entry import CONSUME_QUEUE_UNIT
from pocketmq.store.log.record_blocks import (
    IntArray,
    Records,
    TopicNames,
    entry_rows,
    properties_places,
    read_block,
    store_timestamps,
    tags_codes,
)

# Records at once: few where something stops a read again and again.
_LEAST: Final = 1024
_MOST: Final = 65_536
# Entries to gather, so that each of ten thousand queues has dozens of them: 19 MB, and twice that
# while they are sorted.
_ENOUGH: Final = 524_288
# The bytes of an entry: to sort them takes a tenth of the time of fields.
_WHOLE: Final = np.dtype(f"V{CONSUME_QUEUE_UNIT}")


class QueueRun(NamedTuple):
    """Entries of messages of one queue whose queue offsets follow each other.

    Attributes:
        first: queue offset of the first one.
        length: the number of messages.
        entries: theirs, as they are in the queue.
    """

    topic: str
    queue_id: int
    first: int
    length: int
    entries: bytes


class Stretch(NamedTuple):
    """Records that follow each other in the log.

    Attributes:
        end: physical offset after the last record.
        last: physical offset of the last record.
        timestamp: when it was stored (ms).
        batches: the number of inner batches among them, which get no entry here.
    """

    end: int
    last: int
    timestamp: int
    batches: int


class _Gathered(NamedTuple):
    """Entries of a stretch: the topic's number and the queue id in one, the queue offset, and the
    entry of each, of type `_WHOLE`."""

    queue: IntArray
    offset: IntArray
    entry: EntryArray


class StretchReader:
    """Reads stretches of one log, and gathers their entries; `deleted` topics have no messages
    before their physical offset. With `whole_crc`, a record that differs from its own checksum does
    not count."""

    def __init__(
        self, delay_levels: DelayLevels, deleted: Mapping[str, int], *, whole_crc: bool
    ) -> None:
        self._delay_levels = delay_levels
        self._deleted = deleted
        self._whole_crc = whole_crc
        self._topics = TopicNames()
        self._at_once = _LEAST
        self._gathered: list[_Gathered] = []

    @property
    def is_full(self) -> bool:
        """Whether it is time for `take`."""
        return sum(len(each.entry) for each in self._gathered) >= _ENOUGH

    def read(
        self,
        view: memoryview,
        base: int,
        at: int,
        stop: int,
        enter_from: int,
        torn_behind: int | None = None,
    ) -> Stretch | None:
        """Return the next records of a file from byte `at` on that end before `stop`; None if the
        first one needs a closer look. Their entries are for `take`; those before the physical
        offset `enter_from` get no entry. `base` is the physical offset of the file's first byte;
        `torn_behind` is that of `read_block`."""
        block = read_block(
            view, base, at, stop, self._topics, self._at_once,
            whole_crc=self._whole_crc, torn_behind=torn_behind,
        )  # fmt: skip
        if block is None:
            self._at_once = _LEAST
            return None
        records, end = block.records, block.end
        kind = records.sys_flag & TRANSACTION_MASK
        rolled_back = np.flatnonzero(kind == TRANSACTION_ROLLBACK)
        if len(rolled_back):  # it may be padding
            first = int(rolled_back[0])
            end = int(records.at[first])
            records, kind = records.rows(slice(first)), kind[:first]
        stopped = block.is_bad or len(rolled_back)
        self._at_once = _LEAST if stopped else min(2 * self._at_once, _MOST)
        if not len(records.at):
            return None
        batches = records.rows((records.sys_flag & INNER_BATCH) != 0)
        self._gather(view, *self._wanted(entry_rows(view, records, self._topics), base, enter_from))
        return Stretch(
            base + end,
            base + int(records.at[-1]),
            int(store_timestamps(view, records.rows(slice(-1, None)))[0]),
            len(self._wanted(batches, base, enter_from)[1]),
        )

    def _wanted(self, records: Records, base: int, enter_from: int) -> tuple[Records, IntArray]:
        """Return the records whose entries may be missing, and their physical offsets."""
        physical = records.at.astype(np.int64) + base
        rows = np.flatnonzero(physical >= self._begins(records, enter_from))
        return records.rows(rows), physical[rows]

    def _begins(self, records: Records, enter_from: int) -> IntArray | int:
        if not self._deleted:
            return enter_from
        begins = [max(enter_from, self._deleted.get(name, 0)) for name in self._topics.names]
        return np.take(np.array(begins, np.int64), records.topic)

    def _gather(self, view: memoryview, records: Records, physical: IntArray) -> None:
        if not len(physical):
            return
        entries = np.empty(len(physical), ENTRY_DTYPE)
        entries["physical"] = physical
        entries["size"] = records.size
        entries["tags_code"] = tags_codes(view, *properties_places(view, records))
        if SCHEDULE_TOPIC in self._topics.names:
            delayed = records.topic == self._topics.names.index(SCHEDULE_TOPIC)
            for row in np.flatnonzero(delayed).tolist():
                record = decode(view, int(records.at[row]))
                entries["tags_code"][row] = tags_code_of(record, self._delay_levels)
        queues = records.topic.astype(np.int64) << 32 | records.queue_id.astype(np.uint32)
        self._gathered.append(_Gathered(queues, records.queue_offset, entries.view(_WHOLE)))

    def take(self) -> list[QueueRun]:
        """Return the entries gathered since the last call, those of one queue in the order of the
        log."""
        gathered, self._gathered = self._gathered, []
        if not gathered:
            return []
        queues = np.concatenate([each.queue for each in gathered])
        order = _stable_order(queues)
        queues = queues[order]
        offsets = np.concatenate([each.offset for each in gathered])[order]
        data = np.concatenate([each.entry for each in gathered]).take(order).tobytes()
        breaks = np.flatnonzero((np.diff(queues) != 0) | (np.diff(offsets) != 1)) + 1
        begins = [0, *breaks.tolist()]
        return [
            QueueRun(
                self._topics.names[topic],
                queue_id,
                offset,
                end - begin,
                data[begin * CONSUME_QUEUE_UNIT : end * CONSUME_QUEUE_UNIT],
            )
            for topic, queue_id, offset, begin, end in zip(
                (queues[begins] >> 32).tolist(),
                queues[begins].astype(np.int32).tolist(),
                offsets[begins].tolist(),
                begins,
                [*begins[1:], len(queues)],
                strict=True,
            )
        ]


def _stable_order(queues: IntArray) -> IntArray:
    """Return the order of queues, those that are equal as they are. Numpy sorts numbers of 16 bits
    by radix, in a tenth of the time of longer ones: so topics and ids, which are small, are sorted
    by one half after the other."""
    ids, topics = queues & 0xFFFFFFFF, queues >> 32
    most = int(ids.max()) + 1
    if (int(topics.max()) + 1) * most > 1 << 32:
        return np.argsort(queues, kind="stable")
    keys = (topics * most + ids).astype(np.uint32)
    order = np.argsort(keys.astype(np.uint16), kind="stable")
    high = (keys >> 16).astype(np.uint16)
    return order[np.argsort(high[order], kind="stable")] if high.any() else order
