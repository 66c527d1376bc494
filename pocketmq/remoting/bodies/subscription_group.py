"""Consumer groups as brokers configure them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import field

from pocketmq.remoting.bodies.base import Body, enum
from pocketmq.remoting.bodies.registration import DataVersion


class CustomizedRetryPolicy(Body):
    """Delays of redelivery in ms, one per attempt."""

    next: list[int] = field(default_factory=list)


class ExponentialRetryPolicy(Body):
    """Delays of redelivery in ms: `initial * multiplier ** attempt`, at most `max`."""

    initial: int = 5_000
    max: int = 7_200_000
    multiplier: int = 2


class GroupRetryPolicy(Body):
    """type: CUSTOMIZED or EXPONENTIAL. Without a policy of its own the broker's levels count."""

    customized_retry_policy: CustomizedRetryPolicy | None = None
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    type: Annotated[str, enum("EXPONENTIAL", "CUSTOMIZED")] = "CUSTOMIZED"


class SimpleSubscriptionData(Body):
    """A subscription of the group, noted by proxies."""

    expression: str | None = None
    expression_type: str = "TAG"
    topic: str = ""
    version: int = 0


class SubscriptionGroupConfig(Body):
    """A consumer group. consume_timeout_minute in minutes, retry_max_times in redeliveries."""

    attributes: dict[str, str] = field(default_factory=dict)
    broker_id: int = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_message_orderly: bool = False
    consume_timeout_minute: int = 15
    group_name: str = ""
    group_retry_policy: GroupRetryPolicy = field(default_factory=GroupRetryPolicy)
    group_sys_flag: int = 0
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: int = 16
    retry_queue_nums: int = 1
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    which_broker_when_consume_slowly: int = 1


class SubscriptionGroupWrapper(Body):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""

    data_version: DataVersion = field(default_factory=DataVersion)
    forbidden_table: dict[str, Any] = field(default_factory=dict)
    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)


class GroupForbidden(Body):
    """UPDATE_AND_GET_GROUP_FORBIDDEN: whether a group may read a topic."""

    group: str = ""
    readable: bool = True
    topic: str = ""


class SubscriptionGroupList(Body):
    """The body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST."""

    group_config_list: list[SubscriptionGroupConfig] | None = None


class DeleteSubscriptionGroupListRequestBody(Body):
    """The body of DELETE_SUBSCRIPTION_GROUP_LIST."""

    clean_offset: bool = False
    group_name_list: list[str] | None = None
