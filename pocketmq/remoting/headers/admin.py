"""Headers of broker administration beyond topics."""

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from pocketmq.remoting.headers.base import I32, I64, Header


class GetAllTopicConfigRequestHeader(Header):
    """GET_ALL_TOPIC_CONFIG (21): a page of the table, see `pocketmq.broker.tables.pages`.

    `data_version` is the JSON text of a DataVersion.
    """

    topic_seq: I32 | None = None
    data_version: str | None = None
    max_topic_num: I32 | None = None


class GetAllTopicConfigResponseHeader(Header):
    """The topics of the whole table; releases before 5.4 do not say."""

    total_topic_num: I32 | None = None


class GetAllSubscriptionGroupRequestHeader(Header):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201): a page likewise."""

    group_seq: I32 | None = None
    data_version: str | None = None
    max_group_num: I32 | None = None


class GetAllSubscriptionGroupResponseHeader(Header):
    """The groups of the whole table; releases before 5.4 do not say."""

    total_group_num: I32 | None = None


class GetBrokerConfigResponseHeader(Header):
    """GET_BROKER_CONFIG (26): the configuration's data version as JSON text."""

    version: str


class ExchangeHAInfoRequestHeader(Header):
    """EXCHANGE_BROKER_HA_INFO (906): what a master tells a slave; empty when a slave asks.

    `master_flush_offset` is a physical offset.
    """

    master_address: str | None = None
    master_ha_address: str | None = None
    master_flush_offset: I64 | None = None


class ExchangeHAInfoResponseHeader(Header):
    """What a master answers to a slave."""

    master_address: str | None = None
    master_ha_address: str | None = None
    master_flush_offset: I64 | None = None


class GetConsumerConnectionListRequestHeader(Header):
    """GET_CONSUMER_CONNECTION_LIST (203)."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(Header):
    """GET_PRODUCER_CONNECTION_LIST (204)."""

    producer_group: str


class GetConsumeStatsRequestHeader(Header):
    """GET_CONSUME_STATS (208). topic_list is separated by semicolons; without both, all topics
    with a stored offset of the group."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetConsumeStatsInBrokerHeader(Header):
    """GET_BROKER_CONSUME_STATS (317)."""

    is_order: bool = False


class GetSubscriptionGroupConfigRequestHeader(Header):
    """GET_SUBSCRIPTIONGROUP_CONFIG (352)."""

    group: str


class DeleteSubscriptionGroupRequestHeader(Header):
    """DELETE_SUBSCRIPTIONGROUP (207)."""

    group_name: str
    clean_offset: bool = False


class ViewBrokerStatsDataRequestHeader(Header):
    """VIEW_BROKER_STATS_DATA (315): e.g. TOPIC_PUT_NUMS of a topic."""

    stats_name: str
    stats_key: str


class UpdateGroupForbiddenRequestHeader(Header):
    """UPDATE_AND_GET_GROUP_FORBIDDEN (353)."""

    group: str
    topic: str
    readable: bool | None = None


class QueryTopicsByConsumerRequestHeader(Header):
    """QUERY_TOPICS_BY_CONSUMER (343)."""

    group: str


class QuerySubscriptionByConsumerRequestHeader(Header):
    """QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    group: str
    topic: str


class ResumeCheckHalfMessageRequestHeader(Header):
    """RESUME_CHECK_HALF_MESSAGE (323)."""

    topic: str | None = None
    msg_id: str | None = None


class SwitchTimerEngineRequestHeader(Header):
    """SWITCH_TIMER_ENGINE (5001): F for the timer wheel in files, R for a timer in RocksDB."""

    engine: str = field(name="E_T", default="")


class BatchRequestHeader(Header):
    """COMMON_BATCH_REQUEST (666): the request code of the children.

    omit_not_found is pocketmq's own: children of a parent of pulls whose answer would be "not
    found" may be left out of the parent's answer.
    """

    strict_numbers: ClassVar[bool] = True

    dispatch_code: I32 | None = None
    omit_not_found: bool | None = None
