"""Consumer and producer groups as admins see and change them (200, 201, 203, 204, 207, 208, 352).

Reference: broker AdminBrokerProcessor.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.config import BrokerConfig
from broker.consumer_groups import ClientInfo, ConsumerGroups
from broker.consumer_offset import ConsumerOffsets
from broker.producer_groups import ProducerGroups
from broker.statistics import MINUTE, Statistics
from broker.subscription_group import SubscriptionGroups
from broker.topic_config import TopicConfigs
from message.limits import IllegalName, check_group
from message.message import MessageQueue
from remoting.bodies.consumer import (
    Connection,
    ConsumerConnection,
    ConsumeStats,
    OffsetWrapper,
    ProducerConnection,
)
from remoting.bodies.subscription_group import (
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.dispatch import Dispatcher
from remoting.headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    Header,
)
from remoting.request import Request, Response
from store.message_store import MessageStore


class GroupProcessor:
    """Group requests of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        consumers: ConsumerGroups,
        producers: ProducerGroups,
        offsets: ConsumerOffsets,
        statistics: Statistics,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._producers = producers
        self._offsets = offsets
        self._statistics = statistics

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the group codes here."""
        dispatcher.register(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, self.update)
        dispatcher.register(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self.all_configs)
        dispatcher.register(
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
            self.config,
            GetSubscriptionGroupConfigRequestHeader,
        )
        dispatcher.register(
            RequestCode.DELETE_SUBSCRIPTIONGROUP, self.delete, DeleteSubscriptionGroupRequestHeader
        )
        dispatcher.register(
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            self.consumer_connections,
            GetConsumerConnectionListRequestHeader,
        )
        dispatcher.register(
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            self.producer_connections,
            GetProducerConnectionListRequestHeader,
        )
        dispatcher.register(
            RequestCode.GET_CONSUME_STATS, self.consume_stats, GetConsumeStatsRequestHeader
        )

    def update(self, request: Request[Header]) -> Response:
        """Create or change a group."""
        group = SubscriptionGroupConfig.decode(request.body)
        try:
            check_group(group.group_name)
        except IllegalName as error:
            return Response(ResponseCode.INVALID_PARAMETER, str(error))
        self._groups.update([group])
        return Response()

    def all_configs(self, request: Request[Header]) -> Response:
        """The whole group table."""
        body = SubscriptionGroupWrapper(
            data_version=self._groups.data_version,
            forbidden_table=self._groups.forbidden,
            subscription_group_table=self._groups.table,
        )
        return Response(body=body.encode())

    def config(self, request: Request[GetSubscriptionGroupConfigRequestHeader]) -> Response:
        """One group's settings; created with defaults where the broker allows that."""
        name = request.header.group
        group = self._groups.find(name)
        if group is None:
            return Response(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: {name}"
            )
        return Response(body=group.encode())

    def delete(self, request: Request[DeleteSubscriptionGroupRequestHeader]) -> Response:
        """Forget a group, with its offsets if asked to; an unknown one succeeds."""
        name = request.header.group_name
        self._groups.delete(name)
        if request.header.clean_offset:
            self._offsets.forget_group(name)
        self._statistics.forget_group(name)
        return Response()

    def consumer_connections(
        self, request: Request[GetConsumerConnectionListRequestHeader]
    ) -> Response:
        """Who of a group is online, and what the group subscribes to."""
        name = request.header.consumer_group
        group = self._consumers.get(name)
        if group is None:
            return Response(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
            )
        body = ConsumerConnection(
            connection_set=_connections(group.clients.values()),
            consume_from_where=group.consume_from_where,
            consume_type=group.consume_type,
            message_model=group.message_model,
            subscription_table={
                topic: subscription.data for topic, subscription in group.subscriptions.items()
            },
        )
        return Response(body=body.encode())

    def producer_connections(
        self, request: Request[GetProducerConnectionListRequestHeader]
    ) -> Response:
        """Who of a producer group is online."""
        name = request.header.producer_group
        clients = self._producers.clients(name)
        if clients is None:
            return Response(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        body = ProducerConnection(connection_set=_connections(clients))
        return Response(body=body.encode())

    def consume_stats(self, request: Request[GetConsumeStatsRequestHeader]) -> Response:
        """How far a group has consumed each queue of its topics."""
        group = request.header.consumer_group
        body = ConsumeStats()
        for name in self._topics_of(request.header):
            topic = self._topics.get(name)
            if topic is None:
                continue
            for queue_id in range(topic.read_queue_nums):
                queue = MessageQueue(name, self._config.broker_name, queue_id)
                body.offset_table[queue] = self._progress(group, name, queue_id)
            rates = self._statistics.item("GROUP_GET_NUMS", f"{name}@{group}", MINUTE)
            body.consume_tps += rates.tps if rates else 0.0
        return Response(body=body.encode())

    def _topics_of(self, header: GetConsumeStatsRequestHeader) -> list[str]:
        if header.topic_list:
            return [name for name in header.topic_list.split(";") if name]
        group = header.consumer_group
        topics = [header.topic] if header.topic else sorted(self._offsets.topics_of(group))
        online = self._consumers.get(group)
        if online is None or not online.subscriptions:
            return topics
        return [name for name in topics if name in online.subscriptions]

    def _progress(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        consumed = max(self._offsets.query(group, topic, queue_id), 0)
        last = self._store.store_time_at(topic, queue_id, consumed - 1) if consumed else 0
        return OffsetWrapper(
            broker_offset=self._store.max_offset(topic, queue_id),
            consumer_offset=consumed,
            pull_offset=max(consumed, self._offsets.query_pulled(group, topic, queue_id)),
            last_timestamp=max(last, 0),
        )


def _connections(clients: Iterable[ClientInfo]) -> list[Connection]:
    return [
        Connection(
            client_addr=f"{client.connection.peer[0]}:{client.connection.peer[1]}",
            client_id=client.client_id,
            language=client.language,
            version=client.version,
        )
        for client in clients
    ]
