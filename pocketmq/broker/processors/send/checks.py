"""The checks of a send before it is stored, and the topics that it may create.

These checks run for the first message to a topic and for unusual messages; `processors.send`
remembers which topics have passed. A failed check raises the RemotingError for the answer.
Reference: broker AbstractSendMessageProcessor.msgCheck, SendMessageProcessor.handleRetryAndDLQ.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delayed.put_hooks import delay_level
from pocketmq.broker.inner_message import refuse_inner
from pocketmq.broker.statistics.message_types import NORMAL, message_type
from pocketmq.broker.tables.queue_locks import QueueLocks
from pocketmq.broker.tables.subscription_group import SubscriptionGroups
from pocketmq.broker.tables.topic_config import PERM_WRITE, TopicConfigs
from pocketmq.message import properties as names
from pocketmq.message.batch_body import encode_batch, iter_batch
from pocketmq.message.buffers import ReadableBuffer
from pocketmq.message.limits import (
    DLQ_PREFIX,
    MOST_IN_UNUSUAL_BATCH,
    RETRY_PREFIX,
    IllegalName,
    check_topic,
    takes_sends,
)
from pocketmq.message.multi_dispatch import MOST_LIGHT_QUEUES, dispatched_to, is_light_queue
from pocketmq.message.priority import priority_of
from pocketmq.message.reserved import TOO_MANY_UNUSUAL, drop_brokers_own
from pocketmq.message.retry_topic import normal_topic
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import SendMessageRequestHeader, SendMessageRequestHeaderV2
from pocketmq.remoting.serving.request import Request

SendHeader = SendMessageRequestHeader | SendMessageRequestHeaderV2

UNIT_TOPIC: Final = 1  # topicSysFlag bits
UNIT_SUBSCRIPTION_TOPIC: Final = 2
VERSION_3_4_9: Final = 121  # from this version on, the request's maxReconsumeTimes applies

TIMES: Final = (names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)


class LastingRefusal(RemotingError):
    """A send is refused because of its topic or its queue id: all sends with the same topic and
    queue id are refused, until the topic changes."""


class Destination(NamedTuple):
    """Where a message goes: the named topic, or the dead-letter queue of a group."""

    topic: TopicConfig
    dead_letter: bool = False


class SendChecks:
    """The checks of one broker; `clock` gives milliseconds."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        locks: QueueLocks,
        clock: Callable[[], int],
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._locks = locks
        self._clock = clock

    def is_saved(self, topic: str) -> bool:
        """Tell whether the topic is on the disk, so that it survives a restart."""
        return self._topics.is_saved(topic)

    async def saved(self, topic: str) -> None:
        """Wait until the topic is on the disk. Raises RemotingError if it cannot be written."""
        await self._topics.saved(topic)

    def topic(self, request: Request[Any]) -> TopicConfig:
        """Return the topic of a send or reply; create it if allowed.

        Refuse a message without a body. Raises RemotingError.
        """
        if not request.body:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, "the message has no body")
        self.accepting()
        header: SendHeader = request.header
        name = header.topic
        known = self._topics.get(name)
        if known is not None and known.order and not self._config.broker_permission & PERM_WRITE:
            raise RemotingError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.advertised_host}] sending message is forbidden",
            )
        try:
            check_topic(name)
        except IllegalName as error:
            raise LastingRefusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
        if not takes_sends(name):
            raise RemotingError(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden."
            )
        self._topics.check_new(name)
        self._topics.check_ordinary(name)
        return self._create(request) if known is None else known

    def known(self, name: str) -> TopicConfig:
        """Return a topic that existed before an await. Raises RemotingError (TOPIC_NOT_EXIST)."""
        topic = self._topics.get(name)
        if topic is None:
            raise RemotingError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] was deleted")
        return topic

    def accepting(self) -> None:
        """Raise RemotingError before the configured time from which the broker accepts messages."""
        start = self._config.start_accept_send_request_time_stamp
        if self._clock() < start:
            until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(start / 1000))
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {until}"
            )

    def _create(self, request: Request[Any]) -> TopicConfig:
        header: SendHeader = request.header
        name = header.topic
        retry = name.startswith(RETRY_PREFIX)
        sys_flag = 0
        if header.unit_mode:
            sys_flag = UNIT_SUBSCRIPTION_TOPIC if retry else UNIT_TOPIC
        queues = header.default_topic_queue_nums
        if queues is None and not retry:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR,
                f"topic[{name}] not exist, and is not created: the field defaultTopicQueueNums is "
                "missing",
            )
        if retry:
            self._group_of(name, request)  # otherwise the number of topics would not be limited
        topic = None
        if queues is not None:
            topic = self._topics.create_for_send(
                name, header.default_topic, queues, sys_flag, request.connection
            )
        if topic is None and retry:
            topic = self._topics.create_if_absent(
                name, 1, sys_flag=sys_flag, connection=request.connection
            )
        if topic is None:
            raise RemotingError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{name}] not exist, apply first please! It is not created because the "
                f"default topic {header.default_topic} is not here or not inheritable",
            )
        return topic

    def retry_destination(self, request: Request[Any], topic: TopicConfig) -> Destination:
        """Return where a message for %RETRY%group goes: there, or to the dead-letter queue.

        A message consumed too often goes to the dead-letter queue. So do all messages of a group
        that consumes in order (it holds queue locks): it sends a message back only to give it up.
        """
        header: SendHeader = request.header
        name = header.topic[len(RETRY_PREFIX) :]
        group = self._group_of(header.topic, request)
        most = group.retry_max_times
        if request.version >= VERSION_3_4_9 and header.max_reconsume_times is not None:
            most = header.max_reconsume_times
        if header.reconsume_times <= most and not self._locks.has_live_locks(name):
            return Destination(topic)
        self._topics.check_new(DLQ_PREFIX + name)
        return Destination(self._topics.create_if_absent(DLQ_PREFIX + name, 1), dead_letter=True)

    @staticmethod
    def check_origin(request: Request[Any], properties: dict[str, str]) -> None:
        """Check the topic that a message which a client sends to a retry topic claims to be from.

        Consumers show the message as one of this topic, and `pocketmq dlq resend --as-new` sends it
        there, with the rights of an administrator. Clients for Java leave out the namespace; their
        group has it. Raises RemotingError if the user may not receive from the topic.
        """
        caller = request.caller
        if caller is None:
            return
        group = request.header.topic[len(RETRY_PREFIX) :]
        for name in (names.RETRY_TOPIC, names.DLQ_ORIGIN_TOPIC):
            if name not in properties:
                continue
            topic = normal_topic(properties[name], group)
            namespace, found, _ = group.partition("%")
            try:
                caller.require_topics((topic,), "Sub")
            except RemotingError:
                if not found or topic.startswith(f"{namespace}%"):
                    raise
                topic = f"{namespace}%{topic}"
                caller.require_topics((topic,), "Sub")
            properties[name] = topic

    def _group_of(self, retry_topic: str, request: Request[Any]) -> SubscriptionGroupConfig:
        name = retry_topic[len(RETRY_PREFIX) :]
        group = self._groups.find(name, request.connection)
        if group is None:
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}"
            )
        return group


def leaves_the_line(properties: str) -> bool:
    """Tell whether a message may need more than the fast path of `processors.send`.

    Each search takes a few dozen nanoseconds. A match may be part of a value or of a longer name;
    the slow path finds out.
    """
    return (
        "DELAY" in properties
        or "TIMER_DEL" in properties
        or "TRAN_MSG" in properties
        or "POP_CK" in properties
        or "INNER_" in properties
        or "_SYS_MSG_" in properties
    )


def queue_by_priority(properties: dict[str, str], queue_id: int, write_queues: int) -> int:
    """Return the queue of a single message for which its producer chose `queue_id`.

    In a topic of any type, the priority is the queue id, up to the last queue that may be written.
    A transactional, delayed or ordered message loses its priority. What is no priority stays.
    Reference: SendMessageProcessor.sendMessage (RIP-80).
    """
    priority = priority_of(properties)
    if priority is None:
        return queue_id
    if message_type(properties) != NORMAL:
        del properties[names.PRIORITY]
        return queue_id
    return min(priority, write_queues - 1) if write_queues > 0 else queue_id


def of_client(properties: dict[str, str], topic: str) -> None:
    """Remove properties that only the broker may set from a client's message to a topic.

    Raises RemotingError (MESSAGE_ILLEGAL) for a message that recalls one of another topic.
    """
    drop_brokers_own(properties)
    recalled = properties.get(names.TIMER_DEL_UNIQKEY)
    if recalled is not None and not recalled.startswith(f"{topic}+"):
        raise RemotingError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"property {names.TIMER_DEL_UNIQKEY} is {recalled!r:.200}: a message to topic {topic} "
            f"recalls only messages of this topic, as {topic}+UNIQ_KEY",
        )


def check_dispatch(request: Request[Any], properties: dict[str, str]) -> None:
    """Check the light queues of a client's message. Who writes into one needs the permission to
    send to a topic of its name, unlike with the official broker.

    Raises RemotingError: MESSAGE_ILLEGAL for a name that no light queue can have, for one that
    occurs twice, and for too many of them; NO_PERMISSION.
    """
    text = properties.get(names.INNER_MULTI_DISPATCH)
    if text is None:
        return
    queues = dispatched_to(text)
    if len(queues) > MOST_LIGHT_QUEUES or len(queues) > len(set(queues)):
        raise RemotingError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"property {names.INNER_MULTI_DISPATCH} names {len(queues)} light queues: "
            f"{MOST_LIGHT_QUEUES} are allowed, each of them once",
        )
    for queue in queues:
        if not is_light_queue(queue):
            raise RemotingError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"property {names.INNER_MULTI_DISPATCH} names {queue[:80]!r}: a light queue is "
                "named %LMQ% and printable characters without a comma or slash, 255 bytes in all",
            )
    if request.caller is not None:
        request.caller.require_topics(queues, "Pub")


def of_batch(properties: dict[str, str]) -> None:
    """Remove properties that only the broker may set, and those without effect, from a batch or a
    message in it.

    Raises RemotingError (MESSAGE_ILLEGAL) for delayed and timed messages, since a batch is readable
    at once, for recalls, and for inner batches.
    """
    drop_brokers_own(properties)
    refuse_inner(properties)
    if delay_level(properties) > 0:
        raise RemotingError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"a batch cannot be delayed: {names.DELAY}={properties[names.DELAY]}",
        )
    properties.pop(names.DELAY, None)
    if names.TIMER_OUT_MS in properties:
        # A delivered timed message that its consumer forwards.
        for name in TIMES:
            properties.pop(name, None)
    for name in (*TIMES, names.TIMER_DEL_UNIQKEY):
        if name in properties:
            raise RemotingError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a batch cannot be timed: property {name}={properties[name]}",
            )


def batch_of_client(body: ReadableBuffer) -> bytes:
    """Apply `of_batch` to each message of a batch body; return the new body. Raises RemotingError,
    BatchBodyError."""
    items: list[tuple[int, bytes, bytes]] = []
    for item in iter_batch(body):
        if len(items) == MOST_IN_UNUSUAL_BATCH:
            raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, TOO_MANY_UNUSUAL)
        properties = names.decode(item.properties)
        of_batch(properties)
        items.append((item.flag, bytes(item.body), names.encode(properties).encode()))
    return encode_batch(items)
