"""Limits the messages in memory, per queue, per topic and for the whole consumer.

A fetcher pulls while no limit is reached. From the answer, it takes messages as long as there is
room in bytes. So a limit in bytes may be exceeded by one message, and a limit in messages by one
pull. The rest of the answer is kept undecoded, perhaps compressed, and is read before the next
pull; for a topic, or for all, the kept bytes have the same limit as those of messages. The kind of
consumer determines which messages count and how long: it adds and removes them. Reference:
DefaultMQPushConsumerImpl.pullMessage, with its names of the limits.
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
    """The limits; None for no limit. Sizes in bytes, `queue_span` in offsets. Raises ValueError for
    a limit below 1."""

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
    """The load of one topic, or of all, and the queues that wait for room.

    Attributes:
        count: messages; 0 for all topics together, which have no such limit.
        kept: bytes of answers that are not fully read, for lack of room.
        reading, pulling: events of queues that wait to read such an answer, or to pull.
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
        """Return whether there is room to read a kept answer, or to pull."""
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
    """The load of a consumer, and its limits."""

    def __init__(self, limits: PullLimits) -> None:
        self.limits = limits
        self._total = _Load(None, limits.total_size)
        self._topics: dict[str, _Load] = defaultdict(
            lambda: _Load(limits.topic_count, limits.topic_size)
        )
        # Without limits per topic, removing a message is half the work.
        self._by_topic = limits.topic_count or limits.topic_size

    @property
    def size(self) -> int:
        """Bytes of all queues."""
        return self._total.size

    def add(self, pq: ProcessQueue[Any], messages: Sequence[MessageExt]) -> None:
        """Count messages that were read."""
        self._count(pq, len(messages), _size(messages))

    def remove(self, pq: ProcessQueue[Any], messages: Sequence[MessageExt]) -> None:
        """Stop counting messages."""
        self._count(pq, -len(messages), -_size(messages))
        self._wake(pq)

    def remove_sized(self, pq: ProcessQueue[Any], count: int, size: int) -> None:
        """Stop counting messages that were counted with `size` bytes (`message_size`) together."""
        if self._by_topic:
            self._count(pq, -count, -size)
            self._wake(pq)
            return
        total = self._total
        pq.count -= count
        pq.size -= size
        total.size -= size
        if total.reading or total.pulling:
            total.wake()
        if pq.room is not None and pq.count < self.limits.queue_count:
            self._wake(pq)

    def forget(self, pq: ProcessQueue[Any]) -> None:
        """Stop counting a queue."""
        self._count(pq, -pq.count, -pq.size)
        self._keep(pq, 0)
        self._wake(pq)
        topic = self._topics.get(pq.queue.topic)
        if topic is not None and not topic.in_use:
            del self._topics[pq.queue.topic]

    def keep(self, pq: ProcessQueue[Any], size: int) -> bool:
        """Count an answer of `size` bytes that the queue keeps, instead of the last one; 0 for
        none. Return False if there is no room for it; then none is kept."""
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
        """Count exactly these messages for a queue."""
        self.forget(pq)
        for message in messages:
            # The size that was counted: the application may have changed the body.
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
        """Return how many bytes of messages a queue may add now."""
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
        """Return whether a queue must not be pulled until messages are removed."""
        return not (
            self._has_own_room(pq) and all(load.has_room(to_read=False) for load in self._loads(pq))
        )

    async def wait(self, pq: ProcessQueue[Any]) -> None:
        """Wait for room to read the queue's kept answer or, if it has none, to pull. Returns
        without yielding if there is room."""
        to_read = pq.kept > 0
        while True:
            full = [load for load in self._loads(pq) if not load.has_room(to_read=to_read)]
            if not full and self._has_own_room(pq):
                return
            event = asyncio.Event()
            # Wait for the limit that is reached, so that removing a message wakes only waiters that
            # can continue.
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
