"""The store as the broker uses it: opening, starting, putting, getting, closing.

Everything runs on one event loop; what would block runs on the threads of `log.flush` and
`log.allocation`. `writer` does the putting and `reader` the getting. Reference:
DefaultMessageStore.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from pocketmq.store.config import FlushDiskType, StoreConfig
from pocketmq.store.delay_level import DelayLevels
from pocketmq.store.deletions import read_deleted_topics
from pocketmq.store.errors import FileSizeMismatch, StoreClosed, StoreCorrupt, with_remedy
from pocketmq.store.files import (
    Files,
    Retirement,
    check_places,
    is_full,
    raise_descriptor_limit,
)
from pocketmq.store.foreign_store import check_kind
from pocketmq.store.index.index_pace import USUAL_PACE, IndexPace
from pocketmq.store.index.index_table import IndexTable
from pocketmq.store.index.index_worker import IndexWorker, MakeWorker
from pocketmq.store.index.message_index import MessageIndex
from pocketmq.store.log.allocation import FileAllocator
from pocketmq.store.log.checkpoint import Checkpoint
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.log.mapped_file_queue import MappedFileQueue
from pocketmq.store.queue.consume_queue import MOST_OFFSET, ArrivalListener, ConsumeQueue
from pocketmq.store.queue.consume_queue_table import ConsumeQueueTable
from pocketmq.store.queue.pending_entries import PendingEntries
from pocketmq.store.queue.queue_begins import QueueBegins
from pocketmq.store.queue.queue_bounds import BoundsFile, BoundsTable
from pocketmq.store.queue.queue_view import QueuesByTopic
from pocketmq.store.reader import StoreReader
from pocketmq.store.recovery.cleanup import Cleanup
from pocketmq.store.recovery.flush import CommitLogFlusher, ConsumeQueueFlusher, FlushListener
from pocketmq.store.recovery.log_cut import LogCut
from pocketmq.store.recovery.log_follower import LogFollower
from pocketmq.store.recovery.recovery import Recovery
from pocketmq.store.recovery.recovery_progress import RecoveryProgress
from pocketmq.store.recovery.replica_log import ReplicaLog
from pocketmq.store.results import GetResult, GetStatus, PutResult, PutStatus, StoreCounters
from pocketmq.store.store_lock import StoreLock
from pocketmq.store.writer import StoreWriter

__all__ = ["GetResult", "GetStatus", "MessageStore", "PutResult", "PutStatus"]

log = logging.getLogger(__name__)

_REMOVED_AT_STOP: Final = 256
"""Deleted queues whose files a stop removes, each with a wait for the disk; the next start removes
those that are left."""


def now_ms() -> int:
    """Return the time as records hold it: Unix milliseconds."""
    return time.time_ns() // 1_000_000


class MessageStore:
    """One store directory: `open`, `start`, use, `close`.

    `store_host` is the broker's packed address, which is part of every record and message id.
    After a put fails because the disk is full, puts are refused for `disk_retry` seconds before the
    disk is tried again. Tests replace `files`, `clock` (milliseconds) and `index_pace`.

    Attributes:
        config: the settings.
        delay_levels: messageDelayLevel as a table.
        commit_log: for its `end` (how much is stored), `min_offset` and `file_size`.
        counters: how much was put and got since the store was made.
        index: finds messages by their keys.
        cleanup: removes expired files.
        recovery_progress: how far `open` is; any thread may ask.
        replica: the log while this store is the copy of a master's.
        on_flushed: called after each flush of the log, if it is set.
        confirmed_before: the confirmOffset before this `open`; 0 if there was none.
        settle, put, put_batch, put_many, put_run: see `StoreWriter`. These and the ones below are
            bound here, so that they cost no further call.
        refuse, accept, lack_replicas: see `StoreWriter`.
        cut, confirm: see `LogCut`.
        get, min_offset, max_offset, offset_by_time, earliest_store_time, store_time_at,
            properties_at, record_at, message_at, is_queued: see `StoreReader`.
    """

    def __init__(
        self,
        config: StoreConfig,
        *,
        store_host: bytes,
        files: Files | None = None,
        clock: Callable[[], int] = now_ms,
        disk_retry: float = 1.0,
        index_pace: IndexPace = USUAL_PACE,
        index_worker: MakeWorker = IndexWorker,
        recovery_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`recovery_clock` (seconds) tells when a recovery that takes long says how far it is.

        Raises ValueError when messageDelayLevel cannot be parsed."""
        self.config = config
        self.delay_levels = DelayLevels(config.message_delay_level)
        self.counters = StoreCounters()
        self.recovery_progress = RecoveryProgress(clock=recovery_clock)
        self.on_flushed: Callable[[], None] | None = None
        self.confirmed_before = 0
        self._files = files = files or Files()
        self._retired = Retirement()
        self._allocator = FileAllocator(files)
        self._checkpoint = Checkpoint(
            files, config.root / "checkpoint",
            (config.commit_log_directory, config.consume_queue_directory),
        )  # fmt: skip
        self._bounds = BoundsFile(files, config.root)
        self._lock = StoreLock(files, config.root, config.commit_log_directory)
        self._open = False
        self._was_closed = False
        self._closed = False
        self._started = False
        self._marked = False  # the abort file exists, so that files may be written
        self._table = table = ConsumeQueueTable(
            files, config.consume_queue_directory, config.consume_queue_file_size, self._retired
        )
        self._queues: Mapping[str, Mapping[int, ConsumeQueue]] = QueuesByTopic(table)
        self.commit_log = commit_log = CommitLog(
            MappedFileQueue(
                files,
                config.commit_log_directory,
                config.mapped_file_size_commit_log,
                "mappedFileSizeCommitLog",
                self._retired,
            ),
            self._allocator,
        )
        sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._pending = PendingEntries(commit_log, self._checkpoint, after_flush=sync)
        self._flusher = flusher = CommitLogFlusher(
            commit_log,
            self._checkpoint,
            config,
            on_flushed=self._flushed,
            on_failed=self._flush_failed,
        )
        self._queue_flusher = ConsumeQueueFlusher(
            lambda: table.all,
            self._checkpoint,
            config,
            entered=self._pending.entered_until,
            after_round=self._retired.sweep,
        )
        self.index = MessageIndex(
            IndexTable(
                files,
                config.index_directory,
                config.max_hash_slot_num,
                config.max_index_num,
                self._checkpoint,
                self._retired,
                clock,
            ),
            commit_log,
            (lambda: flusher.flushed) if sync else (lambda: commit_log.whole),
            table.newest,
            enabled=config.builds_index,
            most=config.max_msgs_num_batch,
            pace=index_pace,
            make_worker=index_worker,
        )
        self._begins = QueueBegins(files, config.root)
        self.cleanup = Cleanup(
            config,
            files,
            commit_log,
            table,
            flushed=lambda: flusher.flushed,
            flush_entries=self._flush_entries,
            clock=clock,
        )
        self._writer = writer = StoreWriter(
            config,
            commit_log,
            table,
            self._pending,
            self.counters,
            delay_levels=self.delay_levels,
            order_flush=flusher.order,
            store_host=store_host,
            clock=clock,
            disk_retry=disk_retry,
        )
        self.replica = ReplicaLog(
            commit_log,
            LogFollower(
                commit_log,
                table,
                self._pending,
                self.delay_levels,
                whole_crc=config.force_verify_prop_crc,
            ),
            self._pending,
            flusher.order if sync else None,
        )
        cut = LogCut(
            commit_log,
            table,
            self._pending,
            self._flusher,
            self._queue_flusher,
            self.index,
            self._checkpoint,
        )
        self.cut = cut.cut
        self.confirm = cut.confirm
        commit_log.on_failed = self._write_failed
        self.settle = writer.settle
        self.put = writer.put
        self.put_batch = writer.put_batch
        self.put_many = writer.put_many
        self.put_run = writer.put_run
        self.refuse = writer.refuse
        self.lack_replicas = writer.lack_replicas
        self.accept = writer.accept
        reader = self._reader = StoreReader(
            commit_log, table, config, writer.try_settle, self.counters, self.delay_levels,
            self._pending.has,
        )  # fmt: skip
        self.get = reader.get
        self.min_offset = reader.min_offset
        self.max_offset = reader.max_offset
        self.offset_by_time = reader.offset_by_time
        self.earliest_store_time = reader.earliest_store_time
        self.store_time_at = reader.store_time_at
        self.properties_at = reader.properties_at
        self.record_at = reader.record_at
        self.message_at = reader.message_at
        self.is_queued = reader.is_queued

    @property
    def queues(self) -> Mapping[str, Mapping[int, ConsumeQueue]]:
        """Topic → queue id → consume queue, of every queue that has or had a message. One that is
        asked for is opened, which raises StoreCorrupt, FileSizeMismatch or OSError if it fails."""
        self._writer.try_settle()
        return self._queues

    @property
    def was_ours(self) -> bool:
        """Whether no broker of another kind used the store since a pocketmq broker last opened
        it."""
        return self._checkpoint.exact

    @property
    def was_closed(self) -> bool:
        """Whether the process that had the store before this `open` closed it."""
        return self._was_closed

    @property
    def refusal(self) -> str:
        """Why puts are refused at the moment; empty while they are not."""
        return self._writer.refusal

    @property
    def told_refusal(self) -> str:
        """The same without paths and names, for clients."""
        return self._writer.told_refusal

    @property
    def trouble(self) -> str:
        """What is wrong with the disk, whether this store takes puts or is a copy; empty if nothing
        is known to be."""
        return self._writer.trouble or self.replica.trouble

    @property
    def role_refusal(self) -> str:
        """Why puts are refused whatever the disk is like; empty while they are not."""
        return self._writer.role_refusal

    @property
    def flush_failed(self) -> bool:
        """Whether a flush failed: nothing is put until the store is opened again."""
        return self._writer.failed

    def listen(self, topic: str, queue_id: int, listener: ArrivalListener) -> None:
        """Call `listener(queue offset, tags code, store timestamp)` for each message that becomes
        readable in a queue, from within the put (or the flush) that made it so."""
        self._table.listen(topic, queue_id, listener)

    def unlisten(self, topic: str, queue_id: int, listener: ArrivalListener) -> None:
        """Undo `listen`."""
        self._table.unlisten(topic, queue_id, listener)

    def when_queues_begin(self, listener: Callable[[str, int], None]) -> None:
        """Call `listener(topic, queue id)` for each queue that is made from now on, or that begins
        anew in a copied log, as its topic was. There is one listener."""
        self._table.on_begun = listener

    @property
    def flushed_offset(self) -> int:
        """The physical offset up to which the commit log is on the disk."""
        return self._flusher.flushed

    @property
    def dispatch_behind(self) -> int:
        """Bytes of the commit log whose messages are not in their queues, or not in the index."""
        entered = self._pending.entered
        if self.config.builds_index:
            entered = min(entered, self.index.position)
        return max(self.commit_log.end - entered, 0)

    def when_flushed(self, end_offset: int, callback: FlushListener) -> None:
        """Call `callback` when the log is on the disk up to the physical offset `end_offset`: at
        once if it is, else later on the loop; with False when it could not be written or flushed
        (`refusal` tells why), or that took longer than syncFlushTimeout."""
        self._flusher.when_flushed(end_offset, callback)

    async def all_flushed(self) -> bool:
        """Wait until everything stored so far is on the disk; return whether it is.

        It is not when the flush failed or took longer than syncFlushTimeout. Save progress only
        after this: a power cut must not leave a table that says "delivered" beside a log without
        the delivered message.
        """
        outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def flushed(done: bool) -> None:
            if not outcome.done():
                outcome.set_result(done)

        # A slave's log may end within a record, and the rest may never come.
        log_end = self.commit_log.whole if self.replica.is_running else self.commit_log.end
        self.when_flushed(log_end, flushed)
        return await outcome

    def open_some(self, topic: str, most: int) -> bool:
        """Open at most `most` of a topic's queues, for who will look at all of them; return whether
        all are open. Opening one takes up to 0.2 ms. Raises as `queues`."""
        return self._table.open_some(topic, most)

    def ended_queues(self, topic: str) -> set[int]:
        """Return the ids of the queues of a topic that have messages, or had; opens none."""
        return self._table.ended(topic)

    def begin_queues(self, begins: Mapping[tuple[str, int], int]) -> None:
        """Have the next message of a queue without messages get this offset, by topic and queue id:
        those before it are in a part of a master's log that was not copied. Raises as `queues`."""
        lacking = {
            (topic, queue_id): offset
            for (topic, queue_id), offset in begins.items()
            if self._begin_queue(topic, queue_id, offset)
        }
        if lacking:
            self._begins.add(lacking)

    def _begin_queue(self, topic: str, queue_id: int, offset: int) -> bool:
        try:
            queue = self._table.find_or_create(topic, queue_id)
        except ValueError:
            return False  # the name is no topic's
        if queue.next_offset or not 0 < offset < MOST_OFFSET:
            return False
        queue.start_at(offset)
        return True

    def delete_topic(self, topic: str) -> bool:
        """Remove a topic's consume queues; False when it has none. Their files go in the next round
        of `cleanup`, which `cleanup.wake` begins at once. Raises OSError."""
        self._writer.try_settle()
        had_queues = self._table.delete_topic(topic)
        self._reader.deleted(topic, self.commit_log.end)
        return had_queues

    def delete_deleted_queues(self, deleted: Mapping[str, int]) -> Iterator[None]:
        """Remove the queues of deleted topics that recovery built again, one a step, as
        `delete_topic` does; `deleted` has the physical offset before which all their messages are.
        To be called after `open`. Raises OSError."""
        for topic, end in deleted.items():
            # A power cut may have taken the end of the log: new messages will be there.
            self._reader.deleted(topic, min(end, self.commit_log.end))
        return self._table.delete_deleted(deleted)

    def open(self) -> None:
        """Lock the directory, map the files, recover. Blocks.

        Raises:
            StoreLocked: another process has the store open.
            StoreCorrupt, FileSizeMismatch, ConfigFileError: the files cannot be used as they are.
            NotADirectory, NotAFile: something else lies where a directory or a file is kept.
            ForeignStore: it is an official store of a kind that is not served.
            DiskFull: the disk has no room for a file that is missing.
            StoreClosed: it was closed; open another `MessageStore`.
        """
        if self._open:
            return
        if self._closed:
            raise StoreClosed(f"the store {self.config.root} was closed")
        config, root = self.config, self.config.root
        check_places(config.directories, config.files)
        check_kind(config.root)
        self._files.make_directory(root)
        raise_descriptor_limit()
        self._lock.acquire()
        try:
            clean = self._was_closed = not self._lock.aborted
            # The first queue does not sync this name if its topic is deleted before.
            self._files.make_directory(config.consume_queue_directory)
            if not clean:
                self._files.sync_directory(root)
            directory = config.commit_log_directory
            self.commit_log.files.load(() if clean else (directory, directory.parent))
            self._checkpoint.open()
            self.confirmed_before = self._checkpoint.confirmed_before
            bounds = self._bounds.load(self._checkpoint.queue_bounds, clean=clean)
            self._table.load(clean=clean, bounds=bounds)
            # After a crash the official broker restores missing entries: this store cannot make
            # those of foreign queues, so it leaves the traces of the crash.
            self._checkpoint.holds_logics = not clean and self._table.has_foreign
            self.recovery_progress.begin()
            deleted = read_deleted_topics(root)
            recovery = Recovery(
                self.commit_log, self._table, self._checkpoint, self.delay_levels, clean=clean,
                copied=config.copied_file.exists(), deleted=deleted,
                whole_crc=config.force_verify_prop_crc,
                progress=self.recovery_progress,
            )  # fmt: skip
            try:
                recovery.run()
            finally:
                self.recovery_progress.end()
            self._begins.load(deleted)
            for topic, begins in self._begins.table.items():
                for queue_id, offset in begins.items():
                    self._begin_queue(topic, queue_id, offset)
            self._flusher.flushed = self._checkpoint.confirm_physical_offset
            if recovery.left_unflushed:
                self._queue_flusher.flush_files_first(config.consume_queue_directory, self._files)
            if not clean:
                # What recovery cut off must not come back after the next crash.
                self._flusher.flush()
            self._checkpoint.sync()
            self._pending.begin_at(self.commit_log.end, self.commit_log.last_write)
            self._files.remove(config.copied_file)
            self.index.open(clean=clean, written=recovery.left_unflushed)
            self._mark_open()
        except (StoreCorrupt, FileSizeMismatch) as error:
            self._close_files()
            raise with_remedy(error, root) from error
        except BaseException:
            self._close_files()
            raise
        self._open = True

    def _mark_open(self) -> None:
        """Leave the trace of a crash, before which nothing is written. Raises OSError.

        On a full disk the store opens without it, so that expired files are removed. It takes no
        messages then, and the index does not go on, until there is room.
        """
        try:
            self._lock.mark_open()
        except OSError as error:
            if not is_full(error):
                raise
            log.error(
                "store %s: no messages are accepted until there is space on the disk; expired "
                "files are removed: %s", self.config.root, error,
            )  # fmt: skip
            self._writer.accept_after(self._mark_late, error)
        else:
            self._marked = True
            self.accept()

    def _mark_late(self) -> None:
        self._lock.mark_open()
        self._marked = True
        log.warning(
            "store %s: there is space on the disk again; messages are accepted", self.config.root
        )
        if self._started:
            self.index.start()

    def start(self) -> None:
        """Start the threads; to be called on the event loop that will use the store."""
        if not self._open:
            raise StoreClosed(f"the store {self.config.root} is not open")
        self._allocator.start()
        self._flusher.start()
        self._queue_flusher.start()
        if self._marked:
            self.index.start()
        self.cleanup.start()
        self.commit_log.watch()
        self._started = True
        self._writer.settle_on(asyncio.get_running_loop())

    async def close(self) -> None:
        """Flush everything, write the checkpoint, unlock. Does nothing the second time.

        After any failed flush the abort file stays, so that the next start recovers.
        """
        if not self._open:
            return
        self._open = False
        self._closed = True
        self.refuse("the store is closed")
        self._writer.stop()
        self.replica.stop()
        await self.cleanup.stop()
        await self.index.stop()
        await self._flusher.stop()
        await self._queue_flusher.stop()
        try:
            if self._flusher.failure is None:
                self._pending.settle()
                await asyncio.get_running_loop().run_in_executor(None, self._flush_log)
                self._pending.enter(self.commit_log.whole)
                if self._marked:
                    await asyncio.get_running_loop().run_in_executor(None, self.index.finish)
                await asyncio.get_running_loop().run_in_executor(
                    None, self._table.removed.remove_some, _REMOVED_AT_STOP
                )
                bounds = self._table.bounds()
                await asyncio.get_running_loop().run_in_executor(None, self._save_bounds, bounds)
                await asyncio.get_running_loop().run_in_executor(None, self._flush_queues)
                if self._queue_flusher.failed:
                    log.error(
                        "store %s: the next start rebuilds the consume queues", self.config.root
                    )
                elif self._checkpoint.holds_logics:
                    log.info(
                        "store %s keeps its abort file until an official broker opens it: only "
                        "that one can recover its batch consume queues",
                        self.config.root,
                    )
                else:
                    self._lock.mark_closed()
        except OSError as error:
            log.error("store %s was not closed cleanly: %s", self.config.root, error)
        finally:
            self._allocator.stop()
            self._close_files()

    def _flush_log(self) -> None:
        self._flusher.flush()

    def _save_bounds(self, bounds: BoundsTable) -> None:
        try:
            self._checkpoint.queue_bounds = self._bounds.save(bounds)
        except OSError as error:
            self._checkpoint.queue_bounds = 0
            log.warning(
                "queue bounds cannot be saved, so the next start does not check the queues: %s",
                error,
            )

    def _flush_queues(self) -> None:
        self._queue_flusher.flush_last()

    def _flush_entries(self, end: int) -> bool:
        if self._checkpoint.entered_offset < end:
            self._queue_flusher.flush(thorough=True)
        return self._checkpoint.entered_offset >= end

    def _close_files(self) -> None:
        self.index.close()
        self._table.close()
        self.commit_log.files.close()
        self._checkpoint.close()
        self._retired.sweep()
        self._lock.release()

    def note_confirmed(self, offset: int) -> None:
        """Have the confirmOffset written with the next checkpoint."""
        self._checkpoint.master_flushed_offset = offset

    def follow(self) -> None:
        """Be the copy of a master's log from now on, on the running event loop: `replica` takes its
        bytes, and puts are refused. Raises OSError."""
        self.refuse("this broker is a slave: its messages come from the master")
        self._files.replace(self.config.copied_file, b"")
        self.replica.start()

    def lead(self) -> None:
        """Take puts again, after the last whole record that was received: first `cut` what follows
        it. Raises OSError."""
        self.replica.stop()
        self._files.remove(self.config.copied_file)
        self.accept()

    def _flushed(self, end: int) -> None:
        self._pending.enter(end)
        if self.on_flushed is not None:
            self.on_flushed()
        if self.replica.is_running:
            self.replica.advance()

    def _write_failed(self, error: OSError) -> None:
        self._writer.writing_failed(error)
        self._flusher.fail_unwritten()

    def _flush_failed(self, error: OSError) -> None:
        log.critical(
            "store %s: flushing failed; messages are refused until the broker is restarted: %s",
            self.config.root,
            error,
        )
        self._writer.fail("flushing to the disk failed", error)
