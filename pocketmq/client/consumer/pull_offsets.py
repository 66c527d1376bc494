"""Where a pull consumer stands in its queues, and where it goes on: what PullConsumer offers for
offsets. Queues are those that the application knows, without namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pocketmq.client.consumer.dispatch.ready_queues import ReadyQueues
from pocketmq.client.consumer.offsets.committer import Committer
from pocketmq.client.consumer.offsets.offset_store import OffsetStore
from pocketmq.client.consumer.rebalance.assignment import Assignment
from pocketmq.client.instance import ClientInstance
from pocketmq.client.offsets import Position, QueueOffsets, check_position
from pocketmq.message.message import MessageExt, MessageQueue

__all__ = ["PullOffsets"]


class PullOffsets:
    """The offsets of one pull consumer."""

    def __init__(
        self,
        instance: ClientInstance,
        assignment: Assignment[MessageExt],
        handout: ReadyQueues[MessageExt],
        store: OffsetStore,
        group: str,
    ) -> None:
        self._instance = instance
        self._namespace = instance.namespace
        self._assignment = assignment
        self._handout = handout
        self._store = store
        self._committer = Committer(store, group)
        self._offsets = QueueOffsets(instance)

    async def seek(self, position: Position, *, queue: MessageQueue | None = None) -> None:
        """Go on elsewhere: at "begin", "end", a store time, or an offset; in one queue or in all.

        What was read ahead is dropped. An offset that does not exist is corrected by the broker to
        the nearest one. Raises ValueError for a queue that is not read, or a bad position.
        """
        check_position(position)
        self._instance.check_running("consumer")
        fetchers = self._assignment.fetchers
        queues = list(fetchers) if queue is None else [self._read_here(queue)]
        offsets = await asyncio.gather(*(self._offsets.resolve(q, position) for q in queues))
        for target, offset in zip(queues, offsets, strict=True):
            if target in fetchers:
                self._assignment.seek(target, offset)

    def position(self, queue: MessageQueue) -> int | None:
        """The offset of the next message to be handed out; None before it is known."""
        return self._assignment.fetchers[self._read_here(queue)].pq.position

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store the offsets of everything handed out so far, or the given ones, at the brokers.

        Raises the first error after every queue was tried.
        """
        self._instance.check_running("consumer")
        if offsets is None:
            self._handout.release()
            await self._committer.commit(self._assignment.queues, strict=True)
            return
        wired = {self._namespace.wrap_queue(queue): at for queue, at in offsets.items()}
        outcomes = await asyncio.gather(
            *(self._store.store(queue, at) for queue, at in wired.items()), return_exceptions=True
        )
        errors = [outcome for outcome in outcomes if outcome is not None]
        for (queue, offset), error in zip(wired.items(), outcomes, strict=True):
            if error is None and queue in self._assignment.fetchers:
                self._assignment.fetchers[queue].pq.committed = offset
        if errors:
            raise errors[0]

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's stored offset; None when it has none."""
        return await self._store.read(self._wire(queue))

    async def begin_offset(self, queue: MessageQueue) -> int:
        """The oldest offset still stored."""
        return await self._offsets.min(self._wire(queue))

    async def end_offset(self, queue: MessageQueue) -> int:
        """The offset that the queue's next message will get."""
        return await self._offsets.max(self._wire(queue))

    def _wire(self, queue: MessageQueue) -> MessageQueue:
        """The queue as the servers know it."""
        self._instance.check_running("consumer")
        return self._namespace.wrap_queue(queue)

    def _read_here(self, queue: MessageQueue) -> MessageQueue:
        """The same; raises ValueError for one that is not read."""
        wired = self._namespace.wrap_queue(queue)
        if wired not in self._assignment.fetchers:
            raise ValueError(f"{queue} is not read by this consumer")
        return wired
