"""Headers of offsets: those consumers commit, and those the store knows."""

from __future__ import annotations

from typing import ClassVar

from pocketmq.remoting.headers.base import I32, I64, Header


class QueryConsumerOffsetRequestHeader(Header, kw_only=True):
    """QUERY_CONSUMER_OFFSET (14)."""

    consumer_group: str = ""
    topic: str
    queue_id: I32
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetResponseHeader(Header):
    """The next queue offset that the group is going to consume."""

    strict_numbers: ClassVar[bool] = True

    offset: I64 | None = None


class UpdateConsumerOffsetRequestHeader(Header, kw_only=True):
    """UPDATE_CONSUMER_OFFSET (15), normally oneway.

    queue_id and commit_offset are mandatory, but their absence is answered INVALID_PARAMETER by
    the handler, not with a header error.
    """

    consumer_group: str = ""
    topic: str
    queue_id: I32 | None = None
    commit_offset: I64 | None = None


class GetMaxOffsetRequestHeader(Header):
    """GET_MAX_OFFSET (30): the next queue offset to be written."""

    topic: str
    queue_id: I32
    committed: bool = True


class GetMaxOffsetResponseHeader(Header):
    """0 for an unknown topic or queue."""

    offset: I64


class GetMinOffsetRequestHeader(Header):
    """GET_MIN_OFFSET (31): the oldest queue offset still stored."""

    topic: str
    queue_id: I32


class GetMinOffsetResponseHeader(Header):
    """0 for an unknown topic or queue."""

    offset: I64


class SearchOffsetRequestHeader(Header):
    """SEARCH_OFFSET_BY_TIMESTAMP (29). boundary_type `lower` (also when absent): the first
    message stored at or after timestamp (ms); `upper`: the last one stored at or before it."""

    topic: str
    queue_id: I32
    timestamp: I64
    boundary_type: str | None = None


class SearchOffsetResponseHeader(Header):
    """The queue offset found."""

    offset: I64


class GetEarliestMsgStoretimeRequestHeader(Header):
    """GET_EARLIEST_MSG_STORETIME (32)."""

    topic: str
    queue_id: I32


class GetEarliestMsgStoretimeResponseHeader(Header):
    """Store time of the queue's first message, ms; -1 without a message."""

    timestamp: I64


class ResetOffsetRequestHeader(Header):
    """INVOKE_BROKER_TO_RESET_OFFSET (222) and RESET_CONSUMER_CLIENT_OFFSET (220).

    timestamp (ms) -1 means the end; queue_id -1 means all queues; offset counts where it is given.
    """

    topic: str
    group: str = ""
    timestamp: I64 = 0
    is_force: bool = False
    queue_id: I32 = -1
    offset: I64 | None = None


class CloneGroupOffsetRequestHeader(Header, kw_only=True):
    """CLONE_GROUP_OFFSET (314). A blank topic means all topics of the source group."""

    src_group: str = ""
    dest_group: str
    topic: str | None = None
    offline: bool = False


class QueryCorrectionOffsetHeader(Header):
    """QUERY_CORRECTION_OFFSET (308). filter_groups is a comma-separated list."""

    topic: str
    compare_group: str = ""
    filter_groups: str | None = None
