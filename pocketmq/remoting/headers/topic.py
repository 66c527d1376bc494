"""Headers of topic administration at a broker."""

from __future__ import annotations

from pocketmq.remoting.headers.base import I32, Header


class CreateTopicRequestHeader(Header, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC (17). attributes is `+key=value,-key`."""

    topic: str
    default_topic: str = ""
    read_queue_nums: I32
    write_queue_nums: I32
    perm: I32
    topic_filter_type: str
    topic_sys_flag: I32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = False


class DeleteTopicRequestHeader(Header):
    """DELETE_TOPIC_IN_BROKER (215)."""

    topic: str = ""


class GetTopicConfigRequestHeader(Header):
    """GET_TOPIC_CONFIG (351)."""

    topic: str
    lo: bool | None = None


class GetTopicStatsInfoRequestHeader(Header):
    """GET_TOPIC_STATS_INFO (202)."""

    topic: str


class QueryTopicConsumeByWhoRequestHeader(Header):
    """QUERY_TOPIC_CONSUME_BY_WHO (300)."""

    topic: str


class QueryConsumeTimeSpanRequestHeader(Header):
    """QUERY_CONSUME_TIME_SPAN (303)."""

    topic: str
    group: str = ""


class QueryConsumeQueueRequestHeader(Header):
    """QUERY_CONSUME_QUEUE (321): `count` entries from queue offset `index`."""

    topic: str
    queue_id: I32 = 0
    index: int = 0
    count: I32 = 0
    consumer_group: str | None = None
