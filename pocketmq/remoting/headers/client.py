"""Headers about clients and their groups, in both directions."""

from __future__ import annotations

from msgspec import field

from pocketmq.remoting.headers.base import I32, I64, Header


class HeartbeatRequestHeader(Header):
    """HEART_BEAT (34): all is in the body."""


class HeartbeatResponseHeader(Header):
    """How a broker takes heartbeats of the second version; both are always sent.

    is_support_batch_protocol is pocketmq's own: true from brokers that serve COMMON_BATCH_REQUEST.
    """

    is_support_heart_beat_v2: bool = field(name="IS_SUPPORT_HEART_BEAT_V2", default=True)
    is_sub_change: bool = field(name="IS_SUB_CHANGE", default=True)
    is_support_batch_protocol: bool | None = field(name="IS_SUPPORT_BATCH_PROTOCOL", default=None)


class UnregisterClientRequestHeader(Header):
    """UNREGISTER_CLIENT (35), with one or both of the groups."""

    client_id: str = field(name="clientID", default="")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequestHeader(Header):
    """GET_CONSUMER_LIST_BY_GROUP (38)."""

    consumer_group: str


class NotifyConsumerIdsChangedRequestHeader(Header):
    """NOTIFY_CONSUMER_IDS_CHANGED (40), broker to client, oneway: rebalance now."""

    consumer_group: str


class GetConsumerStatusRequestHeader(Header):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), and 221 to the client. client_addr is a
    clientId."""

    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerRunningInfoRequestHeader(Header):
    """GET_CONSUMER_RUNNING_INFO (307), forwarded to the client."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyResultRequestHeader(Header):
    """CONSUME_MESSAGE_DIRECTLY (309), forwarded to the client with the message as body.

    msg_id is an offset message id.
    """

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: I32 | None = None
    group_sys_flag: I32 | None = None


class ReplyMessageRequestHeader(Header):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326). Hosts are `ip:port` texts, times ms."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: I32
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    born_host: str
    store_host: str
    store_timestamp: I64
    properties: str = ""
    reconsume_times: I32 = 0
    unit_mode: bool = False
