"""The offsets of a consumer group, stored by the brokers (RemoteBrokerOffsetStore)."""

from __future__ import annotations

from typing import Protocol

from pocketmq.client.errors import RemotingError
from pocketmq.client.instance import ClientInstance
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)


class OffsetStore(Protocol):
    """Stores the offsets of one group; an offset is that of the next message to consume."""

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the stored offset; None if there is none. Raises RemotingError."""

    async def store(self, queue: MessageQueue, offset: int) -> None:
        """Store an offset; returns when it is stored. Raises RemotingError."""

    def keeps(self, queue: MessageQueue) -> bool:
        """Return whether an offset that is stored now lasts. A slave's offsets are replaced by its
        master's as soon as the master is back."""


class RemoteOffsetStore:
    """The offsets of one group at the brokers that hold the queues."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the stored offset; None if there is none."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            # Else a broker returns 0 for an unknown group as long as the queue's first message is
            # in memory, and `start` would depend on the size of the topic.
            set_zero_if_not_found=False,
        )
        try:
            answer = await self._instance.request(
                await self._instance.broker_address(queue),
                RequestCode.QUERY_CONSUMER_OFFSET,
                header,
                broker=queue.broker_name,
                batch=True,
            )
        except RemotingError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return QueryConsumerOffsetResponseHeader.from_ext(answer.ext_fields).offset

    async def store(self, queue: MessageQueue, offset: int) -> None:
        """Store an offset, and wait for the broker's confirmation."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
        )
        await self._instance.request(
            await self._instance.broker_address(queue),
            RequestCode.UPDATE_CONSUMER_OFFSET,
            header,
            broker=queue.broker_name,
            batch=True,
        )

    def keeps(self, queue: MessageQueue) -> bool:
        """Return whether a master stores the offsets of the queue."""
        return self._instance.routes.has_master(queue.broker_name)
