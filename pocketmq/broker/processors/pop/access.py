"""The first checks of all requests of POP consumption, in the order of the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables.attributes import FULL_PRIORITY, MESSAGE_TYPE, priority_factor
from pocketmq.broker.tables.subscription_group import SubscriptionGroups
from pocketmq.broker.tables.topic_config import PERM_READ, TopicConfigs
from pocketmq.message.limits import MAX_STORED_TOPIC
from pocketmq.message.receipt_handle import (
    ReceiptHandle,
    ReceiptHandleError,
    decode_receipt_handle,
)
from pocketmq.message.retry_topic import (
    TopicKind,
    normal_topic,
    pop_retry_topic,
    stored_topic,
)
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.serving.request import RequestConnection

MOST_MESSAGES: Final = 32
OPENED_AT_ONCE: Final = 64
"""Queues that a request opens in one turn of the event loop, if it looks at all those of a topic
after a restart: up to ten milliseconds."""


class QueueHeader(Protocol):
    """The fields that all of these requests share."""

    @property
    def consumer_group(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...


class PopAccess:
    """The checks of one broker, by `clock` (Unix ms); all raise RemotingError."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        clock: Callable[[], int],
    ) -> None:
        self._config = config
        self._clock = clock
        self._topics = topics
        self._groups = groups

    def readable(self, header: QueueHeader, connection: RequestConnection) -> TopicConfig:
        """Check that a request may read its topic, and return the topic; the queue id may be -1."""
        config = self._config
        if not config.broker_permission & PERM_READ:
            raise RemotingError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.advertised_host}] popping message is forbidden",
            )
        topic = self._topic(header.topic)
        if not topic.perm & PERM_READ:
            raise RemotingError(
                ResponseCode.NO_PERMISSION,
                f"the topic[{header.topic}] popping message is forbidden",
            )
        if not -1 <= header.queue_id < topic.read_queue_nums:
            raise RemotingError(ResponseCode.INVALID_PARAMETER, _bad_queue(header, topic))
        group = self._groups.find(header.consumer_group, connection)
        if group is None:
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist",
            )
        if not group.consume_enable or not self._groups.may_read(
            header.consumer_group, header.topic
        ):
            raise RemotingError(
                ResponseCode.NO_PERMISSION,
                f"subscription group no permission, {header.consumer_group}",
            )
        return topic

    def queue(self, header: QueueHeader) -> None:
        """Check that the queue of a popped message exists."""
        topic = self._topic(header.topic)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, _bad_queue(header, topic))

    def group(self, name: str, pop_time: int, connection: RequestConnection) -> None:
        """Check that the group of a popped message exists: a client can make up a handle, and each
        redelivery creates a retry topic. If the broker may create groups, create one that is
        missing, as after a kill. Raises RemotingError (SUBSCRIPTION_GROUP_NOT_EXIST)."""
        if not self._groups.known(name) and (
            self._groups.is_deleted(name, pop_time) or self._groups.find(name, connection) is None
        ):
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{name}] does not exist",
            )

    def knows(self, topic: str) -> bool:
        """Tell whether a topic exists."""
        return self._topics.get(topic) is not None

    def is_deleted(self, topic: str, group: str, pop_time: int) -> bool:
        """Tell whether a message was popped from a deleted topic, not from the current topic of the
        same name."""
        return self._topics.is_popped_before(normal_topic(topic, group), pop_time)

    def delivery(self, header: QueueHeader, pop_time: int) -> None:
        """Check that the topic of a popped message was not deleted."""
        if self.is_deleted(header.topic, header.consumer_group, pop_time):
            raise RemotingError(
                ResponseCode.NO_MESSAGE,
                f"the message was popped from a topic[{header.topic}] that was deleted",
            )

    def invisible_time(self, milliseconds: int) -> None:
        """Check an invisible time: the timer must support a delay of this length."""
        most = self._config.timer_max_delay_sec * 1000
        if not 0 <= milliseconds <= most:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER,
                f"invisibleTime is {milliseconds} ms, it must be from 0 to {most}",
            )

    def end_of_delivery(self, handle: ReceiptHandle) -> None:
        """Check the end of a delivery, which a client can make up: the timer must support it, and
        its record should be short."""
        length = len(handle.broker_name)
        if length > MAX_STORED_TOPIC:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER,
                f"the broker name in the receipt handle has {length} characters, "
                f"{MAX_STORED_TOPIC} are allowed",
            )
        latest = self._clock() + self._config.timer_max_delay_sec * 1000
        if min(handle.pop_time, handle.invisible_time) < 0 or handle.next_visible_time > latest:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER,
                f"popTime {handle.pop_time} and invisibleTime {handle.invisible_time} of the "
                "receipt handle are not those of a pop",
            )

    def retry_topic(self, topic: str, group: str) -> None:
        """Check that the name of a group's retry topic is short enough to be stored."""
        name = pop_retry_topic(topic, group, v2=False)
        if len(name) > MAX_STORED_TOPIC:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER,
                f"the retry topic {name} would have {len(name)} characters, {MAX_STORED_TOPIC} are "
                "allowed: give the group or the topic a shorter name",
            )

    def retry_topics(self, topic: str, group: str) -> list[tuple[TopicKind, TopicConfig]]:
        """Return the retry topics that pops of a topic also read. The v2 topic is always one of
        them: it also has messages if the v1 name belongs, or belonged, to another group."""
        config = self._config
        kinds = [TopicKind.RETRY_V2]
        if not config.enable_retry_topic_v2 or config.retrieve_message_from_pop_retry_topic_v1:
            kinds.insert(0, TopicKind.RETRY_V1)
        found = ((kind, self._topics.get(stored_topic(topic, group, kind))) for kind in kinds)
        return [
            (kind, retries)
            for kind, retries in found
            if retries is not None
            and not self._groups.is_retry_of_another(retries.topic_name, group)
        ]

    def priority_factor(self, topic: TopicConfig, group: str) -> int:
        """Return the share (%) of a group's pops that read a topic by priority."""
        if topic.attributes.get(MESSAGE_TYPE) != "PRIORITY":
            return 0
        settings = self._groups.table.get(group)
        return FULL_PRIORITY if settings is None else priority_factor(settings.attributes)

    def own_message(self, header: QueueHeader) -> None:
        """Check that a message to be redelivered to a group is not a retry of another group."""
        if self._groups.is_retry_of_another(header.topic, header.consumer_group):
            raise RemotingError(
                ResponseCode.NO_PERMISSION,
                f"the topic[{header.topic}] has the retries of another group",
            )

    def _topic(self, name: str) -> TopicConfig:
        topic = self._topics.check_ordinary(name)
        if topic is None:
            raise RemotingError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!"
            )
        return topic


def handle_of(text: str) -> ReceiptHandle:
    """Return the receipt handle of a request. Raises RemotingError (INVALID_PARAMETER)."""
    try:
        return decode_receipt_handle(text)
    except ReceiptHandleError as error:
        raise RemotingError(ResponseCode.INVALID_PARAMETER, str(error)) from None


def _bad_queue(header: QueueHeader, topic: TopicConfig) -> str:
    return (
        f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
        f"topicConfig.readQueueNums:[{topic.read_queue_nums}]"
    )
