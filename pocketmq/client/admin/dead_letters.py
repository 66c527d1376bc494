"""Dead letters: messages that a consumer group failed to consume in all attempts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.messages import TOOLS_GROUP
from pocketmq.message import properties as names
from pocketmq.message.limits import DLQ_PREFIX
from pocketmq.message.message import MessageExt, MessageQueue

__all__ = ["DeadLetters", "origin_topic"]


class Bounds(NamedTuple):
    """Queue offsets: of the oldest dead letter, the first that was not resent, and the end."""

    begin: int
    first_left: int
    end: int


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
