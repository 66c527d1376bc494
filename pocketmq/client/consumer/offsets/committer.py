"""Commits the offsets of process queues that have changed."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Iterable, Sequence
from time import monotonic
from typing import Any

from pocketmq.client.consumer.broker_outages import BrokerOutages
from pocketmq.client.consumer.fetch.process_queue import ProcessQueue
from pocketmq.client.consumer.offsets.offset_store import OffsetStore
from pocketmq.client.errors import RemotingError
from pocketmq.client.log_fields import fields

log = logging.getLogger(__name__)

#: When the group has changed, unchanged offsets are stored again after pauses of 1, 2, 4, ... up to
#: this many seconds. A client that was silent for longer has left the group, and its return is
#: another change.
LAST_REPEAT = 128.0


class Committer:
    """Commits the offsets of a group, and remembers what is stored."""

    def __init__(self, store: OffsetStore, group: str, outages: BrokerOutages) -> None:
        self._group = group
        self._outages = outages
        self._store = store
        #: Commits of queues that were dropped.
        self._leaving: set[asyncio.Task[None]] = set()
        self._pause = 0.0
        self._repeat_at = math.inf

    def group_changed(self) -> None:
        """Let `commit_owned` store unchanged offsets again in the next minutes: a client that owned
        a queue before may store an older offset after this one. The reference stores every offset
        every 5 s."""
        self._pause = 1.0
        self._repeat_at = monotonic() + self._pause

    async def commit_owned(
        self, queues: Sequence[ProcessQueue[Any]], *, strict: bool = False
    ) -> None:
        """Commit as `commit`, for all queues that this client owns."""
        now = monotonic()
        if now >= self._repeat_at:
            self._pause *= 2
            self._repeat_at = now + self._pause if self._pause <= LAST_REPEAT else math.inf
            for pq in queues:
                pq.committed = None
        await self.commit(queues, strict=strict)

    async def commit(self, queues: Iterable[ProcessQueue[Any]], *, strict: bool = False) -> None:
        """Commit the safe offset of each queue if it differs from the stored one.

        Errors are logged, and the next call tries again. With `strict`, the first error is raised
        after every queue was tried.
        """
        moved = [
            (pq, offset)
            for pq in queues
            if (offset := pq.safe_offset) is not None and offset != pq.committed
        ]
        outcomes = await asyncio.gather(*(self._store_one(pq, offset) for pq, offset in moved))
        errors = [error for error in outcomes if error is not None]
        if strict and errors:
            raise errors[0]

    async def let_go(self, queues: Sequence[ProcessQueue[Any]]) -> None:
        """Commit the offsets of queues that were dropped. If the caller is cancelled, the commit
        continues: nothing would repeat it."""
        if queues:
            commit = asyncio.get_running_loop().create_task(self.commit(queues))
            self._leaving.add(commit)
            commit.add_done_callback(self._leaving.discard)
            await asyncio.shield(commit)

    async def last(self, commit: Awaitable[None], timeout: float) -> None:
        """Wait up to `timeout` seconds for the commit at the shutdown, and for those of dropped
        queues."""
        leaving = tuple(self._leaving)
        try:
            async with asyncio.timeout(timeout):
                await asyncio.gather(commit, *leaving)
        except TimeoutError:
            log.warning(
                "final offset commit of group %s timed out: some messages will be redelivered",
                self._group,
                extra=fields(group=self._group),
            )

    async def _store_one(self, pq: ProcessQueue[Any], offset: int) -> RemotingError | None:
        # An offset that only a slave has is stored again until the master has it.
        stays = self._store.keeps(pq.queue)
        try:
            await self._store.store(pq.queue, offset)
        except RemotingError as error:
            self._outages.failed(pq.queue.broker_name, "committing", error, pq.queue.topic)
            pq.commit_failed = True
            return error
        pq.committed = offset if stays else None
        if pq.commit_failed:
            pq.commit_failed = False
            self._outages.answered(pq.queue.broker_name, "committing", pq.queue.topic)
        return None
