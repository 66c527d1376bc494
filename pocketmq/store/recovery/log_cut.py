"""Takes the end of a log back while the store is in use, in the log and in its queues.

A replica that joins a new master forgets what that one does not have (`cut`). What not every
replica has may not be read yet: it waits like what is not flushed (`confirm`). A start enters all
that the log has: until that is confirmed, or cut, a slave refuses reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from pocketmq.message.record_layout import BLANK_MAGIC, MIN_BLANK, peek
from pocketmq.store.errors import RecordNotFound
from pocketmq.store.index.message_index import MessageIndex
from pocketmq.store.log.checkpoint import Checkpoint
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.consume_queue_table import ConsumeQueueTable
from pocketmq.store.queue.pending_entries import PendingEntries
from pocketmq.store.recovery.flush import CommitLogFlusher, ConsumeQueueFlusher

log = logging.getLogger(__name__)


class LogCut:
    """The end of one store's log; all methods belong to the event loop's thread."""

    def __init__(
        self,
        commit_log: CommitLog,
        table: ConsumeQueueTable,
        pending: PendingEntries,
        flusher: CommitLogFlusher,
        queue_flusher: ConsumeQueueFlusher,
        index: MessageIndex,
        checkpoint: Checkpoint,
    ) -> None:
        self._commit_log = commit_log
        self._table = table
        self._pending = pending
        self._flusher = flusher
        self._queue_flusher = queue_flusher
        self._index = index
        self._checkpoint = checkpoint

    def confirm(self, end: int) -> None:
        """Let messages be read up to the physical offset `end`, and no later ones that are not yet
        entered. Replicas that are to be in sync have the log up to there. Raises OSError."""
        self._pending.limit = end
        self._pending.enter_what_may_be_read(self._flusher.flushed)

    async def cut(self, end: int) -> None:
        """Forget everything from the physical offset `end` on, where a record ends: in the log, in
        the queues, and pending entries.

        Raises:
            ValueError: no record ends there; nothing was changed.
            StoreError, OSError: some of it may have been forgotten; open the store again.
        """
        commit_log = self._commit_log
        commit_log.write()
        if not self._is_border(end):
            raise ValueError(f"no record ends at the physical offset {end}")
        async with self._unflushed():
            # Before the log changes: the next start takes one that is shorter for damaged.
            checkpoint = self._checkpoint
            checkpoint.confirm_physical_offset = min(checkpoint.confirm_physical_offset, end)
            checkpoint.entered_offset = min(checkpoint.entered_offset, end)
            checkpoint.last_write = 0
            checkpoint.queue_bounds = 0
            checkpoint.sync()
            self._forget_entries(end)
            commit_log.cut(end)
            self._flusher.cut(end)
            self._index.cut(end)
        await asyncio.get_running_loop().run_in_executor(None, self._flusher.flush)
        log.warning("the log was cut at the physical offset %d", end)

    def _is_border(self, end: int) -> bool:
        commit_log = self._commit_log
        if end in (commit_log.whole, commit_log.min_offset):
            return True
        if not commit_log.min_offset <= end < commit_log.whole:
            return False
        if end % commit_log.file_size == 0:
            return True
        try:
            commit_log.record_at(end)
        except RecordNotFound:
            head = commit_log.read(end, MIN_BLANK)
            return head is not None and peek(head)[1] == BLANK_MAGIC
        return True

    def _every_queue(self) -> list[ConsumeQueue]:
        for topic, queue_id in self._table.unopened():
            self._table.find(topic, queue_id)
        return self._table.all

    def _forget_entries(self, end: int) -> None:
        """Take back the queue offsets of records from the physical offset `end` on."""
        self._pending.forget_from(end)
        for queue in self._every_queue():
            first = queue.first_where(lambda physical, size: physical >= end)
            if first < queue.max_offset:
                queue.truncate(first)

    @contextlib.asynccontextmanager
    async def _unflushed(self) -> AsyncIterator[None]:
        """Keep the flush threads away from the part that is about to be cut."""
        loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as held:
            for flusher in (self._flusher, self._queue_flusher):
                await loop.run_in_executor(None, flusher.flushing.acquire)
                held.callback(flusher.flushing.release)
            yield
