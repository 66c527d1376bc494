"""Messages of a topic as they arrive, for a limited number of watchers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec

from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.dashboard.access import Access
from pocketmq.dashboard.body_preview import excerpt
from pocketmq.message.message import MessageExt

MOST_TAILS: Final = 8
#: The most messages that one tail shows in a second: nobody reads more.
MOST_A_SECOND: Final = 50
#: Seconds after which a tail ends; the page can restart it.
LONGEST: Final = 15 * 60.0
_MOST_BUFFERED: Final = 128
_MOST_BUFFERED_BYTES: Final = 8 * 1024 * 1024
_EXCERPT: Final = 200


class TailedMessage(msgspec.Struct, frozen=True, rename="camel"):
    """A message for the page. Times are Unix ms."""

    broker: str
    queue: int
    offset: int
    stored: int
    tag: str
    keys: list[str]
    size: int
    excerpt: str

    @classmethod
    def of(cls, message: MessageExt) -> TailedMessage:
        """Return the shown part of a message."""
        return cls(
            message.broker_name,
            message.queue_id,
            message.queue_offset,
            message.store_timestamp,
            message.tags or "",
            list(message.keys),
            len(message.body),
            excerpt(message.body, _EXCERPT),
        )


class TailPart(msgspec.Struct, frozen=True):
    """The messages of about a second; `skipped` messages before the next part are not shown."""

    messages: list[TailedMessage]
    skipped: int = 0


class TooManyTails(Exception):
    """The limit of open tails is reached."""


class Tails:
    """The open tails; `clock` returns seconds."""

    def __init__(
        self,
        *,
        most: int = MOST_TAILS,
        longest: float = LONGEST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._longest = longest
        self._clock = clock
        self._open = 0

    def __len__(self) -> int:
        return self._open

    @contextlib.asynccontextmanager
    async def watch(self, access: Access, topic: str, tags: str) -> AsyncIterator[PullConsumer]:
        """Yield a consumer at the end of the topic.

        Raises:
            TooManyTails: the limit is reached.
            TopicNotExist: the topic does not exist.
            InvalidName: the tags are malformed.
        """
        if self._open >= self._most:
            raise TooManyTails
        self._open += 1
        try:
            await access.admin.topic_route(topic)
            consumer = access.consumer(
                max_buffered=_MOST_BUFFERED, max_buffered_bytes=_MOST_BUFFERED_BYTES
            )
            async with consumer:
                await consumer.assign(topic, tags or "*")
                await consumer.seek("end")
                yield consumer
        finally:
            self._open -= 1

    async def parts(self, consumer: PullConsumer) -> AsyncIterator[TailPart]:
        """Yield new messages about once a second, even if there are none; end after the longest
        time."""
        end = self._clock() + self._longest
        while self._clock() < end:
            second = self._clock() + 1.0
            messages = await consumer.poll(MOST_A_SECOND, 1.0)
            while messages and len(messages) < MOST_A_SECOND:
                left = second - self._clock()
                more = await consumer.poll(MOST_A_SECOND - len(messages), max(left, 0.0))
                if not more:
                    break
                messages += more
            skipped = 0
            if len(messages) >= MOST_A_SECOND:
                await asyncio.sleep(max(second - self._clock(), 0.0))
                skipped = await _skip(consumer)
            yield TailPart([TailedMessage.of(message) for message in messages], skipped)


async def _skip(consumer: PullConsumer) -> int:
    """Skip to the end; return how many messages were skipped."""
    before = {queue: consumer.position(queue) for queue in consumer.assignment}
    await consumer.seek("end")
    return sum(
        max((consumer.position(queue) or 0) - position, 0)
        for queue, position in before.items()
        if position is not None
    )
