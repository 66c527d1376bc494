"""How much is read ahead: bounds for each queue, each topic and the whole consumer.

A fetcher pulls while every bound has room. Of the answer, it takes messages as long as there is
room for bytes, so that each bound of bytes may be passed by one message, and each bound of messages
by one pull. What had no room is kept as it came, compressed perhaps, and is read before anything
else is pulled; of a topic, or of all, no more is kept than the bound allows for messages. What
counts, and for how long, is the consumer's choice: it adds and removes. Reference:
DefaultMQPushConsumerImpl.pullMessage, with its names for the bounds.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.fetch.process_queue import ProcessQueue, message_size
from pocketmq.message.message import MESSAGE_OVERHEAD, MessageExt


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
    """What is held for one topic, or for all; and the queues that wait for some of it to go.

    Attributes:
        count: messages; 0 for all topics together, which have no limit for it.
        kept: bytes of answers of which some messages had no room yet.
        reading, pulling: what waits to read such an answer, or to pull.
    """

    __slots__ = ("_count_limit", "_size_limit", "count", "kept", "pulling", "reading", "size")

    def __init__(self, count_limit: int | None, size_limit: int | None) -> None:
        self.count = 0
        self.size = 0
        self.kept = 0
        self.reading: set[asyncio.Event] = set()
        self.pulling: set[asyncio.Event] = set()
        self._count_limit = count_limit
        self._size_limit = size_limit

    @property
    def in_use(self) -> bool:
        return bool(self.count or self.kept or self.reading or self.pulling)

    def has_room(self, *, to_read: bool) -> bool:
        """Whether there is room to read a kept answer, or to pull."""
        if self._count_limit is not None and self.count >= self._count_limit:
            return False
        held = self.size if to_read else self.size + self.kept
        return self._size_limit is None or held < self._size_limit

    def room(self) -> int:
        return sys.maxsize if self._size_limit is None else self._size_limit - self.size

    def may_keep(self, size: int) -> bool:
        return self._size_limit is None or self.kept + size <= self._size_limit

    def waiting(self, *, to_read: bool) -> set[asyncio.Event]:
        return self.reading if to_read else self.pulling

    def wake(self) -> None:
        for to_read in (True, False):
            waiting = self.waiting(to_read=to_read)
            if waiting and self.has_room(to_read=to_read):
                for event in waiting:
                    event.set()
                waiting.clear()


class PullLimiter:
    """What a consumer holds, against its limits."""

    def __init__(self, limits: PullLimits) -> None:
        self.limits = limits
        self._total = _Load(None, limits.total_size)
        self._topics: dict[str, _Load] = defaultdict(
            lambda: _Load(limits.topic_count, limits.topic_size)
        )
        # Without them, a message that goes concerns fewer others: half the work.
        self._by_topic = limits.topic_count or limits.topic_size

    @property
    def size(self) -> int:
        """Bytes held for all queues."""
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
        if self._by_topic:
            self._count(pq, -1, -size)
            self._wake(pq)
            return
        total = self._total
        pq.count -= 1
        pq.size -= size
        total.size -= size
        if total.reading or total.pulling:
            total.wake()
        if pq.room is not None and pq.count < self.limits.queue_count:
            self._wake(pq)

    def forget(self, pq: ProcessQueue[Any]) -> None:
        """Stop counting everything of this queue."""
        self._count(pq, -pq.count, -pq.size)
        self._keep(pq, 0)
        self._wake(pq)
        topic = self._topics.get(pq.queue.topic)
        if topic is not None and not topic.in_use:
            del self._topics[pq.queue.topic]

    def keep(self, pq: ProcessQueue[Any], size: int) -> bool:
        """Count an answer of `size` bytes that the queue keeps, in place of an earlier one; 0 for
        none. Return False if there is no room for it, and then none is kept."""
        fits = size <= pq.kept or all(load.may_keep(size - pq.kept) for load in self._loads(pq))
        self._keep(pq, size if fits else 0)
        return fits

    def _keep(self, pq: ProcessQueue[Any], size: int) -> None:
        more = size - pq.kept
        if not more:
            return
        pq.kept = size
        for load in self._loads(pq):
            load.kept += more
            if more < 0:
                load.wake()

    def _loads(self, pq: ProcessQueue[Any]) -> tuple[_Load, ...]:
        if not self._by_topic:
            return (self._total,)
        return self._topics[pq.queue.topic], self._total

    def recount(self, pq: ProcessQueue[Any], messages: Sequence[MessageExt]) -> None:
        """Count these of the queue, and nothing else."""
        self.forget(pq)
        for message in messages:
            # What was counted: the application may have changed the body.
            read = message.stored_body if isinstance(message, ConsumedMessage) else None
            size = message_size(message) if read is None else len(read) + MESSAGE_OVERHEAD
            self._count(pq, 1, size)

    def _count(self, pq: ProcessQueue[Any], count: int, size: int) -> None:
        pq.count += count
        pq.size += size
        if self._by_topic:
            topic = self._topics[pq.queue.topic]
            topic.count += count
            topic.size += size
        self._total.size += size

    def room(self, pq: ProcessQueue[Any]) -> int:
        """Bytes of messages that the queue may take now."""
        size = self.limits.queue_size
        own = sys.maxsize if size is None else size - pq.size
        return min(own, *(load.room() for load in self._loads(pq)))

    def _has_own_room(self, pq: ProcessQueue[Any]) -> bool:
        limits = self.limits
        return (
            pq.count < limits.queue_count
            and (limits.queue_size is None or pq.size < limits.queue_size)
            and (limits.queue_span is None or pq.span <= limits.queue_span)
        )

    def is_full(self, pq: ProcessQueue[Any]) -> bool:
        """Whether nothing more is pulled of the queue before something goes."""
        return not (
            self._has_own_room(pq) and all(load.has_room(to_read=False) for load in self._loads(pq))
        )

    async def wait(self, pq: ProcessQueue[Any]) -> None:
        """Return when there is room to read what the queue keeps, or to pull where it keeps
        nothing; where there is, without a turn of the loop."""
        to_read = pq.kept > 0
        while True:
            full = [load for load in self._loads(pq) if not load.has_room(to_read=to_read)]
            if not full and self._has_own_room(pq):
                return
            event = asyncio.Event()
            # Each waits on what is in its way, so that a message that goes wakes whom it concerns.
            if full:
                full[0].waiting(to_read=to_read).add(event)
            else:
                pq.room = event
            try:
                await event.wait()
            finally:
                if pq.room is event:
                    pq.room = None
                for load in full:
                    load.waiting(to_read=to_read).discard(event)

    def _wake(self, pq: ProcessQueue[Any]) -> None:
        if pq.room is not None and self._has_own_room(pq):
            pq.room.set()
            pq.room = None
        for load in self._loads(pq):
            if load.reading or load.pulling:
                load.wake()


def _size(messages: Sequence[MessageExt]) -> int:
    return sum([len(message.body) for message in messages]) + MESSAGE_OVERHEAD * len(messages)
