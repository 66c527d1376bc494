"""How much is read ahead: bounds for each queue, each topic and the whole consumer.

A fetcher pulls while every bound has room, so each may be passed by one pull. What counts, and for
how long, is the consumer's choice: it adds and removes. Reference:
DefaultMQPushConsumerImpl.pullMessage, with its names for the bounds.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.fetch.process_queue import (
    MESSAGE_OVERHEAD,
    ProcessQueue,
    message_size,
)
from pocketmq.message.message import MessageExt

__all__ = ["PullLimiter", "PullLimits"]


class PullLimits(msgspec.Struct, frozen=True):
    """The bounds; None for none. Sizes in bytes, `queue_span` in offsets. Raises ValueError for one
    below 1."""

    queue_count: int
    queue_size: int | None = None
    queue_span: int | None = None
    topic_count: int | None = None
    topic_size: int | None = None
    total_size: int | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            bound = getattr(self, name)
            if bound is not None and bound < 1:
                raise ValueError(
                    f"a bound on what is read ahead ({name}) must be at least 1, not {bound}: "
                    "nothing would be read"
                )


class _Load:
    """What is held for one topic, or for all; and the queues that wait for some of it to go."""

    __slots__ = ("_count_limit", "_size_limit", "count", "size", "waiting")

    def __init__(self, count_limit: int | None, size_limit: int | None) -> None:
        self.count = 0
        self.size = 0
        self.waiting: set[asyncio.Event] = set()
        self._count_limit = count_limit
        self._size_limit = size_limit

    @property
    def has_room(self) -> bool:
        return (self._count_limit is None or self.count < self._count_limit) and (
            self._size_limit is None or self.size < self._size_limit
        )

    def wake(self) -> None:
        if self.has_room:
            for event in self.waiting:
                event.set()
            self.waiting.clear()


class PullLimiter:
    """What a consumer holds, against its limits."""

    def __init__(self, limits: PullLimits) -> None:
        self.limits = limits
        self._total = _Load(None, limits.total_size)
        self._topics: dict[str, _Load] = defaultdict(
            lambda: _Load(limits.topic_count, limits.topic_size)
        )
        self._waiting: dict[ProcessQueue[Any], asyncio.Event] = {}
        # Without them, a message that goes concerns its queue only: half the work.
        self._shared = limits.topic_count or limits.topic_size or limits.total_size

    @property
    def size(self) -> int:
        """Bytes held for all queues, where that is bounded."""
        return self._total.size

    def add(self, pq: ProcessQueue[Any], messages: Sequence[MessageExt]) -> None:
        """Count these: they were read."""
        self._count(pq, len(messages), _size(messages))

    def remove(self, pq: ProcessQueue[Any], messages: Sequence[MessageExt]) -> None:
        """Stop counting these."""
        self._count(pq, -len(messages), -_size(messages))
        self._wake(pq)

    def remove_one(self, pq: ProcessQueue[Any], size: int) -> None:
        """Stop counting a message that was counted as so many bytes (`message_size`)."""
        if self._shared:
            self._count(pq, -1, -size)
            self._wake(pq)
            return
        pq.count -= 1
        pq.size -= size
        if self._waiting and pq.count < self.limits.queue_count:
            self._wake(pq)

    def forget(self, pq: ProcessQueue[Any]) -> None:
        """Stop counting everything of this queue."""
        self._count(pq, -pq.count, -pq.size)
        self._wake(pq)
        topic = self._topics.get(pq.queue.topic)
        if topic is not None and not (topic.count or topic.waiting):
            del self._topics[pq.queue.topic]

    def recount(self, pq: ProcessQueue[Any], messages: Sequence[MessageExt]) -> None:
        """Count these of the queue, and nothing else."""
        self.forget(pq)
        for message in messages:
            counted = message.counted if isinstance(message, ConsumedMessage) else 0
            self._count(pq, 1, counted or message_size(message))

    def _count(self, pq: ProcessQueue[Any], count: int, size: int) -> None:
        pq.count += count
        pq.size += size
        if not self._shared:
            return
        topic = self._topics[pq.queue.topic]
        topic.count += count
        topic.size += size
        self._total.count += count
        self._total.size += size

    def has_room(self, pq: ProcessQueue[Any]) -> bool:
        """Whether one more pull is due."""
        return (
            self._has_own_room(pq)
            and self._topics[pq.queue.topic].has_room
            and self._total.has_room
        )

    def _has_own_room(self, pq: ProcessQueue[Any]) -> bool:
        limits = self.limits
        return (
            pq.count < limits.queue_count
            and (limits.queue_size is None or pq.size < limits.queue_size)
            and (limits.queue_span is None or pq.span <= limits.queue_span)
        )

    async def wait(self, pq: ProcessQueue[Any]) -> None:
        """Return when there is room; where there is, without a turn of the loop."""
        while not self.has_room(pq):
            event = asyncio.Event()
            # Each waits on what is in its way, so that a message that goes wakes whom it concerns.
            full = [load for load in (self._topics[pq.queue.topic], self._total)
                    if not load.has_room]  # fmt: skip
            if full:
                full[0].waiting.add(event)
            else:
                self._waiting[pq] = event
            try:
                await event.wait()
            finally:
                self._waiting.pop(pq, None)
                for load in full:
                    load.waiting.discard(event)

    def _wake(self, pq: ProcessQueue[Any]) -> None:
        own = self._waiting.get(pq)
        if own is not None and self._has_own_room(pq):
            own.set()
        if not self._shared:
            return
        topic = self._topics[pq.queue.topic]
        if topic.waiting:
            topic.wake()
        if self._total.waiting:
            self._total.wake()


def _size(messages: Sequence[MessageExt]) -> int:
    return sum([len(message.body) for message in messages]) + MESSAGE_OVERHEAD * len(messages)
