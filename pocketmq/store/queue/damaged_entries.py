"""Entries of a consume queue that are damaged: rebuilt from the commit log, or skipped.

The log has every message in the order of its physical offset. So the message whose entry is damaged
comes after the one before it in the queue, and its record states its queue offset.
"""

from __future__ import annotations

import logging
from typing import Final

from pocketmq.limited_log import LimitedLog
from pocketmq.message.record import Record, decode
from pocketmq.message.record_crc import DIFFERS, is_altered
from pocketmq.message.record_layout import BLANK_MAGIC, MIN_BLANK, CorruptRecord, RecordError, peek
from pocketmq.store.delay_level import DelayLevels
from pocketmq.store.deletions import note_deleted
from pocketmq.store.dispatch import has_queue_entry, is_at, tags_code_of
from pocketmq.store.encoding.queue_entry import Entry
from pocketmq.store.errors import RecordNotFound
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queue.consume_queue import FILLER_SIZE, ConsumeQueue
from pocketmq.store.queue.record_heads import check_head, has_topic
from pocketmq.store.results import StoreCounters

log = logging.getLogger(__name__)

_LOOK_BACK: Final = 32
"""Entries before a damaged one, of which one must be good."""

MOST_RECORDS: Final = 10_000
"""Records of the log that are looked at for one message: 20 ms."""


class DamagedEntries:
    """Checks and mends entries while they are read, on the event loop, which alone writes them.

    `counters` counts rebuilt and skipped entries. With `whole_crc`, a record that
    differs from its own checksum cannot be read.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        delay_levels: DelayLevels,
        counters: StoreCounters,
        *,
        whole_crc: bool = False,
    ) -> None:
        self._commit_log = commit_log
        self._delay_levels = delay_levels
        self._counters = counters
        self._whole_crc = whole_crc
        self._deleted: dict[str, int] = {}
        self._log = LimitedLog(log)

    def deleted(self, topic: str, end: int) -> None:
        """Do not take messages of a topic before the physical offset `end` for those of its queues:
        they were deleted. A recreated topic uses their queue offsets again."""
        note_deleted(self._deleted, topic, end)

    def checked(
        self, queue: ConsumeQueue, offset: int, entry: Entry, *, crc: bool = False
    ) -> Entry | None:
        """Return the correct entry of the message at `offset`, which is mostly `entry`; None if the
        message cannot be read. With `crc` also check all of the record."""
        physical, size, _ = entry
        try:
            file = self._commit_log.files.find(physical)
            if file is None:
                raise CorruptRecord(0, f"its entry says physical offset {physical}")
            if queue.is_light:
                found = self._entry_of(queue, offset, physical)
                if found is None or found[:2] != entry[:2]:
                    raise CorruptRecord(0, f"the record at {physical} is not dispatched there")
            else:
                check_head(file, queue, offset, physical, size)
                if not has_topic(file, queue, physical):
                    queue.is_mixed = True
                    raise CorruptRecord(0, f"the record at {physical} is of another topic")
        except CorruptRecord as error:
            return self._mended(queue, offset, error.reason)
        if not crc:
            return entry
        at = physical - file.base_offset
        try:
            record = decode(file.view, at)
            if self._whole_crc and is_altered(file.view[at : at + record.size]):
                raise CorruptRecord(at, DIFFERS)
        except RecordError as error:
            self._pass_over(queue, offset, error.reason)
            return None
        if tags_code_of(record, self._delay_levels) != entry[2]:
            return self._mended(queue, offset, "its entry has another tags code than the message")
        return entry

    def is_expired(self, queue: ConsumeQueue, offset: int, physical: int) -> bool:
        """Return whether the log no longer has the message at `offset`, since its entry and those
        before it point before the log's begin."""
        begin = self._commit_log.min_offset
        before = queue.entry(offset - 1)
        return 0 <= physical < begin and (
            before is None or before[0] < begin or before[1] == FILLER_SIZE
        )

    def _mended(self, queue: ConsumeQueue, offset: int, reason: str) -> Entry | None:
        found = self._find(queue, offset)
        if found is None:
            self._pass_over(queue, offset, reason)
            return None
        queue.replace(offset, found)
        self._counters.entries_rebuilt += 1
        self._log.warning(
            "queue %s/%d: the damaged entry at %d is rebuilt from the commit log: %s",
            queue.topic,
            queue.queue_id,
            offset,
            reason,
        )
        return found

    def _pass_over(self, queue: ConsumeQueue, offset: int, reason: str) -> None:
        self._counters.messages_passed_over += 1
        self._log.error(
            "queue %s/%d: the message at %d cannot be read, so consumers skip it: %s",
            queue.topic,
            queue.queue_id,
            offset,
            reason,
        )

    def _find(self, queue: ConsumeQueue, offset: int) -> Entry | None:
        """Return the entry of the message at `offset`, as the log has it."""
        entry = queue.entry(offset)
        found = self._entry_of(queue, offset, entry[0]) if entry is not None else None
        if found is not None:
            return found  # only its size was wrong
        position = max(
            self._behind_the_one_before(queue, offset), self._deleted.get(queue.topic, 0)
        )
        files = self._commit_log.files
        for _ in range(MOST_RECORDS):
            file = files.find(position)
            if file is None or position >= self._commit_log.written:
                return None
            at = position - file.base_offset
            size, magic = (0, BLANK_MAGIC) if at > file.size - MIN_BLANK else peek(file.view, at)
            if magic == BLANK_MAGIC:
                position = file.base_offset + file.size
                continue
            try:
                record = decode(file.view, at, check_crc=False)
            except RecordError:
                return None  # the log itself is damaged here
            if self._is_at(record, queue, offset):
                return self._entry_of(queue, offset, position)
            position += size
        return None

    def _behind_the_one_before(self, queue: ConsumeQueue, offset: int) -> int:
        """Return a physical offset at or before that of the message at `offset`, where a record
        begins."""
        for earlier in range(offset - 1, max(offset - _LOOK_BACK, queue.min_offset) - 1, -1):
            entry = queue.entry(earlier)
            if entry is not None and self._entry_of(queue, earlier, entry[0]) is not None:
                return entry[0]
        return self._commit_log.min_offset

    def _entry_of(self, queue: ConsumeQueue, offset: int, physical: int) -> Entry | None:
        try:
            record = decode(self._commit_log.record_at(physical), check_crc=False)
        except (RecordNotFound, RecordError):
            return None
        if not self._is_at(record, queue, offset):
            return None
        return physical, record.size, tags_code_of(record, self._delay_levels)

    @staticmethod
    def _is_at(record: Record, queue: ConsumeQueue, offset: int) -> bool:
        return is_at(record, queue.topic, queue.queue_id, offset) and has_queue_entry(
            record.sys_flag
        )
