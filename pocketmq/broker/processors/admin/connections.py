"""Admin requests about connected clients.

GET_CONSUMER_CONNECTION_LIST, GET_PRODUCER_CONNECTION_LIST,
GET_ALL_PRODUCER_INFO, QUERY_SUBSCRIPTION_BY_CONSUMER.

Reference: broker AdminBrokerProcessor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pocketmq.broker.tables.consumer_groups import ClientInfo, ConsumerGroups
from pocketmq.broker.tables.producer_groups import ProducerGroups
from pocketmq.remoting.bodies.consumer import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    QuerySubscriptionResponseBody,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers import (
    GetConsumerConnectionListRequestHeader,
    GetProducerConnectionListRequestHeader,
    Header,
    QuerySubscriptionByConsumerRequestHeader,
)
from pocketmq.remoting.monotonic import MonotonicClock
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response


class ConnectionsProcessor:
    """Requests about the clients of one broker; `clock` gives Unix ms."""

    def __init__(
        self,
        consumers: ConsumerGroups,
        producers: ProducerGroups,
        clock: Callable[[], int],
        monotonic: MonotonicClock,
    ) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._consumers = consumers
        self._producers = producers

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the codes about connections here."""
        dispatcher.register(
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            self.consumers,
            GetConsumerConnectionListRequestHeader,
        )
        dispatcher.register(
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            self.producers,
            GetProducerConnectionListRequestHeader,
        )
        dispatcher.register(RequestCode.GET_ALL_PRODUCER_INFO, self.all_producers)
        dispatcher.register(
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
            self.subscription,
            QuerySubscriptionByConsumerRequestHeader,
        )

    def consumers(self, request: Request[GetConsumerConnectionListRequestHeader]) -> Response:
        """Return the online members of a group, and the group's subscriptions."""
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

    def producers(self, request: Request[GetProducerConnectionListRequestHeader]) -> Response:
        """Return the online members of a producer group."""
        name = request.header.producer_group
        clients = self._producers.clients(name)
        if clients is None:
            return Response(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return Response(body=ProducerConnection(connection_set=_connections(clients)).encode())

    def all_producers(self, request: Request[Header]) -> Response:
        """Return every producer group with its members."""
        now, running = self._clock(), self._monotonic()
        body = ProducerTableInfo(
            data={
                group: [
                    ProducerInfo(
                        client_id=client.client_id,
                        language=client.language,
                        last_update_timestamp=now - (running - client.seen),
                        remote_ip=f"/{_address(client)}",
                        version=client.version,
                    )
                    for client in clients
                ]
                for group, clients in self._producers.all().items()
            }
        )
        return Response(body=body.encode())

    def subscription(self, request: Request[QuerySubscriptionByConsumerRequestHeader]) -> Response:
        """Return the subscription of a group to one topic; nothing if no member is online."""
        header = request.header
        group = self._consumers.get(header.group)
        found = None if group is None else group.subscriptions.get(header.topic)
        body = QuerySubscriptionResponseBody(
            group=header.group,
            subscription_data=None if found is None else found.data,
            topic=header.topic,
        )
        return Response(body=body.encode())


def _connections(clients: Iterable[ClientInfo]) -> list[Connection]:
    return [
        Connection(
            client_addr=_address(client),
            client_id=client.client_id,
            language=client.language,
            version=client.version,
        )
        for client in clients
    ]


def _address(client: ClientInfo) -> str:
    host, port = client.connection.peer
    return f"{host}:{port}"
