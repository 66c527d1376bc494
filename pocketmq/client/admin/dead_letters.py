"""Dead letters: messages that a consumer group failed to consume in all attempts."""

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
    """Queue offsets: of the oldest dead letter, the first that was not resent, and the end."""

    begin: int
    first_left: int
    end: int


class Death(NamedTuple):
    """Why a message died: what its handler raised, the full name of that exception's type, and the
    client id of the consumer; each None where nothing says so."""

    reason: str | None = None
    exception: str | None = None
    consumer: str | None = None

    def __str__(self) -> str:
        """As a traceback ends: the type, without its module, and the text."""
        kind = (self.exception or "").rpartition(".")[2]
        return ": ".join(filter(None, (kind, self.reason)))


def death_of(message: MessageExt) -> Death:
    """Why a dead letter died.

    Consumers of this package say so in its properties. Another client that gives up a dead letter
    which was sent again keeps those of its first death, when it had fewer attempts.
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
    """Some of the dead letters: those that have all of this; None stands for any.

    `reason` is a part of it, in small or capital letters; `exception` a name with or without its
    module. `begin` and `end` are times of death, Unix ms: from `begin` on, and before `end`.
    """

    msg_id: str | None = None
    tag: str | None = None
    key: str | None = None
    reason: str | None = None
    exception: str | None = None
    begin: int | None = None
    end: int | None = None

    def has(self, message: MessageExt) -> bool:
        """Whether it is one of them."""
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
    """The dead letters of one group, and which of them were sent again.

    How far that is, is kept as an offset of RocketMQ's own tool group, which every broker has.
    """

    def __init__(self, admin: Admin, group: str) -> None:
        self._admin = admin
        self.topic = f"{DLQ_PREFIX}{group}"

    async def bounds(self) -> dict[MessageQueue, Bounds]:
        """What each queue has; none while there is no dead letter."""
        if self.topic not in await self._admin.topics():
            return {}
        bounds = {}
        for queue in await self._admin.queues(self.topic):
            begin, end = await self._admin.min_offset(queue), await self._admin.max_offset(queue)
            sent = await self._admin.group_offset(TOOLS_GROUP, queue)
            bounds[queue] = Bounds(begin, max(begin, sent or 0), end)
        return bounds

    async def messages(self, *, sent_too: bool) -> AsyncIterator[tuple[MessageQueue, MessageExt]]:
        """Each dead letter with its queue, those of a queue in their order."""
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
        """This one and all before it in the queue were sent again."""
        await self._admin.set_group_offset(TOOLS_GROUP, queue, message.queue_offset + 1)


def origin_topic(message: MessageExt) -> str:
    """The topic that a dead letter came from; empty where nothing says so."""
    properties = message.properties
    return properties.get(names.RETRY_TOPIC) or properties.get(names.DLQ_ORIGIN_TOPIC) or ""
