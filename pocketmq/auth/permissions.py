"""What each request code needs: the one table, for broker and name server.

A rule gives the needs of a request, all of which must be met; a need is met if one of its actions
is allowed. Names are taken from the typed header or body that the handler uses, never from anything
that only the guard reads. A code without a rule needs a super user. A code that this server does
not serve has no typed header, so its names are empty.

A topic's retry topic belongs to its consumer group: reading and writing it needs Sub on the group.
Anything without a topic or group belongs to the cluster of the broker; at a name server, which
serves several, a request that names no cluster needs a grant on `Cluster:*`.
Reference: auth DefaultAuthorizationContextBuilder, the RocketMQAction of each header.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from pocketmq.auth.policies import Action, Kind
from pocketmq.message.limits import HALF_TOPIC, RETRY_PREFIX
from pocketmq.message.retry_topic import normal_topic
from pocketmq.remoting.bodies.heartbeat import HeartbeatData
from pocketmq.remoting.bodies.pop import (
    BatchAckMessageRequestBody,
    QueryAssignmentRequestBody,
    SetMessageRequestModeRequestBody,
)
from pocketmq.remoting.bodies.queue_lock import LockBatchRequestBody, UnlockBatchRequestBody
from pocketmq.remoting.bodies.subscription_group import (
    DeleteSubscriptionGroupListRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
)
from pocketmq.remoting.bodies.topic import CreateTopicListRequestBody, DeleteTopicListRequestBody
from pocketmq.remoting.codes import RequestCode as Code
from pocketmq.remoting.serving.request import Request

PUB, SUB, CREATE, UPDATE, DELETE, GET, LIST = (
    Action.PUB,
    Action.SUB,
    Action.CREATE,
    Action.UPDATE,
    Action.DELETE,
    Action.GET,
    Action.LIST,
)


CLIENT_CONFIG: Final = "POCKETMQ_CLIENT_CONFIG"
"""The namespace of the name server's key-value table that clients read."""


class Need(NamedTuple):
    """One of `actions` on a single resource."""

    kind: Kind
    name: str
    actions: tuple[Action, ...]

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.name or '*'}"


#: The needs of a request: part of a rule. The text is the cluster of this process.
Part = Callable[[Request[Any], str], Iterator[Need]]


def on_topic(name: str, *actions: Action) -> Need:
    """Return the need for a topic, or for the group whose retry topic it is."""
    if name.startswith(RETRY_PREFIX):
        # Consumers send to it themselves, and read it, with the right to receive. Creating,
        # changing or deleting it needs these rights on the group.
        if not {PUB, GET}.isdisjoint(actions):
            actions = tuple({*actions, SUB} - {PUB})
        return Need(Kind.GROUP, name[len(RETRY_PREFIX) :], actions)
    return Need(Kind.TOPIC, name, actions)


def on_group(name: str, *actions: Action) -> Need:
    """Return the need for a group."""
    return Need(Kind.GROUP, name, actions)


def topic(*actions: Action) -> Part:
    """Need the topic that the header names."""

    def part(request: Request[Any], cluster: str) -> Iterator[Need]:
        yield on_topic(getattr(request.header, "topic", None) or "", *actions)

    return part


def optional_topic(*actions: Action) -> Part:
    """Need the topic that the header names, if it names one."""

    def part(request: Request[Any], cluster: str) -> Iterator[Need]:
        if name := getattr(request.header, "topic", None):
            yield on_topic(name, *actions)

    return part


def _ended(request: Request[Any], cluster: str) -> Iterator[Need]:
    # An answer to a check names the same topic as the check, which is that of half messages. The
    # handler checks the topic of the half message.
    if (name := getattr(request.header, "topic", None)) and name != HALF_TOPIC:
        yield on_topic(name, PUB)


def group(*actions: Action, field: str = "consumer_group") -> Part:
    """Need the group that this field of the header names."""

    def part(request: Request[Any], cluster: str) -> Iterator[Need]:
        yield Need(Kind.GROUP, getattr(request.header, field, None) or "", actions)

    return part


def optional_group(*actions: Action, field: str = "consumer_group") -> Part:
    """Need the group that this field names, if it names one."""

    def part(request: Request[Any], cluster: str) -> Iterator[Need]:
        if name := getattr(request.header, field, None):
            yield Need(Kind.GROUP, name, actions)

    return part


def cluster(*actions: Action, field: str = "cluster_name") -> Part:
    """Need the cluster that the header names; if it names none, that of this process."""

    def part(request: Request[Any], own: str) -> Iterator[Need]:
        # A broker serves one cluster, even if a header names another.
        yield Need(Kind.CLUSTER, own or getattr(request.header, field, None) or "", actions)

    return part


def _heartbeat(request: Request[Any], cluster: str) -> Iterator[Need]:
    for consumer in HeartbeatData.decode_ahead(request).consumer_data_set:
        yield Need(Kind.GROUP, consumer.group_name, (SUB,))
        for subscription in consumer.subscription_data_set:
            yield on_topic(subscription.topic, SUB)


def _lock(request: Request[Any], cluster: str) -> Iterator[Need]:
    kind = LockBatchRequestBody if request.code == Code.LOCK_BATCH_MQ else UnlockBatchRequestBody
    body = kind.decode_ahead(request)
    yield Need(Kind.GROUP, body.consumer_group, (SUB,))
    for name in sorted({queue.topic for queue in body.mq_set}):
        yield on_topic(name, SUB)


def _topics(request: Request[Any], cluster: str) -> Iterator[Need]:
    for config in CreateTopicListRequestBody.decode_ahead(request).topic_config_list or ():
        yield on_topic(config.topic_name, CREATE)


def _group(request: Request[Any], cluster: str) -> Iterator[Need]:
    yield Need(
        Kind.GROUP, SubscriptionGroupConfig.decode_ahead(request).group_name, (CREATE, UPDATE)
    )


def _groups(request: Request[Any], cluster: str) -> Iterator[Need]:
    for config in SubscriptionGroupList.decode_ahead(request).group_config_list or ():
        yield Need(Kind.GROUP, config.group_name, (CREATE, UPDATE))


def _deleted_topics(request: Request[Any], cluster: str) -> Iterator[Need]:
    for name in DeleteTopicListRequestBody.decode_ahead(request).topic_list or ():
        yield on_topic(name, DELETE)


def _deleted_groups(request: Request[Any], cluster: str) -> Iterator[Need]:
    body = DeleteSubscriptionGroupListRequestBody.decode_ahead(request)
    for name in body.group_name_list or ():
        yield Need(Kind.GROUP, name, (DELETE,))


def _kv_list(request: Request[Any], own: str) -> Iterator[Need]:
    # Every client reads the settings that an operator keeps for clients.
    if getattr(request.header, "namespace", None) != CLIENT_CONFIG:
        yield Need(Kind.CLUSTER, own, (GET,))


def _popped(request: Request[Any], cluster: str) -> Iterator[Need]:
    header = request.header
    yield from _of_popped(
        getattr(header, "topic", None) or "", getattr(header, "consumer_group", None) or ""
    )


def _acks(request: Request[Any], cluster: str) -> Iterator[Need]:
    if not request.body:
        return  # an empty one; its client gets an error
    body = BatchAckMessageRequestBody.decode_ahead(request)
    for topic, group in sorted({(ack.topic, ack.consumer_group) for ack in body.acks}):
        yield from _of_popped(topic, group)


def _assignment(request: Request[Any], cluster: str) -> Iterator[Need]:
    body = QueryAssignmentRequestBody.decode_ahead(request)
    yield Need(Kind.GROUP, body.consumer_group, (SUB,))
    yield on_topic(body.topic, SUB)


def _request_mode(request: Request[Any], cluster: str) -> Iterator[Need]:
    body = SetMessageRequestModeRequestBody.decode_ahead(request)
    yield Need(Kind.GROUP, body.consumer_group, (UPDATE,))
    yield on_topic(body.topic, UPDATE)


def _of_popped(topic: str, group: str) -> Iterator[Need]:
    """Return the needs for messages that a group popped from a topic, or from its retry topic."""
    yield Need(Kind.GROUP, group, (SUB,))
    yield on_topic(normal_topic(topic, group), SUB)


NOTHING: Final[tuple[Part, ...]] = ()
"""A valid signature is enough; a Batch-Protocol parent's children are checked one by one."""

_SEND: Final = (topic(PUB),)
_RECEIVE: Final = (topic(SUB), group(SUB))
_LOOK: Final = (topic(GET, SUB),)
_CLUSTER_GET: Final = (cluster(GET),)
_CLUSTER_UPDATE: Final = (cluster(UPDATE),)
_LIST_TOPICS: Final = (cluster(LIST, GET),)

RULES: Final[Mapping[int, tuple[Part, ...]]] = {
    # Sending
    Code.SEND_MESSAGE: _SEND,
    Code.SEND_MESSAGE_V2: _SEND,
    Code.SEND_BATCH_MESSAGE: _SEND,
    Code.SEND_REPLY_MESSAGE: _SEND,
    Code.SEND_REPLY_MESSAGE_V2: _SEND,
    Code.RECALL_MESSAGE: _SEND,
    Code.END_TRANSACTION: (_ended,),  # its handler checks the half message's topic
    Code.CONSUMER_SEND_MSG_BACK: (group(SUB, field="group"),),
    Code.COMMON_BATCH_REQUEST: NOTHING,
    # Receiving
    Code.PULL_MESSAGE: _RECEIVE,
    Code.LITE_PULL_MESSAGE: _RECEIVE,
    Code.POP_MESSAGE: _RECEIVE,
    Code.ACK_MESSAGE: (_popped,),
    Code.BATCH_ACK_MESSAGE: (_acks,),
    Code.CHANGE_MESSAGE_INVISIBLETIME: (_popped,),
    Code.NOTIFICATION: _RECEIVE,
    Code.PEEK_MESSAGE: _RECEIVE,
    Code.POLLING_INFO: _RECEIVE,
    Code.QUERY_ASSIGNMENT: (_assignment,),
    Code.SET_MESSAGE_REQUEST_MODE: (_request_mode,),
    Code.GET_ALL_MESSAGE_REQUEST_MODE: (cluster(GET),),
    Code.HEART_BEAT: (_heartbeat,),
    Code.UNREGISTER_CLIENT: (optional_group(SUB),),
    Code.CHECK_CLIENT_CONFIG: NOTHING,
    Code.GET_CONSUMER_LIST_BY_GROUP: (group(SUB, GET),),
    Code.LOCK_BATCH_MQ: (_lock,),
    Code.UNLOCK_BATCH_MQ: (_lock,),
    Code.QUERY_CONSUMER_OFFSET: (topic(SUB, GET), group(SUB, GET)),
    Code.UPDATE_CONSUMER_OFFSET: (topic(SUB, UPDATE), group(SUB, UPDATE)),
    # Looking at messages and queues
    Code.GET_MAX_OFFSET: _LOOK,
    Code.GET_MIN_OFFSET: _LOOK,
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _LOOK,
    Code.GET_EARLIEST_MSG_STORETIME: _LOOK,
    Code.QUERY_MESSAGE: _LOOK,
    Code.VIEW_MESSAGE_BY_ID: (optional_topic(GET, SUB),),  # its handler checks the message's topic
    Code.QUERY_CONSUME_QUEUE: (*_LOOK, optional_group(GET, SUB)),
    # Topics
    Code.GET_ROUTEINFO_BY_TOPIC: (topic(PUB, SUB, GET),),
    Code.UPDATE_AND_CREATE_TOPIC: (topic(CREATE),),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: (_topics,),
    Code.DELETE_TOPIC_IN_BROKER: (topic(DELETE),),
    Code.DELETE_TOPIC_IN_BROKER_LIST: (_deleted_topics,),
    Code.DELETE_TOPIC_IN_NAMESRV: (topic(DELETE),),
    Code.GET_TOPIC_CONFIG: _LOOK,
    Code.GET_TOPIC_STATS_INFO: _LOOK,
    Code.GET_ALL_TOPIC_CONFIG: _LIST_TOPICS,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _LIST_TOPICS,
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _LIST_TOPICS,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: _LIST_TOPICS,
    Code.GET_UNIT_TOPIC_LIST: _LIST_TOPICS,
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: _LIST_TOPICS,
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _LIST_TOPICS,
    Code.GET_TOPICS_BY_CLUSTER: (cluster(LIST, GET, field="cluster"),),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: (topic(GET),),
    # Groups
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (_group,),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: (_groups,),
    Code.DELETE_SUBSCRIPTIONGROUP: (group(DELETE, field="group_name"),),
    Code.DELETE_SUBSCRIPTION_GROUP_LIST: (_deleted_groups,),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (cluster(LIST, GET),),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: (group(GET, SUB, field="group"),),
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: (group(UPDATE, field="group"), topic(UPDATE)),
    Code.GET_CONSUMER_CONNECTION_LIST: (group(GET),),
    Code.GET_PRODUCER_CONNECTION_LIST: _CLUSTER_GET,
    Code.GET_ALL_PRODUCER_INFO: _CLUSTER_GET,
    Code.GET_CONSUME_STATS: (group(GET), optional_topic(GET)),  # its handler checks topicList
    Code.QUERY_CONSUME_TIME_SPAN: (topic(GET), group(GET, field="group")),
    Code.QUERY_TOPICS_BY_CONSUMER: (group(GET, field="group"),),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: (group(GET, field="group"), topic(GET)),
    Code.QUERY_CORRECTION_OFFSET: (topic(GET), group(GET, field="compare_group")),
    Code.GET_CONSUMER_RUNNING_INFO: (group(GET),),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: (group(GET, field="group"), topic(GET)),
    # It shows any message, by its offset, to a client of the group.
    Code.CONSUME_MESSAGE_DIRECTLY: (group(SUB), cluster(UPDATE)),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: (group(UPDATE, field="group"), topic(UPDATE)),
    Code.CLONE_GROUP_OFFSET: (
        group(GET, field="src_group"),
        group(UPDATE, field="dest_group"),
        optional_topic(UPDATE),
    ),
    # The broker as a whole
    Code.UPDATE_BROKER_CONFIG: _CLUSTER_UPDATE,
    Code.SWITCH_TIMER_ENGINE: _CLUSTER_UPDATE,
    Code.GET_BROKER_CONFIG: _CLUSTER_GET,
    Code.GET_BROKER_RUNTIME_INFO: _CLUSTER_GET,
    Code.GET_BROKER_HA_STATUS: _CLUSTER_GET,
    Code.GET_BROKER_EPOCH_CACHE: _CLUSTER_GET,
    Code.NOTIFY_BROKER_ROLE_CHANGED: _CLUSTER_UPDATE,
    Code.VIEW_BROKER_STATS_DATA: _CLUSTER_GET,
    Code.GET_BROKER_CONSUME_STATS: _CLUSTER_GET,
    Code.GET_ALL_CONSUMER_OFFSET: _CLUSTER_GET,
    Code.GET_ALL_DELAY_OFFSET: _CLUSTER_GET,
    Code.GET_TIMER_CHECK_POINT: _CLUSTER_GET,
    Code.GET_TIMER_METRICS: _CLUSTER_GET,
    Code.EXCHANGE_BROKER_HA_INFO: _CLUSTER_UPDATE,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: _CLUSTER_UPDATE,
    Code.CLEAN_UNUSED_TOPIC: _CLUSTER_UPDATE,
    Code.DELETE_EXPIRED_COMMITLOG: _CLUSTER_UPDATE,
    Code.RESUME_CHECK_HALF_MESSAGE: _CLUSTER_UPDATE,
    # The name server
    Code.REGISTER_BROKER: _CLUSTER_UPDATE,
    Code.UNREGISTER_BROKER: _CLUSTER_UPDATE,
    Code.BROKER_HEARTBEAT: _CLUSTER_UPDATE,
    Code.QUERY_DATA_VERSION: _CLUSTER_UPDATE,  # it also counts as a sign of life
    Code.GET_BROKER_MEMBER_GROUP: _CLUSTER_GET,
    Code.GET_BROKER_CLUSTER_INFO: _CLUSTER_GET,
    Code.WIPE_WRITE_PERM_OF_BROKER: _CLUSTER_UPDATE,
    Code.ADD_WRITE_PERM_OF_BROKER: _CLUSTER_UPDATE,
    Code.REGISTER_TOPIC_IN_NAMESRV: _CLUSTER_UPDATE,
    Code.UPDATE_NAMESRV_CONFIG: _CLUSTER_UPDATE,
    Code.GET_NAMESRV_CONFIG: _CLUSTER_GET,
    Code.PUT_KV_CONFIG: _CLUSTER_UPDATE,
    Code.GET_KV_CONFIG: _CLUSTER_GET,
    Code.DELETE_KV_CONFIG: _CLUSTER_UPDATE,
    Code.GET_KVLIST_BY_NAMESPACE: (_kv_list,),
    # Users and access lists
    Code.AUTH_CREATE_USER: _CLUSTER_UPDATE,
    Code.AUTH_UPDATE_USER: _CLUSTER_UPDATE,
    Code.AUTH_DELETE_USER: _CLUSTER_UPDATE,
    Code.AUTH_GET_USER: _CLUSTER_GET,
    Code.AUTH_LIST_USER: _CLUSTER_GET,
    Code.AUTH_CREATE_ACL: _CLUSTER_UPDATE,
    Code.AUTH_UPDATE_ACL: _CLUSTER_UPDATE,
    Code.AUTH_DELETE_ACL: _CLUSTER_UPDATE,
    Code.AUTH_GET_ACL: _CLUSTER_GET,
    Code.AUTH_LIST_ACL: _CLUSTER_GET,
}

#: Requests that change what others see, or that show passwords: the audit log has them.
ADMIN: Final = frozenset(
    code
    for code, parts in RULES.items()
    if parts is _CLUSTER_UPDATE
    and code
    not in (
        Code.REGISTER_BROKER,  # a broker's start, heartbeat and stop
        Code.UNREGISTER_BROKER,
        Code.BROKER_HEARTBEAT,
        Code.QUERY_DATA_VERSION,
        Code.EXCHANGE_BROKER_HA_INFO,
        Code.NOTIFY_BROKER_ROLE_CHANGED,
    )
) | {
    Code.UPDATE_AND_CREATE_TOPIC,
    Code.UPDATE_AND_CREATE_TOPIC_LIST,
    Code.DELETE_TOPIC_IN_BROKER,
    Code.DELETE_TOPIC_IN_BROKER_LIST,
    Code.DELETE_TOPIC_IN_NAMESRV,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    Code.DELETE_SUBSCRIPTIONGROUP,
    Code.DELETE_SUBSCRIPTION_GROUP_LIST,
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
    Code.INVOKE_BROKER_TO_RESET_OFFSET,
    Code.CLONE_GROUP_OFFSET,
    Code.SET_MESSAGE_REQUEST_MODE,
    Code.CONSUME_MESSAGE_DIRECTLY,
    Code.AUTH_GET_USER,
    Code.AUTH_LIST_USER,
}


def needs_of(request: Request[Any], cluster: str) -> Iterator[Need] | None:
    """Return what a request needs; None if there is no rule, so that it needs a super user.

    The iterator raises RemotingError for a body that cannot be read.
    """
    parts = RULES.get(request.code)
    if parts is None:
        return None
    return (need for part in parts for need in part(request, cluster))
