"""The internal state that a consumer reports on request."""

from __future__ import annotations

from typing import Any

from msgspec import field

from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.base import Body, QueueBody, keyed_by_queue
from pocketmq.remoting.bodies.heartbeat import SubscriptionData


class ProcessQueueInfo(Body):
    """The messages of one queue in a consumer. `droped` is spelled so on the wire."""

    cached_msg_count: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_size_in_mib: int = field(name="cachedMsgSizeInMiB", default=0)
    commit_offset: int = 0
    droped: bool = False
    last_consume_timestamp: int = 0
    last_lock_timestamp: int = 0
    last_pull_timestamp: int = 0
    locked: bool = False
    transaction_msg_count: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_min_offset: int = 0
    try_unlock_times: int = 0


class PopProcessQueueInfo(Body):
    """The same for a queue consumed by POP."""

    droped: bool = False
    last_pop_timestamp: int = 0
    wait_ack_count: int = 0


class ConsumeStatus(Body):
    """Rates per second and times (ms) of consuming one topic."""

    consume_failed_msgs: int = 0
    consume_failed_tps: float = field(name="consumeFailedTPS", default=0.0)
    consume_ok_tps: float = field(name="consumeOKTPS", default=0.0)
    consume_rt: float = field(name="consumeRT", default=0.0)
    pull_rt: float = field(name="pullRT", default=0.0)
    pull_tps: float = field(name="pullTPS", default=0.0)


class ConsumerRunningInfo(QueueBody):
    """GET_CONSUMER_RUNNING_INFO; status_table by topic."""

    jstack: str | None = None
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = field(default_factory=dict)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)
    user_consumer_info: dict[str, str] = field(default_factory=dict)

    @classmethod
    def _adapt(cls, fields: dict[str, Any]) -> None:
        fields["mqTable"] = keyed_by_queue(fields.get("mqTable"))
        fields["mqPopTable"] = keyed_by_queue(fields.get("mqPopTable"))


class ConsumeMessageDirectlyResult(Body):
    """CONSUME_MESSAGE_DIRECTLY: consume_result is one of CR_SUCCESS, CR_LATER, CR_ROLLBACK,
    CR_COMMIT, CR_THROW_EXCEPTION, CR_RETURN_NULL."""

    auto_commit: bool = True
    consume_result: str = "CR_SUCCESS"
    order: bool = False
    remark: str | None = None
    spent_time_mills: int = 0
