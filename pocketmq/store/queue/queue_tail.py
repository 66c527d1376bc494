"""The end of a consume queue that agrees with the commit log."""

from __future__ import annotations

import contextlib
from typing import Final

from pocketmq.message.record import decode
from pocketmq.message.record_layout import MIN_RECORD, RecordError
from pocketmq.store.dispatch import is_at
from pocketmq.store.encoding.queue_entry import Entry
from pocketmq.store.errors import QueueMisfit, RecordNotFound
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queue.consume_queue import FILLER_SIZE, ConsumeQueue

_FEW: Final = 2  # entries that are looked at one by one, ...
_MORE: Final = 256  # ... that are unpacked at once, ...
_MANY: Final = 65_536  # ... and that are worth the import of numpy


class QueueTail:
    """Finds where the last entries of a queue stop to agree with the log."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log

    def good_end(self, queue: ConsumeQueue, start: int) -> int:
        """Return the offset from which on entries are of records from the physical offset `start`
        on, or do not point at their message: the reference leaves remains of earlier lives at the
        end of its files, after the last entry."""
        if queue.least_physical > 0 and queue.least_physical >= start:
            return queue.min_offset
        end = offset = queue.max_offset
        later = 0
        while offset > queue.min_offset:
            entry = queue.entry(offset - 1)
            assert entry is not None
            if entry[1] != FILLER_SIZE:
                if entry[0] < start and self._fits(queue, offset - 1, entry):
                    break
                end = offset - 1
                later += entry[0] >= start
            offset -= 1
            if later > _FEW:
                end = offset = _behind_earlier(queue, offset, start)
                later = 0
        return end

    def settle(self, queue: ConsumeQueue, as_left: bool) -> None:
        """Bring a queue in line with the log that is opened after the log was recovered. `as_left`:
        it ends where the last stop left it.

        Nothing in it has changed after the checkpoint, so a process has written its entries after
        their messages, and nothing has been lost since. Raises QueueMisfit if it does not end with
        its messages, OSError.
        """
        if as_left:
            self._check_last(queue)
        else:
            self._check_whole(queue)
        queue.correct_min_offset(self._log.min_offset)

    def _check_whole(self, queue: ConsumeQueue) -> None:
        """Raise QueueMisfit if its last entries do not lead to its messages, or others follow."""
        good = self.good_end(queue, self._log.end)
        if good < queue.max_offset:
            raise QueueMisfit(
                queue.files.directory, 0,
                f"the entries from {good} to {queue.max_offset} do not lead to their messages",
            )  # fmt: skip
        self.check_hole(queue)

    def check_hole(self, queue: ConsumeQueue) -> None:
        """Raise QueueMisfit if an entry after the end leads to its message."""
        if any(
            entry[0] >= self._log.min_offset and self._leads(queue, offset, entry)
            for offset, entry in queue.behind_end()
        ):
            raise QueueMisfit(
                queue.files.directory, 0, f"there are entries behind a hole at {queue.max_offset}"
            )

    def _check_last(self, queue: ConsumeQueue) -> None:
        """Raise QueueMisfit if the last entry is not as it was left, and the one before it does not
        lead to its message: then the files may be another queue's. If only the last entry is
        damaged, reads mend it."""
        last = queue.max_offset - 1
        entry = queue.entry(last)
        if entry is None or entry[0] + entry[1] == queue.max_physical:
            return
        before = queue.entry(last - 1)
        if before is None or not self._leads(queue, last - 1, before):
            raise QueueMisfit(
                queue.files.directory, 0, "its last entries do not lead to its messages"
            )

    def _fits(self, queue: ConsumeQueue, offset: int, entry: Entry) -> bool:
        physical, size, _ = entry
        before = queue.entry(offset - 1)
        if before is not None and before[1] != FILLER_SIZE and before[0] >= physical:
            return False
        begin = self._log.min_offset
        if physical < begin:  # it has expired, with its whole file
            return physical >= 0 and size >= MIN_RECORD and physical + size <= begin
        return self._leads(queue, offset, entry)

    def _leads(self, queue: ConsumeQueue, offset: int, entry: Entry) -> bool:
        physical, size, _ = entry
        with contextlib.suppress(RecordNotFound, RecordError):
            record = decode(self._log.record_at(physical), check_crc=False)
            return record.size == size and is_at(record, queue.topic, queue.queue_id, offset)
        return False


def _behind_earlier(queue: ConsumeQueue, offset: int, start: int) -> int:
    """Return the offset after the last entry before `offset` whose record is before the physical
    offset `start`, or that has no record; `min_offset` without one."""
    begin = max(queue.min_offset, offset - _MORE)
    physicals, _ = queue.places(begin, offset - begin)
    if len(physicals) == offset - begin:  # else they are in two files
        # In most of many queues all entries are later.
        last = -1 if min(physicals, default=start) >= start else len(physicals) - 1
        for number in range(last, -1, -1):
            if physicals[number] < start:
                return begin + number + 1
        offset = begin
    while offset > queue.min_offset:
        begin = max(queue.min_offset, offset - _MANY)
        for first, entries in reversed(list(queue.entries(begin, offset))):
            earlier = (entries["physical"] < start).nonzero()[0]
            if len(earlier):
                return first + int(earlier[-1]) + 1
        offset = begin
    return offset
