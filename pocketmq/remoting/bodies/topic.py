"""Bodies about topics and their queues."""

from __future__ import annotations

from typing import Any, Final

from msgspec import field

from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.base import Body, QueueBody, keyed_by_queue, objects, queue
from pocketmq.remoting.bodies.heartbeat import SubscriptionData
from pocketmq.remoting.bodies.registration import TopicConfig


class TopicList(Body):
    """Names of topics; broker_addr is some broker, in GET_SYSTEM_TOPIC_LIST_FROM_NS only."""

    broker_addr: str | None = None
    topic_list: list[str] = field(default_factory=list)


class CreateTopicListRequestBody(Body):
    """The body of UPDATE_AND_CREATE_TOPIC_LIST."""

    topic_config_list: list[TopicConfig] | None = None


class DeleteTopicListRequestBody(Body):
    """The body of DELETE_TOPIC_IN_BROKER_LIST."""

    topic_list: list[str] | None = None


class TopicOffset(Body):
    """The bounds of a queue; last_update_timestamp in ms, 0 when it is empty."""

    last_update_timestamp: int = 0
    max_offset: int = 0
    min_offset: int = 0


UNREADABLE_QUEUES: Final = "unreadableQueues"
"""A field of the answer to GET_TOPIC_STATS_INFO: `queue id:messages,...` of former queues of the
topic, which nobody can read now. Official brokers do not have it."""


class TopicStatsTable(QueueBody):
    """GET_TOPIC_STATS_INFO."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float = 0.0

    @classmethod
    def _adapt(cls, fields: dict[str, Any]) -> None:
        fields["offsetTable"] = keyed_by_queue(fields.get("offsetTable"))


class ConsumeQueueData(Body):
    """An entry of a consume queue, and the verdict of a filter."""

    bit_map: str | None = None
    eval: bool = False
    extend_data_json: str | None = None
    msg: str | None = None
    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0


class QueryConsumeQueueResponseBody(Body):
    """QUERY_CONSUME_QUEUE."""

    filter_data: str | None = None
    max_queue_index: int = 0
    min_queue_index: int = 0
    queue_data: list[ConsumeQueueData] = field(default_factory=list)
    subscription_data: SubscriptionData | None = None


class QueueTimeSpan(QueueBody):
    """Times (ms) of a queue's first, last and next consumed message; delay_time in ms."""

    consume_time_stamp: int = 0
    delay_time: int = 0
    max_time_stamp: int = 0
    message_queue: MessageQueue | None = None
    min_time_stamp: int = 0

    @classmethod
    def _adapt(cls, fields: dict[str, Any]) -> None:
        if fields.get("messageQueue") is not None:
            fields["messageQueue"] = queue(fields["messageQueue"])


class QueryConsumeTimeSpanBody(QueueBody):
    """QUERY_CONSUME_TIME_SPAN."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)

    @classmethod
    def _adapt(cls, fields: dict[str, Any]) -> None:
        for span in objects(fields.get("consumeTimeSpanSet")):
            QueueTimeSpan._adapt(span)
