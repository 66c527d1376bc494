"""One queue being read ahead: a long-polling loop that fills a bounded buffer, and its offsets.

| offset | meaning |
|---|---|
| next_offset | where the next pull begins |
| position | the first message not handed out yet |
| held_at | the first message handed out that may still be in work; None when none is |
| committed | what the group's stored offset is known to be |

The loop never ends by itself: whatever goes wrong (connection, broker, route, name server) is
logged once, tried again after a pause of at most a second, and logged again when it works.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol

from client.consumer.puller import Puller, PullResult, PullStatus
from client.errors import RemotingError
from message.message import MessageExt, MessageQueue
from message.tags import TagExpression

__all__ = ["FetchBudget", "QueueFetcher", "Reader"]

log = logging.getLogger(__name__)

#: Pause after the first and after any further failure in a row, seconds.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 1.0
#: Bytes a message in memory takes beside its body, roughly.
MESSAGE_OVERHEAD = 1024


class FetchBudget:
    """Bytes buffered by all fetchers of a consumer, against one limit."""

    __slots__ = ("_waiting", "buffered", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.buffered = 0
        self._waiting: set[asyncio.Event] = set()

    def add(self, messages: Iterable[MessageExt]) -> None:
        self.buffered += sum(len(message.body) + MESSAGE_OVERHEAD for message in messages)

    def remove(self, messages: Iterable[MessageExt]) -> None:
        self.buffered -= sum(len(message.body) + MESSAGE_OVERHEAD for message in messages)
        if self._waiting and self.buffered < self.limit:
            for event in self._waiting:
                event.set()
            self._waiting.clear()

    def wait_on(self, event: asyncio.Event) -> None:
        """Have `event` set when there is room again."""
        self._waiting.add(event)

    def forget(self, event: asyncio.Event) -> None:
        self._waiting.discard(event)


class Reader(Protocol):
    """What a fetcher asks of its consumer."""

    async def first_offset(self, queue: MessageQueue) -> int:
        """Where the group goes on in a queue; raises RemotingError."""

    def arrived(self, fetcher: QueueFetcher) -> None:
        """The fetcher's buffer is not empty any more."""

    def failed(self, queue: MessageQueue, error: RemotingError) -> None:
        """A round of the loop failed; it goes on."""


class QueueFetcher:
    """Reads one queue ahead of its consumer.

    At most `max_buffered` messages and one pull more are kept, within the consumer's budget.
    """

    def __init__(
        self,
        queue: MessageQueue,
        tags: TagExpression,
        puller: Puller,
        reader: Reader,
        budget: FetchBudget,
        *,
        max_buffered: int,
        batch: int,
    ) -> None:
        self.queue = queue
        self.next_offset: int | None = None
        self.held_at: int | None = None
        self.committed: int | None = None
        self.buffer: deque[MessageExt] = deque()
        self._tags = tags
        self._puller = puller
        self._reader = reader
        self._budget = budget
        self._max_buffered = max_buffered
        self._batch = batch
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def position(self) -> int | None:
        """The offset of the next message to hand out; None before the first offset is known.

        Messages that the filter left out count as handed out.
        """
        return self.buffer[0].queue_offset if self.buffer else self.next_offset

    @property
    def safe_offset(self) -> int | None:
        """Everything before it is done: what may be committed without being asked to."""
        return self.position if self.held_at is None else self.held_at

    def start(self, spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]) -> None:
        """Begin, or go on after `stop` or `seek`."""
        if self._task is None:
            self._task = spawn(self._run(), f"pull {self.queue.topic}:{self.queue.queue_id}")

    def stop(self) -> None:
        """End the loop. The buffer stays; nothing is added to it from this moment on."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._budget.forget(self._room)

    def seek(self, offset: int) -> None:
        """Go on at another offset; what was read ahead is dropped. The loop must be stopped."""
        self._discard()
        self.next_offset = offset

    def rewind(self) -> None:
        """Drop what was read ahead, and stand at the first message that is not done."""
        safe = self.safe_offset
        self._discard()
        self.next_offset = safe

    def _discard(self) -> None:
        self._budget.remove(self.buffer)
        self.buffer.clear()
        self.held_at = None

    def take(self, count: int) -> list[MessageExt]:
        """Hand out up to `count` messages, which are held from now on."""
        buffer = self.buffer
        if count >= len(buffer):
            messages = list(buffer)
            buffer.clear()
        else:
            messages = [buffer.popleft() for _ in range(count)]
        if messages:
            if self.held_at is None:
                self.held_at = messages[0].queue_offset
            self._budget.remove(messages)
            self._room.set()
        return messages

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                if self.next_offset is None:
                    self.next_offset = await self._reader.first_offset(self.queue)
                await self._wait_for_room()
                result = await self._puller.poll(
                    self.queue, self.next_offset, self._tags, self._batch
                )
            except RemotingError as error:
                failures += 1
                if failures == 1:
                    log.warning("reading %s failed, trying again: %s", self.queue, error)
                self._reader.failed(self.queue, error)
                await asyncio.sleep(min(FIRST_PAUSE * 2 ** min(failures - 1, 8), LONGEST_PAUSE))
                continue
            if failures:
                log.info("reading %s works again after %d failures", self.queue, failures)
                failures = 0
            self._accept(result)

    async def _wait_for_room(self) -> None:
        while len(self.buffer) >= self._max_buffered or self._budget.buffered >= self._budget.limit:
            self._room.clear()
            if self._budget.buffered >= self._budget.limit:
                self._budget.wait_on(self._room)
            await self._room.wait()

    def _accept(self, result: PullResult) -> None:
        if result.status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "%s has no offset %s (it has %d to %d): going on at %d",
                self.queue,
                self.next_offset,
                result.min_offset,
                result.max_offset,
                result.next_begin_offset,
            )
        self.next_offset = result.next_begin_offset
        if result.messages:
            self._budget.add(result.messages)
            self.buffer.extend(result.messages)
            self._reader.arrived(self)
