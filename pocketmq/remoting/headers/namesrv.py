"""Headers of the name server."""

from __future__ import annotations

from msgspec import field

from pocketmq.remoting.headers.base import I32, I64, Header


class PutKVConfigRequestHeader(Header):
    """PUT_KV_CONFIG (100)."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(Header):
    """GET_KV_CONFIG (101)."""

    namespace: str | None = None
    key: str | None = None


class GetKVConfigResponseHeader(Header):
    """Absent value: no such entry (with QUERY_NOT_FOUND)."""

    value: str | None = None


class DeleteKVConfigRequestHeader(Header):
    """DELETE_KV_CONFIG (102)."""

    namespace: str | None = None
    key: str | None = None


class GetKVListByNamespaceRequestHeader(Header):
    """GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str | None = None


class RegisterBrokerRequestHeader(Header, kw_only=True):
    """REGISTER_BROKER (103).

    Attributes:
        broker_addr, ha_server_addr: `ip:port` for clients, for replication.
        broker_id: 0 is the master.
        heartbeat_timeout_millis: how long the name server keeps the broker without a sign of life.
        enable_acting_master: absent from old brokers.
        compressed: the body is deflated (zlib).
        body_crc32: of the body as sent, top bit cleared; 0 turns the check off.
    """

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str = ""
    broker_id: I64
    heartbeat_timeout_millis: I64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: I32 = 0
    zone_name: str | None = field(name="__ZONE_NAME", default=None)
    zone_mode: str | None = field(name="__ZONE_MODE", default=None)


class RegisterBrokerResponseHeader(Header):
    """The live master, told to slaves."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnRegisterBrokerRequestHeader(Header):
    """UNREGISTER_BROKER (104)."""

    broker_name: str = ""
    broker_addr: str = ""
    cluster_name: str = ""
    broker_id: I64 = 0


class GetRouteInfoRequestHeader(Header):
    """GET_ROUTEINFO_BY_TOPIC (105). accept_standard_json_only: quote integer keys in the body."""

    topic: str | None = None
    accept_standard_json_only: bool | None = None


class WipeWritePermOfBrokerRequestHeader(Header):
    """WIPE_WRITE_PERM_OF_BROKER (205)."""

    broker_name: str = ""


class WipeWritePermOfBrokerResponseHeader(Header):
    """Number of topics of that broker."""

    wipe_topic_count: I32


class AddWritePermOfBrokerRequestHeader(Header):
    """ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str = ""


class AddWritePermOfBrokerResponseHeader(Header):
    """Number of topics of that broker."""

    add_topic_count: I32


class DeleteTopicFromNamesrvRequestHeader(Header):
    """DELETE_TOPIC_IN_NAMESRV (216), of one cluster's brokers where it is named."""

    topic: str = ""
    cluster_name: str | None = None


class RegisterTopicRequestHeader(Header):
    """REGISTER_TOPIC_IN_NAMESRV (217)."""

    topic: str


class GetTopicsByClusterRequestHeader(Header):
    """GET_TOPICS_BY_CLUSTER (224)."""

    cluster: str = ""


class QueryDataVersionRequestHeader(Header, kw_only=True):
    """QUERY_DATA_VERSION (322)."""

    broker_name: str = ""
    broker_addr: str
    cluster_name: str
    broker_id: I64 = 0


class QueryDataVersionResponseHeader(Header):
    """Whether the broker has to register again."""

    changed: bool


class GetBrokerMemberGroupRequestHeader(Header):
    """GET_BROKER_MEMBER_GROUP (901)."""

    cluster_name: str = ""
    broker_name: str = ""


class BrokerHeartbeatRequestHeader(Header):
    """BROKER_HEARTBEAT (904), oneway. `Mills` is the wire's spelling."""

    cluster_name: str
    broker_addr: str
    broker_name: str = ""
    broker_id: I64 | None = None
    epoch: I32 | None = None
    max_offset: I64 | None = None
    confirm_offset: I64 | None = None
    heartbeat_timeout_mills: I64 | None = None
    election_priority: I32 | None = None
