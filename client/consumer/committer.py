"""Committing: the offsets of fetchers, stored at the brokers when they have moved."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from client.consumer.fetcher import QueueFetcher
from client.consumer.offset_store import RemoteOffsetStore
from client.errors import RemotingError
from message.message import MessageQueue

__all__ = ["Committer"]

log = logging.getLogger(__name__)


class Committer:
    """Stores how far each queue is done, and remembers what is stored."""

    def __init__(self, store: RemoteOffsetStore) -> None:
        self._store = store
        self._failing: set[MessageQueue] = set()

    async def commit(self, fetchers: Iterable[QueueFetcher], *, strict: bool = False) -> None:
        """Store the safe offset of each fetcher where it differs from the stored one.

        An error is logged, and the offset stored the next time; with `strict` the first error is
        raised after every queue was tried.
        """
        moved = [
            (fetcher, offset)
            for fetcher in fetchers
            if (offset := fetcher.safe_offset) is not None and offset != fetcher.committed
        ]
        outcomes = await asyncio.gather(
            *(self._store_one(fetcher, offset) for fetcher, offset in moved)
        )
        errors = [error for error in outcomes if error is not None]
        if strict and errors:
            raise errors[0]

    async def _store_one(self, fetcher: QueueFetcher, offset: int) -> RemotingError | None:
        try:
            await self._store.store(fetcher.queue, offset)
        except RemotingError as error:
            # While a broker is away this fails every few seconds for each of its queues.
            level = logging.DEBUG if fetcher.queue in self._failing else logging.WARNING
            log.log(level, "commit of %s at %d failed: %s", fetcher.queue, offset, error)
            self._failing.add(fetcher.queue)
            return error
        fetcher.committed = offset
        self._failing.discard(fetcher.queue)
        return None
