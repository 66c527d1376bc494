"""Brings the commit log and the consume queues together when a store is opened.

The log is the truth. Recovery finds its end, enters missing records into the queues, and cuts
entries from them that the log does not have.

After a clean stop everything is on the disk, so the walk through the log begins at its last write,
to see whether that can be read. After a crash it begins where the checkpoint knows log and queues
to be flushed, and every record from there on is entered again: of an entry that was not flushed, a
power failure may have left a part, or the previous bytes in its place. If another broker used the
store last, only the checkpoint's timestamps are known: the walk begins at the last file whose first
record is older.

After a kill nothing that was written is lost while the machine runs. So the walk begins at the mark
(`checkpoint`): all messages before it have their entries, and only an entry after it can be
incomplete. If anything does not fit the mark, the walk begins at the checkpoint.

How long that takes depends on how much follows the checkpoint, not on the size of the store: queues
without later records are opened when they are first used (`QueueTail.settle`). All queues are
opened only if any of them may have entries of messages that the log lacks: after a power failure,
if the log is torn, or if another broker used the store last.

Reference: CommitLog.recoverNormally, recoverAbnormally; unlike there, what is cut is always logged,
and a bad record in the flushed part is an error, not the end of the log.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pocketmq.message.record import Record, decode
from pocketmq.message.record_layout import MIN_RECORD, RecordError
from pocketmq.message.sysflag import INNER_BATCH
from pocketmq.store.delay_level import DelayLevels
from pocketmq.store.dispatch import places_of, tags_code_of
from pocketmq.store.encoding.queue_entry import (
    CONSUME_QUEUE_UNIT,
    Entry,
    pack_entry,
    unpack_entry,
)
from pocketmq.store.errors import DiskFull, QueueMisfit, RecordNotFound, StoreCorrupt
from pocketmq.store.files import MappedFile
from pocketmq.store.log.checkpoint import Checkpoint, Mark
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.log.log_walk import LogWalk, Survivors
from pocketmq.store.log.padding import lost_places
from pocketmq.store.queue.consume_queue import MOST_OFFSET, ConsumeQueue
from pocketmq.store.queue.consume_queue_table import ConsumeQueueTable
from pocketmq.store.queue.queue_tail import QueueTail
from pocketmq.store.recovery.recovery_progress import RecoveryProgress

if TYPE_CHECKING:
    from pocketmq.store.queue.stretches import QueueRun, StretchReader

log = logging.getLogger(__name__)

_KEPT_BYTES: Final = 256 * 1024 * 1024
_MANY_BYTES: Final = 64 * 1024  # that make numpy worth its import
_CLOSER: Final = 256  # records that are looked at one after another before the next try


class _EntriesLost(Exception):
    """A queue lacks entries from before the place where the walk began."""


class _MarkMisfit(Exception):
    """The mark does not fit the log or a queue."""


class Recovery:
    """One recovery. `run` leaves log and queues ready for appending, and in the checkpoint up to
    where they are on the disk.

    Attributes:
        left_unflushed: the last process may have left entries that are not on the disk in queues
            that are not open.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueTable,
        checkpoint: Checkpoint,
        delay_levels: DelayLevels,
        *,
        clean: bool,
        deleted: Mapping[str, int],
        rebuild: bool = False,
        copied: bool = False,
        whole_crc: bool = False,
        progress: RecoveryProgress | None = None,
    ) -> None:
        """`deleted` topics have no messages before their physical offset. With `rebuild`, build the
        queues from the whole log, whatever they hold. `copied`: the last process copied the log
        from a master, in pieces that may end within a record. With `whole_crc`, a record that
        differs from its own checksum is damaged."""
        self._log = commit_log
        self._queues = queues
        self._checkpoint = checkpoint
        self._delay_levels = delay_levels
        self._clean = clean and not rebuild
        self._rebuild = rebuild
        self._copied = copied
        self._whole_crc = whole_crc
        self._deleted = deleted
        self._progress = progress or RecoveryProgress()
        self.left_unflushed = False
        self._tail = QueueTail(commit_log)
        self._start = 0  # where the walk began
        self._enter_from = 0  # records before this are known to have their entries
        self._whole = False  # the walk began where the log does
        # Up to where the checkpoint knows the log to be on the disk; None when it does not.
        self._flushed: int | None = None
        self._ends: dict[ConsumeQueue, int] = {}  # max_offset of the queues as they were found
        # Entries that were cut off, with the queue offset of the first one.
        self._kept: dict[ConsumeQueue, tuple[int, bytes]] = {}
        self._keep_most = _KEPT_BYTES
        self._prepared: set[ConsumeQueue] = set()  # entries of records of the walk are cut off
        self._anew: set[ConsumeQueue] = set()  # those without an entry from before the walk
        self._stretches: StretchReader | None = None
        self._closer = 0
        self._saved = -1  # up to where the checkpoint knows what this recovery entered
        self._entered = 0
        self._replaced = 0
        self._lost = 0
        self._skipped = 0

    def run(self) -> None:
        """Recover. Raises StoreCorrupt when messages that were on the disk cannot be read."""
        files = self._log.files
        checkpoint = self._checkpoint
        if checkpoint.exact:
            self._flushed = checkpoint.confirm_physical_offset
        if not files.mapped:
            self._open_all()
            self._without_log()
            checkpoint.confirm_physical_offset = checkpoint.entered_offset = 0
            checkpoint.last_write = 0
            return
        # Until the walk is over, everything in the files may be looked at.
        end = files.mapped[-1].base_offset + files.file_size
        self._log.end = self._log.written = end
        if self._flushed is not None and self._flushed > end:
            raise StoreCorrupt(
                files.path_of(end), 0,
                f"the file is missing: the commit log ends at physical offset {end}, but it had "
                f"been flushed up to {self._flushed}; nothing was changed; if an older log was put "
                "in place on purpose, remove the file checkpoint",
            )  # fmt: skip
        try:
            walk = self._walk()
            self._judge(walk)
        except StoreCorrupt:
            self._put_back()
            if self._saved >= 0:
                with contextlib.suppress(OSError):  # the damage matters more
                    self._checkpoint.entered_offset = self._start
                    self._checkpoint.sync_unfinished()
            raise
        self._note_flushed(walk)
        self._log.resume(walk.end, walk.last)
        self._log.store_timestamp = walk.store_timestamp
        for queue in self._queues.all:
            queue.correct_min_offset(self._log.min_offset)
        self._queues.settled(self._tail.settle)
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
        if self._flushed:
            raise StoreCorrupt(
                self._log.files.directory, 0,
                f"there is no commit log, but it had been flushed up to {self._flushed}; bring it "
                "back (is it mounted?), or remove the file checkpoint to begin an empty store",
            )  # fmt: skip

    # --- walking ------------------------------------------------------------------------------

    def _walk(self) -> LogWalk:
        mark = self._usable_mark()
        if mark is not None:
            try:
                return self._walk_from_mark(mark)
            except (_MarkMisfit, _EntriesLost, StoreCorrupt) as misfit:
                log.warning("mark in the checkpoint is ignored: %s", misfit)
                self._put_back()
                self._forget()
        return self._walk_without_mark()

    def _usable_mark(self) -> Mark | None:
        """Return the mark, if it saves work."""
        mark, checkpoint = self._checkpoint.mark, self._checkpoint
        if self._clean or self._rebuild or self._copied or self._flushed is None or mark is None:
            return None
        if self._queues.is_missing:
            return None
        certain = min(checkpoint.confirm_physical_offset, checkpoint.entered_offset)
        return mark if mark.entered >= certain else None

    def _walk_from_mark(self, mark: Mark) -> LogWalk:
        """Walk from the last message that is known to be entered. Raises _MarkMisfit, _EntriesLost,
        StoreCorrupt."""
        self._progress.because(
            "not stopped cleanly, but the machine has been running since, and the last process "
            f"entered everything up to physical offset {mark.entered}"
        )
        self._queues.trust()
        self._check_mark(mark)
        self._queues.open_system()
        self._enter_from = mark.entered
        self.left_unflushed = True
        walk = self._walk_from(mark.last, 0)
        if walk.end < mark.entered or (
            walk.reason is not None and walk.remains() and not walk.interrupted()
        ):
            raise _MarkMisfit(f"the log ends at physical offset {walk.end}")
        for queue, end in self._ends.items():
            if queue.max_offset < end:
                raise _EntriesLost(
                    f"{queue.topic}/{queue.queue_id} ended at {end}, but the log has its messages "
                    f"up to {queue.max_offset} only"
                )
        return walk

    def _check_mark(self, mark: Mark) -> None:
        """Raise _MarkMisfit unless a record begins at `mark.last`, and its entry leads to it."""
        try:
            record = decode(self._log.record_at(mark.last))
        except (RecordNotFound, RecordError) as error:
            raise _MarkMisfit(f"no record begins at physical offset {mark.last}") from error
        if mark.last < self._log.min_offset or record.physical_offset + record.size > mark.entered:
            raise _MarkMisfit(f"the record at physical offset {mark.last} is another one")
        for topic, queue_id, offset in places_of(record):
            if mark.last < self._deleted.get(topic, 0):
                continue
            queue = self._queues.find(topic, queue_id)
            entry = queue.entry(offset) if queue is not None else None
            if entry is None or entry[:2] != (mark.last, record.size):
                raise _MarkMisfit(f"{topic}/{queue_id} has no entry of its message {offset}")

    def _forget(self) -> None:
        """Begin again from scratch."""
        self._queues.reopen()
        self._enter_from = 0
        self.left_unflushed = False
        for known in (self._ends, self._kept, self._prepared, self._anew):
            known.clear()
        self._keep_most = _KEPT_BYTES
        self._entered = self._replaced = self._lost = self._skipped = 0

    def _walk_without_mark(self) -> LogWalk:
        try:
            self._queues.open_system()
            if self._clean:
                self._queues.check_listed()
            start, timestamp = self._first_place()
            walk = self._walk_from(start, timestamp)
            if self._clean:
                self._check_last(walk)
            if start != self._log.min_offset:
                self._check_nothing_lost(start)
            if walk.reason is not None and walk.remains() and not walk.interrupted():
                self._check_behind(walk.end)
            return walk
        except (_EntriesLost, QueueMisfit) as lost:
            log.warning("%s: building the consume queues from the whole commit log", lost)
            self._progress.because(f"{lost}; the consume queues are built from the whole log")
            self._queues.distrust_bounds()
            self._open_all()
            self._enter_from = 0
            self._saved = -1
            if self._flushed is not None and not (self._clean or self._rebuild):
                # Until they are built they lack more than what the checkpoint says.
                self._checkpoint.entered_offset = self._log.min_offset
                self._checkpoint.sync_unfinished()
            return self._walk_from(self._log.min_offset, 0)

    def _check_last(self, walk: LogWalk) -> None:
        """Raise if the last message is not in its queue after a clean stop."""
        with contextlib.suppress(RecordNotFound, RecordError):
            record = decode(self._log.record_at(walk.last), check_crc=False)
            for topic, queue_id, offset in places_of(record):
                queue = self._queues.find(topic, queue_id)  # None: deleted
                if queue is not None and 0 <= queue.max_physical <= record.physical_offset:
                    raise _EntriesLost(
                        f"{topic}/{queue_id} ends at {queue.max_offset}, but the log has its "
                        f"message {offset}"
                    )

    def _check_behind(self, end: int) -> None:
        """Raise if a queue has entries of messages from the physical offset `end` on, where the log
        was torn."""
        self._open_all()
        for queue in self._queues.all:
            if self._tail.good_end(queue, end) < queue.max_offset:
                raise _EntriesLost(
                    f"{queue.topic}/{queue.queue_id} ends with messages that the log does not have"
                )

    def _check_nothing_lost(self, start: int) -> None:
        for queue in self._queues.all:
            if queue.max_physical < queue.lost_physical <= start:
                raise _EntriesLost(
                    f"{queue.topic}/{queue.queue_id} lost entries from {queue.max_offset} on"
                )

    def _first_place(self) -> tuple[int, int]:
        """Return where the walk begins, and the store timestamp (ms) of the record before it, if
        known. Opens all queues unless the walk will meet those that may have to be changed."""
        checkpoint, begin = self._checkpoint, self._log.min_offset
        if self._rebuild or self._queues.is_missing:
            self._progress.because("the consume queues are built from the whole log")
            self._open_all()
            return begin, 0
        # Up to here everything is on the disk and has its entry.
        certain = min(checkpoint.confirm_physical_offset, checkpoint.entered_offset)
        place = min(checkpoint.last_write, certain)
        if self._clean:
            if checkpoint.exact and begin < place and self._log.files.find(place) is not None:
                self._progress.because("stopped cleanly")
                self._enter_from = certain
                return place, checkpoint.physic_timestamp
            self._progress.because(
                "stopped cleanly, but the checkpoint does not say where the last write began"
            )
            return self._behind_newest_entry()
        if self._flushed is None:
            self._progress.because("not stopped cleanly by another broker")
            self._open_all()
            return self._by_timestamps(), 0
        self._progress.because(
            "not stopped cleanly; the checkpoint knows everything to be on the disk up to physical "
            f"offset {certain}"
        )
        if not checkpoint.last_write:
            place = certain - certain % self._log.file_size
        if self._log.files.find(place) is None:
            # It expired, or the next file was lost before anything was written to it.
            place = begin if place < begin else self._log.files.mapped[-1].base_offset
        if place == begin or not checkpoint.same_boot:
            # Else nothing that was written is lost, so a queue that has changed since then has
            # messages after this place.
            self._open_all()
        return place, 0

    def _behind_newest_entry(self) -> tuple[int, int]:
        self._open_all()
        if not self._queues.all:
            return self._log.min_offset, 0  # all topics were deleted
        for queue in self._queues.all:
            self._tail.check_hole(queue)
            self._ends[queue] = queue.max_offset
            self._cut(queue, self._log.end)
        newest = max(self._queues.all, key=lambda queue: queue.max_physical)
        record = self._newest_record(newest)
        if record is None:
            return self._log.min_offset, 0
        self._enter_from = newest.max_physical
        return record.physical_offset, record.store_timestamp

    def _by_timestamps(self) -> int:
        for file in reversed(self._log.files.mapped):
            with contextlib.suppress(RecordError):
                timestamp = decode(file.view, check_crc=False).store_timestamp
                if 0 < timestamp <= self._checkpoint.recover_from:
                    return file.base_offset
        return self._log.min_offset

    def _open_all(self) -> None:
        unopened = self._queues.unopened()
        for number, (topic, queue_id) in enumerate(unopened):
            self._progress.queues(number, len(unopened))
            self._queues.find(topic, queue_id)

    def _newest_record(self, queue: ConsumeQueue) -> Record | None:
        """Return the record that the last entry of `queue` points at; None when it is not whole."""
        entry = queue.entry(queue.max_offset - 1)
        view = self._log.read(entry[0], entry[1]) if entry is not None else None
        with contextlib.suppress(RecordError):
            return decode(view) if view is not None else None
        return None

    def _walk_from(self, start: int, timestamp: int) -> LogWalk:
        self._start = start
        self._whole = start == self._log.min_offset
        self._prepared.clear()
        self._stretches = None
        # Backwards: of more queues than can be mapped at a time, those opened last still are.
        for queue in reversed(self._queues.all):
            self._prepare(queue)
        power_failed = not self._clean and not self._checkpoint.same_boot
        walk = LogWalk(
            self._log.files,
            start,
            timestamp,
            torn_behind=self._flushed if power_failed else None,
            cut_behind=self._flushed or 0 if self._copied else None,
            whole_crc=self._whole_crc,
        )
        self._progress.reads(start, self._data_end())
        for record in walk:
            self._progress.log(walk.end)
            if record.physical_offset < self._enter_from:
                continue
            entered, lost = places_of(record), lost_places(record)
            if entered:
                tags_code = tags_code_of(record, self._delay_levels)
                entry = record.physical_offset, record.size, tags_code
            for place in entered:
                if record.physical_offset >= self._deleted.get(place[0], 0):
                    self._enter(*place, entry)
            for place in lost:
                if record.physical_offset >= self._deleted.get(place[0], 0):
                    self._enter_lost(*place)
            if record.sys_flag & INNER_BATCH:
                self._skipped += record.physical_offset >= self._deleted.get(record.topic, 0)
            self._enter_many(walk)
        return walk

    def _enter_many(self, walk: LogWalk) -> None:
        """Enter the next records of the file, as long as many of them need no closer look."""
        if self._closer > 0:
            self._closer -= 1
            return
        self._closer = _CLOSER
        self._gather_entries(walk)
        self._enter_gathered()

    def _gather_entries(self, walk: LogWalk) -> None:
        file, stop = walk.next_part()
        while stop - (walk.end - file.base_offset) >= _MANY_BYTES:
            if self._stretches is None:
                # Only now: importing numpy costs an idle broker 16 MB.
                from pocketmq.store.queue.stretches import StretchReader

                self._stretches = StretchReader(
                    self._delay_levels, self._deleted, whole_crc=self._whole_crc
                )
            at = walk.end - file.base_offset
            stretch = self._stretches.read(
                file.view, file.base_offset, at, stop, self._enter_from, walk.torn_behind
            )
            if stretch is None:
                return
            if self._stretches.is_full:
                self._enter_gathered()
            self._skipped += stretch.batches
            walk.pass_over(stretch.end, stretch.last, stretch.timestamp)
            self._progress.log_many(walk.end)
            queues = len(self._queues.all)
            if self._progress.is_save_due(queues):
                self._enter_gathered()
                self._save_progress(walk)
                self._progress.saved(queues)

    def _enter_gathered(self) -> None:
        if self._stretches is not None:
            for run in self._stretches.take():
                self._enter_run(run)

    def _enter_run(self, run: QueueRun) -> None:
        """Make sure that messages of one queue, whose offsets follow each other, have their
        entries."""
        queue = self._prepared_queue(run.topic, run.queue_id)
        if queue is None:
            self._skipped += run.length
            return
        behind = run.first + run.length
        for at, offset in enumerate(range(run.first, behind)):
            if offset == queue.max_offset == queue.next_offset and behind < MOST_OFFSET:
                queue.make_room(run.length - at)
                queue.next_offset = behind
                queue.append(run.entries[at * CONSUME_QUEUE_UNIT :] if at else run.entries)
                self._anew.discard(queue)
                self._entered += run.length - at
                return
            entry = unpack_entry(run.entries, at * CONSUME_QUEUE_UNIT)
            self._enter(run.topic, run.queue_id, offset, entry)

    def _save_progress(self, walk: LogWalk) -> None:
        """Flush what is entered so far, and note it in the checkpoint: an interrupted recovery goes
        on from there. Raises OSError."""
        checkpoint = self._checkpoint
        if self._clean or self._rebuild or self.left_unflushed:
            return
        if self._flushed is None:
            if self._saved < 0 and checkpoint.confirm_physical_offset:
                return  # the official broker's confirmOffset, which nothing else has
            for file in self._log.dirty_files(self._start, walk.end):
                file.sync()
        elif walk.end > self._flushed:
            return
        for queue in self._queues.all:
            if queue.dirty(0):
                queue.flush()
        if self._flushed is None:
            checkpoint.confirm_physical_offset = checkpoint.last_write = walk.end
        self._saved = checkpoint.entered_offset = walk.end
        checkpoint.sync_unfinished()

    def _data_end(self) -> int:
        """Return the physical offset after the last block that has data."""
        last = self._log.files.mapped[-1]
        return last.base_offset + last.data_end()

    def _prepare(self, queue: ConsumeQueue) -> None:
        """Cut off the entries that the walk makes."""
        self._prepared.add(queue)
        if queue.max_offset:
            self._ends.setdefault(queue, queue.max_offset)
        if self._checkpoint.same_boot and not self._whole and not self.left_unflushed:
            # An entry is written after its message, and no power failure has taken that.
            good = self._tail.good_end(queue, self._log.end)
            if good < queue.max_offset:
                raise _EntriesLost(
                    f"the entries of {queue.topic}/{queue.queue_id} from {good} on do not lead to "
                    "their messages"
                )
        self._cut(queue, max(self._start, self._enter_from))
        # One that was found empty may have lost more than the walk will see.
        if queue.max_physical < 0 and (self._whole or queue in self._ends):
            self._anew.add(queue)

    def _cut(self, queue: ConsumeQueue, start: int) -> None:
        end = self._tail.good_end(queue, start)
        if end < queue.max_offset:
            self._keep(queue, end)
            queue.truncate(end)
            if end == queue.min_offset:
                queue.least_physical = start  # all that it will have come from the walk

    def _keep(self, queue: ConsumeQueue, begin: int) -> None:
        """Remember the entries from `begin` on, which are about to be cut off: when the store turns
        out to be damaged, only they know which messages were in the damage."""
        known = self._kept.get(queue)
        if known is not None and not begin < known[0] <= queue.max_offset:
            return  # this recovery made these entries
        behind = queue.max_offset if known is None else known[0]
        size = (behind - begin) * CONSUME_QUEUE_UNIT
        if size > self._keep_most:
            self._keep_most = 0
            self._kept.clear()
            return
        self._keep_most -= size
        entries = b"".join(view for _, view in queue.views(begin, behind))
        self._kept[queue] = begin, entries if known is None else entries + known[1]

    def _put_back(self) -> None:
        """Give the queues the entries back that they had."""
        for queue, (begin, entries) in self._kept.items():
            if begin > queue.max_offset:
                continue
            try:
                if queue.files.mapped:
                    queue.truncate(begin)
                else:
                    queue.start_at(begin)
                queue.make_room(len(entries) // CONSUME_QUEUE_UNIT)
                queue.append(entries)
            except (DiskFull, OSError) as error:
                log.warning(
                    "queue %s/%d: the entries from %d on stay cut off: %s",
                    queue.topic, queue.queue_id, begin, error,
                )  # fmt: skip

    def _prepared_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue without what the walk enters; None if there cannot be such a queue."""
        try:
            queue = self._queues.find_or_create(topic, queue_id)
        except ValueError:
            return None
        if queue not in self._prepared:
            self._prepare(queue)
        return queue

    def _enter(self, topic: str, queue_id: int, offset: int, entry: Entry) -> None:
        """Make sure that the message at the queue offset `offset` has its entry.

        A topic that was deleted and recreated begins again at queue offset 0, with the records of
        its earlier life still in the log. The later life wins if the deletion was not noted.
        """
        queue = self._prepared_queue(topic, queue_id)
        if queue is None:
            self._skipped += 1
            return
        if not 0 <= offset < MOST_OFFSET:
            log.error(
                "record at physical offset %d claims queue offset %d of queue %s/%d: it is "
                "damaged and has no entry", entry[0], offset, topic, queue_id,
            )  # fmt: skip
            return
        if queue.max_offset < queue.next_offset:  # the messages at its end are lost ...
            if offset < queue.next_offset:
                queue.truncate(queue.max_offset)  # ... and another broker gave their offsets again
            else:
                queue.make_room()
        if offset < queue.max_offset:
            queue.truncate(offset)
            self._replaced += 1
        elif offset > queue.max_offset:
            if not queue.files.mapped or queue in self._anew:
                # Its begin has expired; or, if the walk did not begin with the log, its topic was
                # deleted: what was entered before the checkpoint has its files.
                queue.clear()
                queue.start_at(offset)
            elif offset - queue.max_offset > _most_between(queue, entry[0]):
                log.error(
                    "record at physical offset %d claims queue offset %d of queue %s/%d, which "
                    "ends at %d: it is damaged and has no entry", entry[0], offset, topic, queue_id,
                    queue.max_offset,
                )  # fmt: skip
                return
            elif self._whole:
                self._lost += offset - queue.max_offset
                queue.fill_until(offset)
            else:
                raise _EntriesLost(
                    f"{topic}/{queue_id} ends at {queue.max_offset}, but its message "
                    f"{offset} is in the log"
                )
        queue.make_room()
        queue.next_offset = offset + 1
        queue.append(pack_entry(*entry))
        self._anew.discard(queue)
        self._entered += 1

    def _enter_lost(self, topic: str, queue_id: int, offset: int) -> None:
        """Have the offset of a message that a repair could not save not given again."""
        queue = self._prepared_queue(topic, queue_id)
        if queue is not None and offset >= queue.next_offset:
            queue.skip_until(offset + 1)

    # --- the end ------------------------------------------------------------------------------

    def _judge(self, walk: LogWalk) -> None:
        """Decide what a bad place at the end of the walk means, and log it."""
        flushed = self._flushed or 0
        if walk.reason is None or not (walk.remains() or walk.reached < flushed):
            return
        file = self._log.files.find(walk.end)
        assert file is not None
        at = walk.end - file.base_offset
        survivors = walk.survivors(wiped=self._flushed is not None)
        if survivors is None and walk.reached < flushed:
            raise StoreCorrupt(
                file.path, at,
                f"no record can be read here, at physical offset {walk.end} "
                f"({walk.reason.reason}), but the log had been flushed up to {flushed}: the file "
                "is damaged; the log was not changed",
            )  # fmt: skip
        elif survivors is None:
            log.warning(
                "%s at byte %d (physical offset %d): cut off a record that was not written "
                "completely (%s)", file.path, at, walk.end, walk.reason.reason,
            )  # fmt: skip
        elif self._had_been_flushed(walk, survivors):
            raise _followed(
                file, walk, survivors, ", and they had been flushed: the file is damaged"
            )
        elif not self._checkpoint.reliable:
            raise _followed(
                file, walk, survivors,
                "; the checkpoint does not say whether they had been flushed: it is missing or "
                "empty",
            )  # fmt: skip
        elif not self._checkpoint.same_boot:
            log.error(
                "%s at byte %d (physical offset %d): the log ends here (%s); %d messages after "
                "it, from physical offset %d, are dropped: they had not been flushed",
                file.path, at, walk.end, walk.reason.reason, survivors.messages,
                survivors.physical_offset,
            )  # fmt: skip
        elif walk.interrupted():
            log.warning(
                "%s at byte %d (physical offset %d): cut off a write of %d messages that the last "
                "process did not complete; none of them was acknowledged", file.path, at, walk.end,
                survivors.messages + 1,
            )  # fmt: skip
        else:
            # What a process wrote outlives it, as long as the machine runs.
            raise _followed(
                file, walk, survivors,
                ", and the machine has not stopped since they were written: the file is damaged",
            )  # fmt: skip

    def _had_been_flushed(self, walk: LogWalk, survivors: Survivors) -> bool:
        """Return whether the bad place was good once, and on the disk."""
        if self._flushed is not None:
            return walk.end < self._flushed
        return survivors.store_timestamp <= self._checkpoint.physic_timestamp

    def _note_flushed(self, walk: LogWalk) -> None:
        """Tell the checkpoint where log and queues are on the disk.

        When the log ends before what was flushed (a blank, whose next file was lost with a power
        cut, is written over), that must be on the disk before the log changes: the next start would
        take it for damage.
        """
        before = self._checkpoint.confirm_physical_offset
        if self._clean:
            flushed = walk.end
        elif self._flushed is not None:
            flushed = min(self._flushed, walk.end)
        else:
            flushed = max(self._start, self._saved)
        self._checkpoint.confirm_physical_offset = flushed
        if not self.left_unflushed:
            self._checkpoint.entered_offset = max(self._start, self._enter_from, self._saved)
        self._checkpoint.last_write = self._start
        if flushed < before:
            self._checkpoint.sync()

    def _report(self, walk: LogWalk) -> None:
        log.info(
            "recovered after a %s: the log ends at %d, %d queues looked at, %d entries added",
            "clean stop" if self._clean else "crash", walk.end, len(self._queues.all),
            self._entered,
        )  # fmt: skip
        for queue, end in self._ends.items():
            if queue.max_offset < end:
                log.warning(
                    "queue %s/%d: cut %d entries without a message",
                    queue.topic,
                    queue.queue_id,
                    end - queue.max_offset,
                )
        if self._lost:
            log.error("%d messages are missing in the log; their offsets stay empty", self._lost)
        if self._replaced:
            log.warning("%d queues begin again within the log", self._replaced)
        if self._skipped:
            log.warning("%d records are of a kind that is not supported", self._skipped)


def _followed(file: MappedFile, walk: LogWalk, survivors: Survivors, why: str) -> StoreCorrupt:
    """Return the error for a bad place that good records follow, which must not be cut off."""
    assert walk.reason is not None
    return StoreCorrupt(
        file.path,
        walk.end - file.base_offset,
        f"no record can be read here, at physical offset {walk.end} ({walk.reason.reason}), but "
        f"{survivors.messages} good ones follow from physical offset {survivors.physical_offset}"
        f"{why}; the log was not changed",
    )


def _most_between(queue: ConsumeQueue, physical_offset: int) -> int:
    """Return how many messages there can have been between the last one of a queue and a record."""
    return (physical_offset - max(queue.max_physical, 0)) // MIN_RECORD
