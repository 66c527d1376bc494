"""Dead letters: messages that a consumer group failed to consume in every attempt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec

from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.messages import TOOLS_GROUP
from pocketmq.message import properties as names
from pocketmq.message.limits import DLQ_PREFIX
from pocketmq.message.message import MessageExt, MessageQueue


class Bounds(NamedTuple):
    """Queue offsets: of the oldest dead letter, of the first that was not resent, and the end."""

    begin: int
    first_left: int
    end: int


class Death(NamedTuple):
    """Why a message became a dead letter: the text and the full type name of the exception that its
    handler raised, and the consumer's client id; None for what is unknown."""

    reason: str | None = None
    exception: str | None = None
    consumer: str | None = None

    def __str__(self) -> str:
        """Return the last line of a traceback: the type, without its module, and the text."""
        kind = (self.exception or "").rpartition(".")[2]
        return ": ".join(filter(None, (kind, self.reason)))


def death_of(message: MessageExt) -> Death:
    """Return why a message became a dead letter.

    Consumers of pocketmq write it into the properties. If a dead letter is resent, and another
    client fails to consume it, these properties are out of date: they have fewer attempts.
    """
    properties = message.properties
    if properties.get(names.DLQ_ATTEMPTS) != str(message.reconsume_times):
        return Death()
    return Death(
        properties.get(names.DLQ_REASON),
        properties.get(names.DLQ_EXCEPTION),
        properties.get(names.DLQ_CONSUMER),
    )


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of dead letters: all fields must match; None matches any.

    `reason`: a part of the reason, case-insensitive. `exception`: a type name with or without its
    module. `begin` (included) and `end` (excluded): when it became a dead letter, Unix ms.
    """

    msg_id: str | None = None
    tag: str | None = None
    key: str | None = None
    reason: str | None = None
    exception: str | None = None
    begin: int | None = None
    end: int | None = None

    def has(self, message: MessageExt) -> bool:
        """Return whether a dead letter matches."""
        death = death_of(message)
        name = death.exception or ""
        return (
            self.msg_id in (None, message.msg_id)
            and self.tag in (None, message.tags)
            and (self.key is None or self.key in message.keys)
            and (self.reason or "").casefold() in (death.reason or "").casefold()
            and self.exception in (None, name, name.rpartition(".")[2])
            and (self.begin is None or self.begin <= message.store_timestamp)
            and (self.end is None or message.store_timestamp < self.end)
        )


class DeadLetters:
    """The dead letters of one group, and which of them were resent.

    That position is stored as an offset of RocketMQ's tools group, which every broker has.
    """

    def __init__(self, admin: Admin, group: str) -> None:
        self._admin = admin
        self.topic = f"{DLQ_PREFIX}{group}"

    async def bounds(self) -> dict[MessageQueue, Bounds]:
        """Return the bounds of each queue; empty if there are no dead letters."""
        if self.topic not in await self._admin.topics():
            return {}
        bounds = {}
        for queue in await self._admin.queues(self.topic):
            begin, end = await self._admin.min_offset(queue), await self._admin.max_offset(queue)
            sent = await self._admin.group_offset(TOOLS_GROUP, queue)
            bounds[queue] = Bounds(begin, max(begin, sent or 0), end)
        return bounds

    async def messages(self, *, sent_too: bool) -> AsyncIterator[tuple[MessageQueue, MessageExt]]:
        """Yield each dead letter with its queue, in the order of each queue."""
        for queue, (begin, first_left, end) in (await self.bounds()).items():
            offset = begin if sent_too else first_left
            while offset < end:
                result = await self._admin.read(queue, offset)
                for message in result.messages:
                    if message.queue_offset < end:
                        yield queue, message
                if result.next_begin_offset <= offset:
                    break
                offset = result.next_begin_offset

    async def mark_sent(self, queue: MessageQueue, message: MessageExt) -> None:
        """Record that this message and all before it in the queue were resent."""
        await self._admin.set_group_offset(TOOLS_GROUP, queue, message.queue_offset + 1)


def origin_topic(message: MessageExt) -> str:
    """Return the original topic of a dead letter; empty if it is unknown."""
    properties = message.properties
    return properties.get(names.RETRY_TOPIC) or properties.get(names.DLQ_ORIGIN_TOPIC) or ""
