"""CONSUMER_SEND_MSG_BACK: a consumer could not process a message, and gets it again later.

A copy goes to the group's retry topic, through a delay level that increases with each attempt;
after too many attempts, to the group's dead-letter queue, %DLQ%group, which no consumer reads by
default. Both topics are created when they are first needed. Of a group's settings, retryQueueNums
and retryMaxTimes apply; its groupRetryPolicy is for proxies only. Reference:
AbstractSendMessageProcessor.consumerSendMsgBack.
"""

from __future__ import annotations

import random
from typing import Final

from pocketmq.broker.acknowledge.unwritten_sends import UnwrittenSends
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.inner_message import InnerMessage, PutHooks, inner_message_of
from pocketmq.broker.processors.send.checks import UNIT_SUBSCRIPTION_TOPIC, VERSION_3_4_9
from pocketmq.broker.statistics.statistics import Statistics
from pocketmq.broker.tables.subscription_group import SubscriptionGroups
from pocketmq.broker.tables.topic_config import PERM_WRITE, TopicConfigs
from pocketmq.message import properties as names
from pocketmq.message.identity import encode_offset_msg_id
from pocketmq.message.limits import DLQ_PREFIX, MAX_STORED_TOPIC, RETRY_PREFIX, one_more
from pocketmq.message.record import Record, decode
from pocketmq.message.record_layout import RecordError
from pocketmq.message.reserved import is_sent_back
from pocketmq.message.retry_topic import normal_topic
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import ConsumerSendMsgBackRequestHeader
from pocketmq.remoting.serving.dispatch import Answer, Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.store.errors import RecordNotFound
from pocketmq.store.message_store import MessageStore
from pocketmq.store.results import PutStatus

FIRST_RETRY_LEVEL: Final = 3
DLQ_QUEUES: Final = 1

SendBackRequest = Request[ConsumerSendMsgBackRequestHeader]


class SendBackProcessor:
    """Messages sent back to one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        put_hooks: PutHooks,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        statistics: Statistics,
        unwritten: UnwrittenSends,
    ) -> None:
        self._config = config
        self._store = store
        self._put_hooks = put_hooks
        self._topics = topics
        self._groups = groups
        self._statistics = statistics
        self._unwritten = unwritten

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the code here."""
        dispatcher.register(
            RequestCode.CONSUMER_SEND_MSG_BACK, self.send_back, ConsumerSendMsgBackRequestHeader
        )

    def send_back(self, request: SendBackRequest) -> Answer:
        """Store the copy. The answer waits until its topics are on the disk, but not the copy
        itself."""
        header = request.header
        group = self._group(request)
        if group.retry_queue_nums <= 0:
            return Response()
        retry_topic = self._retry_topic(header, group)
        record = self._original(header.offset)
        if request.caller is not None:
            request.caller.require_topic(record.topic, "Sub")
        if self._is_gone(record):
            # On an error, the client would send the message to the retry topic itself.
            return Response(remark=f"topic {record.topic} was deleted: the message is dropped")
        # A proxy in this process has no caller, and cannot tell whose retry it is.
        foreign = self._groups.is_retry_of_another(record.topic, header.group)
        if foreign or not self._store.is_queued(record):
            raise _not_there(header.offset)
        most = group.retry_max_times
        if request.version >= VERSION_3_4_9 and header.max_reconsume_times is not None:
            most = header.max_reconsume_times

        inner = inner_message_of(record)
        properties = inner.properties
        origin_topic = normal_topic(record.topic, header.group)
        if origin_topic != record.topic or not is_sent_back(record.topic):
            # Messages that a client sent there, or POP put there, do not have these properties.
            for name in (names.RETRY_TOPIC, names.ORIGIN_MESSAGE_ID):
                properties.pop(name, None)
        origin_topic = properties.setdefault(names.RETRY_TOPIC, origin_topic)
        if not properties.get(names.ORIGIN_MESSAGE_ID, "").strip():
            own_id = encode_offset_msg_id(record.store_host, record.physical_offset)
            properties[names.ORIGIN_MESSAGE_ID] = own_id
        properties[names.WAIT] = "false"
        inner.reconsume_times = one_more(record.reconsume_times)
        if record.reconsume_times >= most or header.delay_level < 0:
            target = inner.topic = _storable(DLQ_PREFIX + header.group)
            inner.queue_id = 0
            self._topics.check_new(target)
            self._topics.create_if_absent(target, DLQ_QUEUES)
            properties[names.DELAY] = "0"
        else:
            target = inner.topic = _storable(retry_topic)
            inner.queue_id = random.randrange(group.retry_queue_nums)
            level = header.delay_level or FIRST_RETRY_LEVEL + record.reconsume_times
            properties[names.DELAY] = str(level)
        self._put(inner)
        self._unwritten.add(request)
        self._statistics.send_back_of(origin_topic, header.group).add(1, 1, 0)
        if target.startswith(DLQ_PREFIX):
            self._statistics.count_dead_letter(origin_topic, header.group)
        return Response() if self._topics.is_saved(target) else self._answer_when_known(target)

    async def _answer_when_known(self, topic: str) -> Response:
        await self._topics.saved(topic)
        return Response()

    def _group(self, request: SendBackRequest) -> SubscriptionGroupConfig:
        name = request.header.group
        group = self._groups.find(name, request.connection)
        if group is None:
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}"
            )
        if not self._config.broker_permission & PERM_WRITE:
            raise RemotingError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.advertised_host}] sending message is forbidden",
            )
        return group

    def _retry_topic(
        self, header: ConsumerSendMsgBackRequestHeader, group: SubscriptionGroupConfig
    ) -> str:
        sys_flag = UNIT_SUBSCRIPTION_TOPIC if header.unit_mode else 0
        self._topics.check_new(RETRY_PREFIX + header.group)
        topic = self._topics.create_if_absent(
            RETRY_PREFIX + header.group, group.retry_queue_nums, sys_flag=sys_flag
        )
        if not topic.perm & PERM_WRITE:
            raise RemotingError(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic.topic_name}] sending message is forbidden",
            )
        return topic.topic_name

    def _original(self, offset: int) -> Record:
        try:
            return decode(self._store.record_at(offset))
        except (RecordNotFound, RecordError):
            raise _not_there(offset) from None

    def _is_gone(self, record: Record) -> bool:
        """Tell whether the topic of a message, or of the original of a retry, was deleted. If so,
        count the message as dropped."""
        destinations = self._put_hooks.destinations
        for topic in {record.topic, record.properties.get(names.RETRY_TOPIC, record.topic)}:
            if destinations.is_gone(topic, record.physical_offset):
                destinations.drop(topic, "messages that consumers send back now")
                return True
        return False

    def _put(self, inner: InnerMessage) -> None:
        result = self._put_hooks.put(inner)
        if result.status is not PutStatus.PUT_OK:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, result.status.name)
        size = result.end_offset - result.physical_offset
        self._statistics.count_put(inner.topic, size, inner.properties)


def _not_there(offset: int) -> RemotingError:
    return RemotingError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")


def _storable(topic: str) -> str:
    """Return the topic. Raises RemotingError if its name is too long: the copy would wait in its
    delay level, but could not be delivered."""
    if len(topic) > MAX_STORED_TOPIC:
        raise RemotingError(
            ResponseCode.INVALID_PARAMETER,
            f"the topic {topic} has {len(topic)} characters, {MAX_STORED_TOPIC} are allowed: give "
            "the group a shorter name",
        )
    return topic
