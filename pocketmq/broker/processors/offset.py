"""Offsets: consumer offsets (14, 15) and offsets of the store (29–32).

Reference: broker ConsumerManageProcessor, AdminBrokerProcessor.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delayed.delay_offset import DelayOffsets
from pocketmq.broker.tables.consumer_offset import LOG_END, ConsumerOffsets
from pocketmq.broker.tables.subscription_group import SubscriptionGroups
from pocketmq.broker.tables.topic_config import TopicConfigs
from pocketmq.message import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    Header,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.long_requests import LongRequests
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.store.message_store import MessageStore

FIRST_GROUP_START: Final = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


class OffsetProcessor:
    """Offset requests of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        delay_offsets: DelayOffsets,
        long: LongRequests,
    ) -> None:
        self._long = long
        self._config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._delay_offsets = delay_offsets

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the offset codes here."""
        dispatcher.register(
            RequestCode.QUERY_CONSUMER_OFFSET, self.query, QueryConsumerOffsetRequestHeader
        )
        dispatcher.register(
            RequestCode.UPDATE_CONSUMER_OFFSET, self.update, UpdateConsumerOffsetRequestHeader
        )
        dispatcher.register(RequestCode.GET_ALL_CONSUMER_OFFSET, self.all_offsets)
        dispatcher.register(RequestCode.GET_ALL_DELAY_OFFSET, self.all_delay_offsets)
        dispatcher.register(RequestCode.GET_MAX_OFFSET, self.max_offset, GetMaxOffsetRequestHeader)
        dispatcher.register(RequestCode.GET_MIN_OFFSET, self.min_offset, GetMinOffsetRequestHeader)
        dispatcher.register(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, self.search, SearchOffsetRequestHeader
        )
        dispatcher.register(
            RequestCode.GET_EARLIEST_MSG_STORETIME,
            self.earliest,
            GetEarliestMsgStoretimeRequestHeader,
        )

    def query(self, request: Request[QueryConsumerOffsetRequestHeader]) -> Response:
        """Return the group's committed offset.

        A new group has none. It starts at 0 if no message of the queue was deleted and the first
        one is still in memory, regardless of consumeFromWhere. Otherwise the answer is
        QUERY_NOT_FOUND, and the client uses its consumeFromWhere.

        For an empty queue the answer is 0, too. The official broker answers QUERY_NOT_FOUND: a
        client that starts at the end then queries the maximum offset, and skips every message sent
        in between.
        """
        header = request.header
        self._topics.check_served(header.topic)
        offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset >= 0:
            return Response(header=QueryConsumerOffsetResponseHeader(offset=offset))
        if header.set_zero_if_not_found is False:
            return Response(
                ResponseCode.QUERY_NOT_FOUND,
                "Not found, do not set to zero, maybe this group boot first",
            )
        if self._starts_at_zero(header.topic, header.queue_id):
            return Response(header=QueryConsumerOffsetResponseHeader(offset=0))
        return Response(ResponseCode.QUERY_NOT_FOUND, FIRST_GROUP_START)

    def _starts_at_zero(self, topic: str, queue_id: int) -> bool:
        if self._store.max_offset(topic, queue_id) == 0:
            known = self._topics.get(topic)
            return known is not None and 0 <= queue_id < max(
                known.read_queue_nums, known.write_queue_nums
            )
        if self._store.min_offset(topic, queue_id) > 0:
            return False
        first = self._store.get(topic, queue_id, 0, 1)
        # The reference's estimate: a message is in memory if it is within a share of the RAM before
        # the end of the log.
        return first.message_count > 0 and first.behind <= self._config.message_memory

    def update(self, request: Request[UpdateConsumerOffsetRequestHeader]) -> Response:
        """Commit a group's offset in a queue; it may be lower than before."""
        header = request.header
        group, topic = header.consumer_group, header.topic
        if not self._groups.exists(group):
            return Response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        config = self._topics.get(topic)
        if config is None:
            return Response(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        self._topics.check_served(topic)
        if header.queue_id is None:
            return Response(ResponseCode.INVALID_PARAMETER, f"QueueId is null, topic is {topic}")
        if header.commit_offset is None:
            return Response(ResponseCode.INVALID_PARAMETER, f"Offset is null, topic is {topic}")
        # The reference does not check this, so one client can fill the memory and
        # consumerOffset.json with new queues.
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if not 0 <= header.queue_id < queues and (
            # The topic had more queues before, and their remaining messages are still consumed.
            self._offsets.query(group, topic, header.queue_id) < 0
        ):
            return Response(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{topic}] has {queues} queues",
            )
        if header.commit_offset < 0:
            return Response(
                ResponseCode.INVALID_PARAMETER,
                f"offset[{header.commit_offset}] is illegal, topic:[{topic}] "
                f"queueId:[{header.queue_id}]",
            )
        if not self._offsets.has_room(group, topic):
            return Response(
                ResponseCode.LMQ_QUOTA_EXCEEDED,
                f"too many offsets of light queues: that of group {group} in topic {topic} is not "
                "kept (maxLmqConsumeQueueNum)",
            )
        if self._offsets.has_reset(group, topic, header.queue_id):
            # The consumer does not know of the reset yet; its next pull is answered with it.
            return Response(remark="Offset has been previously reset")
        end = self._store.max_offset(topic, header.queue_id)
        if header.commit_offset > end and self._topics.is_recreated(topic):
            # The offset is of deleted messages. The consumer's next pull corrects it.
            return Response(
                ResponseCode.INVALID_PARAMETER,
                f"offset[{header.commit_offset}] is illegal, topic:[{topic}] was created again: "
                f"queueId:[{header.queue_id}] ends at {end}",
            )
        self._offsets.commit(group, topic, header.queue_id, header.commit_offset)
        return Response()

    async def all_offsets(self, request: Request[Header]) -> Response:
        """Return the whole table as in consumerOffset.json, for slaves and exports, and the end of
        the log at that time: the offsets refer only to messages before it."""
        return self._progress(await self._long.run(request, self._offsets.document_steps()))

    def all_delay_offsets(self, request: Request[Header]) -> Response:
        """Return the table of the delay levels as in delayOffset.json, and the end of the log."""
        return self._progress(self._delay_offsets.document())

    def _progress(self, document: dict[str, Any]) -> Response:
        return Response(
            body=fastjson.encode(document), ext_fields={LOG_END: str(self._store.commit_log.end)}
        )

    def max_offset(self, request: Request[GetMaxOffsetRequestHeader]) -> Response:
        """Return the next queue offset to be written; 0 for an unknown queue."""
        header = request.header
        self._topics.check_served(header.topic)
        offset = self._store.max_offset(header.topic, header.queue_id)
        return Response(header=GetMaxOffsetResponseHeader(offset=offset))

    def min_offset(self, request: Request[GetMinOffsetRequestHeader]) -> Response:
        """Return the first queue offset still stored; 0 for an unknown queue."""
        header = request.header
        self._topics.check_served(header.topic)
        offset = self._store.min_offset(header.topic, header.queue_id)
        return Response(header=GetMinOffsetResponseHeader(offset=offset))

    def search(self, request: Request[SearchOffsetRequestHeader]) -> Response:
        """Return the queue offset at a store time (ms)."""
        header = request.header
        self._topics.check_served(header.topic)
        upper = (header.boundary_type or "").lower() == "upper"
        boundary: Literal["lower", "upper"] = "upper" if upper else "lower"
        offset = self._store.offset_by_time(
            header.topic, header.queue_id, header.timestamp, boundary
        )
        return Response(header=SearchOffsetResponseHeader(offset=offset))

    def earliest(self, request: Request[GetEarliestMsgStoretimeRequestHeader]) -> Response:
        """Return the store time (ms) of a queue's first message; -1 if there is none."""
        header = request.header
        self._topics.check_served(header.topic)
        timestamp = self._store.earliest_store_time(header.topic, header.queue_id)
        return Response(header=GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp))
