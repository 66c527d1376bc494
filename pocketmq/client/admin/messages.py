"""Single messages: query by key, tag, id, or queue offset, and deliver again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar, Final

from pocketmq.client.admin.servers import Servers
from pocketmq.client.consumer.expression import EVERYTHING
from pocketmq.client.consumer.fetch.puller import Puller, PullResult
from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.errors import QueryNotFound, RemoteSystemError
from pocketmq.client.parameters import (
    MOST_INT,
    MOST_OFFSET,
    instance,
    message_queue,
    text,
    whole,
)
from pocketmq.client.routes.route import MASTER_ID
from pocketmq.client.validation import check_topic_name, consumer_group
from pocketmq.message.identity import InvalidMessageId, decode_offset_msg_id
from pocketmq.message.message import MessageExt, MessageQueue
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.message_query import (
    QueryMessageRequestHeader,
    ViewMessageRequestHeader,
)
from pocketmq.remoting.headers.send import ConsumerSendMsgBackRequestHeader

#: The group of RocketMQ's tools, which every broker knows.
TOOLS_GROUP = "TOOLS_CONSUMER"
_END_OF_TIME = 2**63 - 1
#: indexType of QUERY_MESSAGE, from 5.4 on.
_BY_TAG: Final = "T"
#: Limit of the messages that `read` returns, bytes in memory; the last one may exceed it.
READ_AT_ONCE = 64 * 1024 * 1024


class MessageAdmin(Servers):
    """Admin's methods for single messages."""

    _message_type: ClassVar[type[MessageExt]] = MessageExt

    async def messages_by_key(
        self, topic: str, key: str, *, max_messages: int = 64
    ) -> list[MessageExt]:
        """Return the messages of a topic with an index key, oldest first, at most `max_messages`
        per broker. Raises TopicNotExist."""
        text("key", key)
        whole("max_messages", max_messages, 1, MOST_INT)
        found = await self._query(topic, key, max_messages)
        return [message for message in found if key in message.keys]

    async def messages_by_tag(
        self, topic: str, tag: str, *, max_messages: int = 64
    ) -> list[MessageExt]:
        """Return the messages of a topic with a tag, oldest first, at most `max_messages` per
        broker. Raises TopicNotExist.

        Official brokers have an index of tags from 5.4 on. Messages that an older one stored are
        not found. Reference: RocketMQ's `queryMsgByKey -p T`.
        """
        text("tag", tag)
        whole("max_messages", max_messages, 1, MOST_INT)
        found = await self._query(topic, tag, max_messages, index_type=_BY_TAG)
        # An older broker takes the tag for a key.
        return [message for message in found if message.tags == tag]

    async def messages_by_id(self, topic: str, msg_id: str) -> list[MessageExt]:
        """Return the messages of a topic with an id: `msg_id` of a SendResult, or an offset message
        id.

        This is one message, unless a retry of the producer stored it again. Raises TopicNotExist.
        """
        text("msg_id", msg_id)
        stored = await self._query(topic, msg_id, 64, unique=True)
        found = [message for message in stored if message.msg_id == msg_id]
        if found:
            return found
        message = await self.message_by_offset_id(msg_id)
        return [message] if message is not None and message.topic == topic else []

    async def message_by_offset_id(self, msg_id: str) -> MessageExt | None:
        """Return the message with an offset message id, which contains a broker's address and a
        physical offset.

        None if it is not such an id, the broker is not in this cluster, or no message is there.
        """
        text("msg_id", msg_id, empty=True)
        try:
            place = decode_offset_msg_id(msg_id)
        except InvalidMessageId:
            return None
        host = f"[{place.host}]" if ":" in place.host else place.host
        address = f"{host}:{place.port}"
        brokers = (await self.cluster_info()).broker_addr_table.values()
        names = [broker.broker_name for broker in brokers
                 if broker.broker_addrs.get(MASTER_ID) == address]  # fmt: skip
        if not names:
            return None
        try:
            answer = await self._instance.request(
                address,
                RequestCode.VIEW_MESSAGE_BY_ID,
                ViewMessageRequestHeader(offset=place.physical_offset),
                timeout=self.timeout,
                broker=names[0],
            )
        except RemoteSystemError:
            return None  # the answer of a broker if no record begins there
        messages = self._decoded(names[0], bytes(answer.body))
        return messages[0] if messages else None

    async def message_at(self, queue: MessageQueue, offset: int) -> MessageExt | None:
        """Return the message at a queue offset; None if there is none. Raises TopicNotExist."""
        messages = (await self.read(queue, offset, max_messages=1)).messages
        return next((message for message in messages if message.queue_offset == offset), None)

    async def read(
        self, queue: MessageQueue, offset: int, *, max_messages: int = 32
    ) -> PullResult[MessageExt]:
        """Return the next messages of a queue from an offset on, without a consumer group: nothing
        is committed. The number is limited by `max_messages`, by the broker (official ones: 32),
        and by 64 MiB of memory. Continue at the result's next_begin_offset, as `messages` does.
        Raises TopicNotExist."""
        whole("offset", offset, 0, MOST_OFFSET)
        whole("max_messages", max_messages, 1, MOST_INT)
        wrapped = await self._queue(queue)
        puller = Puller(
            self._instance,
            TOOLS_GROUP,
            self._message_type,
            suspend=0.0,
            share_polls=False,
            hold_slack=Pauses().hold_slack,
        )
        result = await puller.pull(
            wrapped,
            offset,
            EVERYTHING,
            max_messages=max_messages,
            suspend=0.0,
            timeout=self.timeout,
            room=READ_AT_ONCE,
        )
        for message in result.messages:
            message.topic = self._namespace.unwrap(message.topic)
        return result

    def messages(self, queue: MessageQueue, offset: int = 0) -> AsyncIterator[MessageExt]:
        """Yield every message of a queue from an offset up to the current end.

            async for message in admin.messages(queue): ...

        Reads some messages at a time, as `read`. Raises TopicNotExist.
        """
        whole("offset", offset, 0, MOST_OFFSET)
        message_queue("queue", queue)
        self._instance.check_running()
        return self._messages(queue, offset)

    async def _messages(self, queue: MessageQueue, offset: int) -> AsyncIterator[MessageExt]:
        end = await self._offsets.max(await self._queue(queue))
        while offset < end:
            result = await self.read(queue, offset)
            for message in result.messages:
                if message.queue_offset < end:
                    yield message
            if result.next_begin_offset <= offset:
                return  # the broker has fewer messages than it reported
            offset = result.next_begin_offset

    async def deliver_again(self, group: str, message: MessageExt) -> None:
        """Deliver a message to a consumer group again, in about a second; for dead letters.

        Only this group gets it, through its retry topic. If it fails again and has no attempts
        left, it becomes a dead letter again. `message` comes from a method of this class. The dead
        letter itself stays stored, and `pocketmq dlq list` still shows it: brokers only store the
        offset up to which dead letters were resent, which `pocketmq dlq resend` moves.

        Raises SubscriptionGroupNotExist, BrokerNotFound.
        """
        instance("message", message, MessageExt)
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset,
            group=self._namespace.wrap(consumer_group(group)),
            delay_level=1,
            origin_msg_id=message.msg_id,
            origin_topic=self._namespace.wrap(message.topic),
            # The broker compares this with the attempts so far: allow one more.
            max_reconsume_times=message.reconsume_times + 1,
        )
        masters = await self._masters(broker=message.broker_name)
        await self._each(masters, RequestCode.CONSUMER_SEND_MSG_BACK, header)

    async def _query(
        self,
        topic: str,
        key: str,
        max_messages: int,
        *,
        unique: bool = False,
        index_type: str | None = None,
    ) -> list[MessageExt]:
        """Return the messages of a topic whose key, unique id, or tag has the same hash as
        `key`."""
        check_topic_name(topic)
        header = QueryMessageRequestHeader(
            topic=self._namespace.wrap(topic),
            key=key,
            max_num=max_messages,
            begin_timestamp=0,
            end_timestamp=_END_OF_TIME,
            unique_key_query=unique,
            index_type=index_type,
        )
        masters = await self._masters_of(topic)
        try:
            answers = await self._each(
                masters, RequestCode.QUERY_MESSAGE, header, absent=ResponseCode.QUERY_NOT_FOUND
            )
        except QueryNotFound:  # at every broker
            return []
        found = [
            message
            for broker, answer in answers.items()
            for message in self._decoded(broker, bytes(answer.body))
            if message.topic == topic  # the index has only hashes
        ]
        return sorted(found, key=lambda message: message.store_timestamp)

    def _decoded(self, broker: str, body: bytes) -> list[MessageExt]:
        """Decode the messages of an answer, with the application's topic names."""
        messages: list[MessageExt] = []
        # A body that cannot be decompressed is returned as stored.
        self._message_type.read_into(messages, body, broker, lambda message, error: None)
        for message in messages:
            message.topic = self._namespace.unwrap(message.topic)
        return messages
