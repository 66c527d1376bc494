"""Admin requests about topics (17, 18, 21, 202, 215, 305, 351, 5002).

Reference: broker AdminBrokerProcessor.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.processors.admin.list_deletion import ListDeletion
from pocketmq.broker.statistics.statistics import MINUTE, Statistics
from pocketmq.broker.tables import pages
from pocketmq.broker.tables.attributes import AttributeChangeError, parse_changes
from pocketmq.broker.tables.consumer_offset import ConsumerOffsets
from pocketmq.broker.tables.subscription_group import SubscriptionGroups
from pocketmq.broker.tables.topic_config import TopicConfigs
from pocketmq.message import fastjson
from pocketmq.message.incarnation import OWN_ATTRIBUTES
from pocketmq.message.limits import RETRY_PREFIX, IllegalName, check_topic
from pocketmq.message.message import MessageQueue
from pocketmq.message.retry_topic import pop_retry_topic
from pocketmq.remoting.bodies.base import Body
from pocketmq.remoting.bodies.registration import TopicConfig, TopicConfigSerializeWrapper
from pocketmq.remoting.bodies.topic import (
    UNREADABLE_QUEUES,
    CreateTopicListRequestBody,
    DeleteTopicListRequestBody,
    TopicList,
    TopicOffset,
)
from pocketmq.remoting.codes import LanguageCode, RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    Header,
)
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.long_requests import LongRequests, Steps
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

#: The official broker's remark when a topic was created; tools print it.
CREATED_REMARK = "not set any response code"
ADD_MESSAGE_TYPE = "+message.type"
MIXED = "MIXED"
MOST_QUEUES = 16_384
"""Queues of a topic: requests such as a pop of all queues look at each."""
FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
QUEUES_OF_STEP: Final = 16  # half a millisecond, if their files are not mapped


def ends_step(queue_id: int) -> bool:
    """Tell whether a step that looks at a topic's queues in order ends after this one."""
    return queue_id % QUEUES_OF_STEP == QUEUES_OF_STEP - 1


class TopicProcessor:
    """Topic requests of one broker.

    `announced()` waits, for a bounded time, until the name servers have the latest changes;
    `on_delete(name)` is called for a deleted topic.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        statistics: Statistics,
        announced: Callable[[], Awaitable[None]],
        on_delete: Callable[[str], None],
        long: LongRequests,
    ) -> None:
        self._config = config
        self._long = long
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._statistics = statistics
        self._announced = announced
        self._on_delete = on_delete
        self._lists = ListDeletion("topics")

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the topic codes here."""
        dispatcher.register(
            RequestCode.UPDATE_AND_CREATE_TOPIC, self.update, CreateTopicRequestHeader
        )
        dispatcher.register(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, self.update_list)
        dispatcher.register(
            RequestCode.GET_ALL_TOPIC_CONFIG, self.all_configs, GetAllTopicConfigRequestHeader
        )
        dispatcher.register(RequestCode.GET_TOPIC_CONFIG, self.config, GetTopicConfigRequestHeader)
        dispatcher.register(
            RequestCode.GET_TOPIC_STATS_INFO, self.stats, GetTopicStatsInfoRequestHeader
        )
        dispatcher.register(
            RequestCode.DELETE_TOPIC_IN_BROKER, self.delete, DeleteTopicRequestHeader
        )
        dispatcher.register(RequestCode.DELETE_TOPIC_IN_BROKER_LIST, self.delete_list)
        dispatcher.register(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, self.system_topics)

    async def update(self, request: Request[CreateTopicRequestHeader]) -> Response:
        """Create or change a topic; answer when the name servers have it."""
        header = request.header
        try:
            changes = parse_changes(header.attributes or "")
        except AttributeChangeError as error:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        topic = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
            attributes=changes,
        )
        await self._update([topic])
        return Response(remark=CREATED_REMARK)

    async def update_list(self, request: Request[Header]) -> Response:
        """Create or change several topics: all or none."""
        body = CreateTopicListRequestBody.of(request)
        await self._update(body.need("topicConfigList", body.topic_config_list))
        return Response()

    async def _update(self, topics: Iterable[TopicConfig]) -> None:
        # Every light queue exists already.
        topics = [topic for topic in topics if not self._topics.is_light(topic.topic_name)]
        for topic in topics:
            self._check_changeable(topic.topic_name)
            if (topic.attributes or {}).get(ADD_MESSAGE_TYPE) == MIXED and not (
                self._config.enable_mixed_message_type
            ):
                raise RemotingError(
                    ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported."
                )
            if topic.topic_filter_type not in FILTER_TYPES:
                raise RemotingError(
                    ResponseCode.SYSTEM_ERROR,
                    f"topicFilterType = [{topic.topic_filter_type}] value invalid, it is one of "
                    f"{', '.join(FILTER_TYPES)}",
                )
            if topic.read_queue_nums < 0 or topic.write_queue_nums < 0:
                raise RemotingError(
                    ResponseCode.INVALID_PARAMETER,
                    f"topic {topic.topic_name} cannot have {topic.read_queue_nums} read and "
                    f"{topic.write_queue_nums} write queues",
                )
            if max(topic.read_queue_nums, topic.write_queue_nums) > MOST_QUEUES:
                raise RemotingError(
                    ResponseCode.INVALID_PARAMETER,
                    f"topic {topic.topic_name} cannot have more than {MOST_QUEUES} queues",
                )
        try:
            changed = self._topics.update(topics)
        except AttributeChangeError as error:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        # Even without a change: this may be the retry of a request that could not be saved.
        await self._topics.saved()
        if changed:
            for topic in topics:
                self._warn_of_unreadable(topic.topic_name)
            await self._announced()

    def _unreadable(self, name: str) -> dict[int, int]:
        """Return the number of messages in queues that are no longer readable, by queue id."""
        topic = self._topics.get(name)
        queues = self._store.queues.get(name, {})
        readable = 0 if topic is None else topic.read_queue_nums
        left = {
            queue_id: self._store.max_offset(name, queue_id)
            - self._store.min_offset(name, queue_id)
            for queue_id in sorted(queues)
            if queue_id >= readable
        }
        return {queue_id: messages for queue_id, messages in left.items() if messages > 0}

    def _warn_of_unreadable(self, name: str) -> None:
        left = self._unreadable(name)
        if left:
            log.warning(
                "topic %s has fewer queues now: the %d messages in queues %s cannot be read until "
                "it has more queues to read again",
                name,
                sum(left.values()),
                ", ".join(map(str, left)),
            )

    def _check_changeable(self, name: str) -> None:
        try:
            check_topic(name)
        except IllegalName as error:
            raise RemotingError(ResponseCode.INVALID_PARAMETER, str(error)) from None
        if self._config.validate_system_topic_when_update_topic and self._topics.is_system(name):
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER,
                f"The topic[{name}] is conflict with system topic.",
            )

    async def delete(self, request: Request[DeleteTopicRequestHeader]) -> Response:
        """Delete a topic, its queues, its offsets, and the retry topics of its popped messages;
        deleting an unknown topic succeeds."""
        name = request.header.topic
        self._check_deletable(name)
        self._delete(name)
        await self._deleted()
        return Response()

    async def delete_list(self, request: Request[Header]) -> Response:
        """Delete several topics, or none if one of them cannot be deleted."""
        names = DeleteTopicListRequestBody.of(request).topic_list
        if not names:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER, "The specified topic list is blank."
            )
        for name in names:
            self._check_deletable(name)
        rate = self._config.batch_delete_topic_max_rate
        await self._lists.run(request, names, rate, self._delete)
        await self._deleted()
        return Response()

    def _check_deletable(self, name: str) -> None:
        if not self._topics.is_light(name):
            self._check_changeable(name)
        self._topics.check_served(name)

    def _delete(self, name: str) -> None:
        for topic in (*self._retry_topics(name), name):
            self._topics.delete(topic, self._store.commit_log.end)
            self._offsets.forget_topic(topic)
            self._statistics.forget_topic(topic)
            self._store.delete_topic(topic)
            self._on_delete(topic)

    async def _deleted(self) -> None:
        # A new topic of the same name must not start with the offsets of this one.
        await self._offsets.saved()
        await self._topics.saved()
        self._store.cleanup.wake()

    def _retry_topics(self, topic: str) -> list[str]:
        """Return the retry topics of the groups that pop a topic."""
        found: list[str] = []
        groups = self._offsets.groups_of(topic)
        for name in self._topics.table if groups else ():
            if not (name.startswith(RETRY_PREFIX) and name.endswith(topic)):
                continue
            # It may be the retry topic of a pulling group whose name looks like this.
            other = name.removeprefix(RETRY_PREFIX)
            group = other[: -len(topic) - 1]
            if (
                name in (pop_retry_topic(topic, group, v2=v2) for v2 in (True, False))
                and group in groups
                and not self._groups.is_retry_of_another(name, group)
                and other not in self._offsets.groups_of(name)
            ):
                found.append(name)
        return found

    def all_configs(self, request: Request[GetAllTopicConfigRequestHeader]) -> Response:
        """Return the topic table, or a page of it.

        Only pocketmq gets the attributes that are not RocketMQ's: an official slave of 5.3.2 or
        5.3.3 loses topics that have attributes (issue 9403 of apache/rocketmq), and every topic
        that was created here has these.
        """
        header, config = request.header, self._config
        version, table = self._topics.data_version, self._topics.table
        total = GetAllTopicConfigResponseHeader(len(table))
        if config.enable_split_metadata and header != GetAllTopicConfigRequestHeader():
            most = min(config.split_metadata_size, header.max_topic_num or pages.MOST)
            table = pages.page(table, header.topic_seq or 0, most, version, header.data_version)
        if request.language != LanguageCode.PYTHON.name:
            table = {name: _without_own(topic) for name, topic in table.items()}
        body = TopicConfigSerializeWrapper(
            data_version=version,
            pocketmq_deleted_topics=self._topics.deleted,
            topic_config_table=table,
        )
        # Standard JSON, encoded in C: the keys are not integers, and there may be thousands of
        # topics.
        fields = {name: value for name, value in _fields_of(body) if value is not None}
        return Response(header=total, body=msgspec.json.encode(fields))

    def config(self, request: Request[GetTopicConfigRequestHeader]) -> Response:
        """Return one topic's settings."""
        return Response(body=self._known(request.header.topic).encode())

    async def stats(self, request: Request[GetTopicStatsInfoRequestHeader]) -> Response:
        """Return the bounds and the last store time of every queue of a topic."""
        return await self._long.run(request, self._stats(request.header.topic))

    def _stats(self, name: str) -> Steps[Response]:
        self._topics.check_served(name)
        topic = self._known(name)
        table = {}
        for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
            end = self._store.max_offset(name, queue_id)
            last = self._store.store_time_at(name, queue_id, end - 1) if end > 0 else 0
            queue = MessageQueue(name, self._config.broker_name, queue_id)
            table[queue] = TopicOffset(
                last_update_timestamp=max(last, 0),
                max_offset=end,
                min_offset=self._store.min_offset(name, queue_id),
            )
            if ends_step(queue_id):
                yield
        encoded = yield from fastjson.encode_steps(table)
        rates = self._statistics.item("TOPIC_PUT_NUMS", name, MINUTE)
        body = {"offsetTable": encoded, "topicPutTps": rates.tps if rates else 0.0}
        left = self._unreadable(name)
        told = ",".join(f"{queue_id}:{messages}" for queue_id, messages in left.items())
        fields = {UNREADABLE_QUEUES: told} if told else None
        return Response(body=fastjson.encode(body), ext_fields=fields)

    def system_topics(self, request: Request[Header]) -> Response:
        """Return the names of RocketMQ's system topics and this broker's, existing or not."""
        return Response(body=TopicList(topic_list=self._topics.system_topics()).encode())

    def _known(self, name: str) -> TopicConfig:
        topic = self._topics.get(name)
        if topic is None:
            raise RemotingError(
                ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}"
            )
        return topic


def _without_own(topic: TopicConfig) -> TopicConfig:
    """Return a topic without the attributes that only pocketmq has."""
    if not any(name.startswith(OWN_ATTRIBUTES) for name in topic.attributes):
        return topic
    others = {
        name: value
        for name, value in topic.attributes.items()
        if not name.startswith(OWN_ATTRIBUTES)
    }
    return msgspec.structs.replace(topic, attributes=others)


def _fields_of(body: Body) -> Iterable[tuple[str, object]]:
    return zip(
        body.__struct_encode_fields__,
        (getattr(body, name) for name in body.__struct_fields__),
        strict=True,
    )
