"""Removes expired commit-log files, the queue and index files that point into them, and the files
of queues that were deleted.

It runs every ten seconds. At `deleteWhen`, when the disk fills up, or on an administrator's
request, it removes the oldest commit-log files that were not written to for `fileReservedTime`
hours. When the disk is nearly full, it removes them whatever their age. It never removes the last
file, nor one that is not on the disk yet. The entries of its messages must be there, too: a queue
of which a power failure leaves neither messages nor entries would give its offsets again. A reader
of a removed file is not disturbed (`files.Retirement`). Reference: CleanCommitLogService,
CleanConsumeQueueService.

Removing a file of a gigabyte takes long, so threads do that. The lists that readers use change on
the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from pocketmq.kept_task import KeptTask
from pocketmq.store.config import StoreConfig
from pocketmq.store.errors import StoreError
from pocketmq.store.files import Files, MappedFile
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.log.mapped_file_queue import MappedFileQueue
from pocketmq.store.queue.consume_queue_table import ConsumeQueueTable

log = logging.getLogger(__name__)

_ORDERED_ROUNDS: Final = 20
_HOUR_MS: Final = 3_600_000
_OPENED_AT_ONCE: Final = 10  # each takes some 200 µs
_QUEUES_AT_ONCE: Final = 100  # each takes some 20 µs
_REMOVED_AT_ONCE: Final = 16  # queues whose files a thread removes before it is asked to stop


class Cleanup:
    """Cleans up one store; `flushed` gives the physical offset up to which the log is on the disk,
    `clock` Unix ms. `flush_entries(end)`, called off the event loop, flushes the queue entries of
    the messages before a physical offset, and tells whether they are on the disk; it raises
    OSError. Each round reads the settings again."""

    def __init__(
        self,
        config: StoreConfig,
        files: Files,
        commit_log: CommitLog,
        table: ConsumeQueueTable,
        *,
        flushed: Callable[[], int],
        flush_entries: Callable[[int], bool],
        clock: Callable[[], int],
    ) -> None:
        self._config = config
        self._files = files
        self._log = commit_log
        self._table = table
        self._flushed = flushed
        self._flush_entries = flush_entries
        self._clock = clock
        self._ordered = 0  # rounds that an admin asked for
        self._min_physical = 0  # up to which the queues are cleaned
        self._nearly_full = False
        self._wake = asyncio.Event()
        self._lock = asyncio.Lock()
        self._stopping = False
        self._task: KeptTask | None = None

    def start(self) -> None:
        """Begin; to be called on the event loop."""
        self._task = KeptTask(self._run, "cleaning of the store")

    async def stop(self) -> None:
        """End, after the file that is being removed."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await self._task.finish()
            self._task = None

    def wake(self) -> None:
        """Begin the next round now: queues were deleted."""
        self._wake.set()

    def order(self) -> None:
        """Remove expired commit-log files from now on for twenty rounds, at any hour."""
        self._ordered = _ORDERED_ROUNDS
        self._wake.set()

    async def _run(self) -> None:
        while not self._stopping:
            try:
                async with asyncio.timeout(self._config.clean_resource_interval / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            if self._stopping:
                return
            try:
                await self.round()
            except OSError as error:
                log.error("cleaning up failed: %s", error)
            except Exception:
                log.exception("cleaning up failed")

    async def round(self) -> int:
        """Remove what was deleted or has expired, and return the number of removed commit-log
        files.

        Raises OSError.
        """
        async with self._lock:
            try:
                return await self._clean_log()
            finally:
                try:
                    await self._clean_queues()
                finally:
                    await self._remove_deleted()

    async def remove_deleted(self) -> None:
        """Remove the files of deleted queues. Raises OSError."""
        async with self._lock:
            await self._remove_deleted()

    async def _remove_deleted(self) -> None:
        while not self._stopping and await asyncio.to_thread(
            self._table.removed.remove_some, _REMOVED_AT_ONCE
        ):
            pass

    # --- the commit log -----------------------------------------------------------------------

    async def _clean_log(self) -> int:
        removed = 0
        used = await asyncio.to_thread(self._used_percent)
        crowded, forced = self._judge(used)
        if crowded or self._ordered or self._is_time():
            self._ordered = max(0, self._ordered - 1)
            while (
                removed < self._config.delete_file_batch_max
                and not self._stopping
                and (file := await self._expired(forced)) is not None
            ):
                if removed:
                    await asyncio.sleep(self._config.delete_commit_log_files_interval / 1000)
                await self._discard(self._log.files, [file])
                log.info("%s is removed: %s", file.path, "the disk is full" if forced else "age")
                removed += 1
            if crowded and not removed:
                log.warning(
                    "disk of the store is %d %% full, but no commit-log file has expired", used
                )
        return removed

    def _is_time(self) -> bool:
        """Return whether this is one of the hours of deleteWhen."""
        hour = time.localtime(self._clock() / 1000).tm_hour
        hours = self._config.delete_when.split(";")
        return any(text.strip().isdecimal() and int(text) == hour for text in hours)

    def _used_percent(self) -> int:
        """How full the fuller disk of log and queues is; 0 before the first check."""
        directories = (self._config.commit_log_directory, self._config.consume_queue_directory)
        return max(
            (self._files.used_percent(path) for path in directories if path.is_dir()), default=0
        )

    def _judge(self, used: int) -> tuple[bool, bool]:
        """Return whether files shall expire at this hour too, and whether whatever their age."""
        config = self._config
        # The reference's bounds of the two levels.
        forced = used > min(85, max(30, config.disk_space_clean_forcibly_ratio))
        nearly_full = used > min(90, max(35, config.disk_space_warning_level_ratio))
        if nearly_full != self._nearly_full:
            self._nearly_full = nearly_full
            if nearly_full:
                log.error("disk of the store is %d %% full", used)
            else:
                log.info("disk of the store has space again: %d %% are used", used)
        crowded = forced or nearly_full or used > config.disk_max_used_space_ratio
        return crowded, (forced or nearly_full) and config.clean_file_forcibly_enable

    async def _expired(self, forced: bool) -> MappedFile | None:
        """Return the oldest file, taken out of the log, if it is to be removed."""
        mapped = self._log.files.mapped
        if len(mapped) < 2:
            return None
        oldest = mapped[0]
        end = oldest.base_offset + oldest.size
        if end > self._flushed():
            return None
        if not forced:
            modified = await asyncio.to_thread(self._files.modified_ms, oldest.path)
            if self._clock() < modified + self._config.file_reserved_time * _HOUR_MS:
                return None
        if not await asyncio.to_thread(self._flush_entries, end):
            return None
        return self._log.files.take_first()

    # --- what is derived from it --------------------------------------------------------------

    async def _clean_queues(self) -> None:
        """Let the queues forget what the log no longer has."""
        min_physical = self._log.min_offset
        if min_physical <= self._min_physical:
            return
        cleaned = await self._open_queues()
        for number, queue in enumerate(self._table.all, 1):
            if not queue.removed:
                try:
                    await self._discard(queue.files, queue.expire(min_physical))
                except OSError as error:
                    log.error("queue %s/%d: %s", queue.topic, queue.queue_id, error)
                    cleaned = False
            if number % _QUEUES_AT_ONCE == 0:
                await asyncio.sleep(0)
        if cleaned:
            self._min_physical = min_physical

    async def delete_expired_queues(self) -> None:
        """Remove the queues without a message in the commit log, except those of system topics.
        Raises OSError."""
        async with self._lock:
            await self._open_queues()
            for number, queue in enumerate(self._table.all, 1):
                if self._stopping:
                    return
                self._table.delete_expired(queue, self._log.min_offset)
                if number % _QUEUES_AT_ONCE == 0:
                    await asyncio.sleep(0)
            await self._remove_deleted()

    async def _open_queues(self) -> bool:
        """Open the queues that are not open, a few in each turn of the event loop; return whether
        all could be."""
        opened = True
        for number, (topic, queue_id) in enumerate(self._table.unopened(), 1):
            if self._stopping:
                return False
            try:
                self._table.find(topic, queue_id)
            except (StoreError, OSError) as error:
                log.error("queue %s/%d cannot be opened: %s", topic, queue_id, error)
                opened = False
            if number % _OPENED_AT_ONCE == 0:
                await asyncio.sleep(0)
        return opened

    @staticmethod
    async def _discard(files: MappedFileQueue, taken: list[MappedFile]) -> None:
        """Remove files that were taken out of a queue of files. Raises OSError.

        A file that cannot be removed goes back, with those after it: a store with a gap between
        its files does not open.
        """
        while taken:
            try:
                await asyncio.to_thread(files.discard, taken[0])
            except OSError:
                files.mapped = (*taken, *files.mapped)
                raise
            del taken[0]
