"""Brings the commit log and the consume queues together when a store is opened.

The log is the truth. Recovery finds its end, enters into the queues what they miss, and cuts from
them what the log does not have.

After a clean stop everything is on the disk, so the walk through the log begins where the queues
end. After a crash it begins at the last file whose first record is older than the checkpoint, and
every record from there on is compared with its queue's entry. Reference:
CommitLog.recoverNormally, recoverAbnormally; unlike there, what is cut is always logged, and a bad
record in front of good ones that had been flushed is an error, not the end of the log.
"""

from __future__ import annotations

import contextlib
import logging
from struct import Struct
from typing import Final

from message.record import MIN_RECORD, Record, RecordError, decode
from message.sysflag import INNER_BATCH
from store.checkpoint import Checkpoint
from store.commit_log import CommitLog
from store.consume_queue import ConsumeQueue
from store.consume_queue_table import ConsumeQueueTable
from store.delay_level import DelayLevels
from store.dispatch import has_queue_entry, tags_code_of
from store.errors import StoreCorrupt
from store.log_walk import LogWalk

log = logging.getLogger(__name__)

# queueId, queueOffset of a record.
_PLACE: Final = Struct(">12xi4xq")


class _EntriesLost(Exception):
    """A queue lacks entries from before the place where the walk began."""


class Recovery:
    """One recovery. `run` leaves log and queues ready for appending.

    Attributes:
        start: physical offset where the walk began; what lies behind may not be flushed yet.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueTable,
        checkpoint: Checkpoint,
        delay_levels: DelayLevels,
        *,
        clean: bool,
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._checkpoint = checkpoint
        self._delay_levels = delay_levels
        self._clean = clean
        self.start = 0
        self._entered = 0
        self._replaced = 0
        self._lost = 0
        self._skipped = 0

    def run(self) -> None:
        """Raises `StoreCorrupt` when messages that were on the disk can not be read any more."""
        files = self._log.files
        if not files.mapped:
            self._without_log()
            return
        # Until the walk is over, everything in the files may be looked at.
        end = files.mapped[-1].base_offset + files.file_size
        self._log.end = self._log.written = end
        for queue in self._queues.all:
            self._cut_stale_entries(queue)
        walk = self._walk()
        self._judge(walk)
        for queue in self._queues.all:
            self._cut_behind(queue, walk.end)
        self._log.resume(walk.end)
        self._log.store_timestamp = walk.store_timestamp
        for queue in self._queues.all:
            queue.correct_min_offset(self._log.min_offset)
        self._report(walk)

    def _without_log(self) -> None:
        """A new store. Queues without the log they point into mean that the log is gone."""
        for queue in self._queues.all:
            if queue.max_offset:
                raise StoreCorrupt(
                    self._log.files.directory, 0,
                    f"there is no commit log, but the queue {queue.topic}/{queue.queue_id} has "
                    f"{queue.max_offset} messages; bring the commit log back (is it mounted?), or "
                    "remove the consumequeue directory to begin an empty store",
                )  # fmt: skip

    # --- walking ------------------------------------------------------------------------------

    def _walk(self) -> LogWalk:
        start, timestamp = self._start()
        try:
            walk = self._walk_from(start, timestamp)
            if start != self._log.min_offset:
                self._check_nothing_lost()
            return walk
        except _EntriesLost as lost:
            log.warning("%s: building the consume queues from the whole commit log", lost)
            return self._walk_from(self._log.min_offset, 0)

    def _check_nothing_lost(self) -> None:
        for queue in self._queues.all:
            if queue.max_offset < queue.lost_until:
                raise _EntriesLost(
                    f"{queue.topic}/{queue.queue_id} had {queue.lost_until} entries, of which some "
                    f"from {queue.max_offset} on are lost"
                )

    def _start(self) -> tuple[int, int]:
        """Where the walk begins, and the store timestamp (ms) of the record before it, if known."""
        files = self._log.files.mapped
        if not self._queues.all:
            return files[0].base_offset, 0
        if self._clean:
            newest = max(self._queues.all, key=lambda queue: queue.max_physical)
            record = self._newest_record(newest)
            if record is not None:
                return newest.max_physical, record.store_timestamp
        else:
            for file in reversed(files):
                with contextlib.suppress(RecordError):
                    timestamp = decode(file.view, check_crc=False).store_timestamp
                    if 0 < timestamp <= self._checkpoint.recover_from:
                        return file.base_offset, 0
        return files[0].base_offset, 0

    def _newest_record(self, queue: ConsumeQueue) -> Record | None:
        """The record that the last entry of `queue` points at; None when it is not whole."""
        entry = queue.entry(queue.max_offset - 1)
        view = self._log.read(entry[0], entry[1]) if entry is not None else None
        with contextlib.suppress(RecordError):
            return decode(view) if view is not None else None
        return None

    def _walk_from(self, start: int, timestamp: int) -> LogWalk:
        self.start = start
        walk = LogWalk(self._log.files, start, timestamp)
        whole = start == self._log.min_offset
        for record in walk:
            if has_queue_entry(record.sys_flag):
                self._enter(record, whole=whole)
            elif record.sys_flag & INNER_BATCH:
                self._skipped += 1
        return walk

    def _enter(self, record: Record, *, whole: bool) -> None:
        """Make sure that the record has its entry; `whole`: the walk began where the log does.

        A topic that was deleted and made anew begins again at queue offset 0, with the records of
        its earlier life still in the log. The later life wins.
        """
        try:
            queue = self._queues.find_or_create(record.topic, record.queue_id)
        except ValueError:
            self._skipped += 1
            return
        offset = record.queue_offset
        physical = record.physical_offset
        if physical < queue.max_physical:
            entry = queue.entry(offset)
            if entry is None or entry[0] >= physical:
                return  # entered already, or of an earlier life
        if offset < queue.max_offset:
            queue.truncate(offset)
            self._replaced += 1
        elif offset > queue.max_offset:
            if not queue.files.mapped:
                # Its begin has expired; or, if the walk did not begin with the log, its topic was
                # deleted: what was entered before the checkpoint has its files.
                queue.start_at(offset)
            elif whole:
                self._lost += offset - queue.max_offset
                queue.fill_until(offset)
            else:
                raise _EntriesLost(
                    f"{record.topic}/{record.queue_id} ends at {queue.max_offset}, but its message "
                    f"{offset} is in the log"
                )
        queue.make_room()
        queue.next_offset = offset + 1
        queue.append(physical, record.size, tags_code_of(record, self._delay_levels))
        self._entered += 1

    # --- the end ------------------------------------------------------------------------------

    def _judge(self, walk: LogWalk) -> None:
        """Decide what a bad place at the end of the walk means, and say so."""
        if walk.reason is None or not walk.remains():
            return
        file = self._log.files.find(walk.end)
        assert file is not None
        at = walk.end - file.base_offset
        survivors = walk.survivors()
        if survivors is None:
            log.warning(
                "%s at byte %d (physical offset %d): cut off a record that was not written "
                "completely (%s)", file.path, at, walk.end, walk.reason.reason,
            )  # fmt: skip
        elif survivors.store_timestamp <= self._checkpoint.physic_timestamp:
            raise StoreCorrupt(
                file.path,
                at,
                f"no record can be read here ({walk.reason.reason}), but {survivors.messages} good "
                f"ones follow from physical offset {survivors.physical_offset}, and they had been "
                "flushed: the file is damaged; nothing was changed, bring it back from a copy",
            )
        else:
            log.error(
                "%s at byte %d (physical offset %d): the log ends here (%s); %d messages behind "
                "it, from physical offset %d, are dropped: they had not been flushed when the "
                "machine stopped", file.path, at, walk.end, walk.reason.reason, survivors.messages,
                survivors.physical_offset,
            )  # fmt: skip

    def _cut_stale_entries(self, queue: ConsumeQueue) -> None:
        """Drop entries at the end that do not point at their message: remains of earlier lives,
        which the reference leaves behind the end of its files."""
        end = queue.max_offset
        while end > queue.min_offset:
            entry = queue.entry(end - 1)
            if (
                entry is None
                or entry[0] < self._log.min_offset
                or self._fits(queue, end - 1, entry)
            ):
                break
            end -= 1
        if end < queue.max_offset:
            log.warning(
                "%s/%d: cut %d entries that point at no message of the queue",
                queue.topic, queue.queue_id, queue.max_offset - end,
            )  # fmt: skip
            queue.truncate(end)
            queue.lost_until = 0

    def _fits(self, queue: ConsumeQueue, offset: int, entry: tuple[int, int, int]) -> bool:
        record = self._log.read(entry[0], entry[1])
        if record is None or entry[1] < MIN_RECORD:
            return False
        return _PLACE.unpack_from(record) == (queue.queue_id, offset)

    def _cut_behind(self, queue: ConsumeQueue, end: int) -> None:
        """Drop the entries of records behind the end of the log."""
        if queue.max_physical <= end:
            return
        first = queue.first_where(lambda physical, _: physical >= end)
        log.warning(
            "%s/%d: cut %d entries of messages behind the end of the log at %d",
            queue.topic, queue.queue_id, queue.max_offset - first, end,
        )  # fmt: skip
        queue.truncate(first)

    def _report(self, walk: LogWalk) -> None:
        self._checkpoint.confirm_physical_offset = walk.end
        log.info(
            "recovered after a %s: the log ends at %d, %d queues, %d entries added",
            "clean stop" if self._clean else "crash", walk.end, len(self._queues.all),
            self._entered,
        )  # fmt: skip
        if self._lost:
            log.error("%d messages are missing in the log; their offsets stay empty", self._lost)
        if self._replaced:
            log.warning("%d queues began anew within the log", self._replaced)
        if self._skipped:
            log.warning("%d records are of a kind that has no place here", self._skipped)
