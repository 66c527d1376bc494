"""Enters the records of a log that another process writes into the consume queues.

The rules are those of recovery: the record states its queue offset. If that is not the next one of
its queue, the topic was recreated, or messages are lost; both are rare.
"""

from __future__ import annotations

import logging

from pocketmq.limited_log import LimitedLog
from pocketmq.message.record import Record
from pocketmq.message.record_layout import MIN_RECORD
from pocketmq.message.sysflag import INNER_BATCH
from pocketmq.store.delay_level import DelayLevels
from pocketmq.store.dispatch import has_queue_entry, places_of, tags_code_of
from pocketmq.store.encoding.queue_entry import pack_entry
from pocketmq.store.errors import DiskFull, StoreError
from pocketmq.store.log.padding import lost_places
from pocketmq.store.queue.consume_queue import MOST_OFFSET, ConsumeQueue
from pocketmq.store.queue.consume_queue_table import ConsumeQueueTable
from pocketmq.store.queue.pending_entries import PendingEntries

log = logging.getLogger(__name__)


class EntriesWait(Exception):
    """The record has to wait until those before it are entered: with SYNC_FLUSH, until they are on
    the disk; in a controller group, until replicas have them."""


class QueueBuilder:
    """Enters records, in the order of the log, one after another."""

    def __init__(
        self, table: ConsumeQueueTable, pending: PendingEntries, delay_levels: DelayLevels
    ) -> None:
        self._table = table
        self._pending = pending
        self._delay_levels = delay_levels
        self._log = LimitedLog(log)

    def enter(self, record: Record) -> None:
        """Give the record its entry, if it is to have one.

        Raises:
            EntriesWait: not yet.
            DiskFull, OSError: no room for its entry; nothing was changed.
        """
        if has_queue_entry(record.sys_flag):
            queues = []
            for topic, queue_id, offset in places_of(record):
                queue = self.queue_of(topic, queue_id)
                if queue is not None and self._align(queue, record, offset):
                    queue.make_room()
                    queues.append(queue)
            code = tags_code_of(record, self._delay_levels)
            entry = pack_entry(record.physical_offset, record.size, code)
            end, timestamp = record.physical_offset + record.size, record.store_timestamp
            for queue in queues:
                self._pending.add(end, queue, queue.next_offset, entry, timestamp)
                queue.next_offset += 1
        elif record.sys_flag & INNER_BATCH:
            self._log.error(
                "record at physical offset %d is an inner batch, which is not supported",
                record.physical_offset,
            )
        for topic, queue_id, offset in lost_places(record):
            queue = self.queue_of(topic, queue_id)
            if queue is not None and offset >= queue.next_offset:
                _wait_for_entries(queue)
                queue.skip_until(offset + 1)

    def queue_of(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue, open; None if it cannot be. Raises DiskFull."""
        try:
            return self._table.find_or_create(topic, queue_id)
        except DiskFull:
            raise
        except (ValueError, StoreError, OSError) as error:
            self._log.error("queue %s/%d: messages get no entries: %s", topic, queue_id, error)
            return None

    def _align(self, queue: ConsumeQueue, record: Record, offset: int) -> bool:
        """Have the queue go on with the record, at this queue offset; False when that is
        impossible.

        A topic that was deleted and recreated begins again at queue offset 0. The later life wins.
        """
        if offset == queue.next_offset:
            return True
        if 0 <= offset <= queue.max_offset:
            # Those of the earlier life would be removed as soon as they are entered. They may wait
            # for a master that the group does not have.
            self._pending.drop(queue)
        _wait_for_entries(queue)
        end = queue.next_offset
        if offset == end:
            return True
        is_possible = 0 <= offset < MOST_OFFSET
        if is_possible and offset < end:
            queue.truncate(offset)
            self._table.on_begun(queue.topic, queue.queue_id)
        elif is_possible and not queue.files.mapped:
            queue.clear()  # the messages before it have expired
            queue.start_at(offset)
        elif is_possible and offset - end <= _most_between(queue, record):
            self._log.error(
                "queue %s/%d: the messages from %d to %d are missing in the master's log",
                queue.topic, queue.queue_id, end, offset,
            )  # fmt: skip
            queue.skip_until(offset)
        else:
            self._log.error(
                "record at physical offset %d claims queue offset %d of queue %s/%d, which ends "
                "at %d: it is damaged and has no entry",
                record.physical_offset, offset, queue.topic, queue.queue_id, end,
            )  # fmt: skip
            return False
        return True


def _wait_for_entries(queue: ConsumeQueue) -> None:
    if queue.has_waiting:
        raise EntriesWait


def _most_between(queue: ConsumeQueue, record: Record) -> int:
    """Return how many messages there can have been between the last one of a queue and a record."""
    return (record.physical_offset - max(queue.max_physical, 0)) // MIN_RECORD
