"""QueryRoute and QueryAssignment: the addresses of the queues of a topic.

Clients connect to the endpoints in routes. So a route contains the address to which the client
itself connected, which works with NAT, port mappings and containers; or, as in the official proxy,
the same hosts with the proxy's own port.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final

from pocketmq.proxy.config import ProxyConfig
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.proxy.rpc import Call
from pocketmq.proxy.service.access import Access
from pocketmq.proxy.service.checks import group_of, topic_of
from pocketmq.proxy.service.clients import Clients
from pocketmq.proxy.service.metadata import Metadata, Topic
from pocketmq.proxy.service.status import ServiceError, ok
from pocketmq.proxy.service.turns import Turns
from pocketmq.remoting.bodies.route import BrokerData, QueueData

PERM_READ: Final = 4
PERM_WRITE: Final = 2
#: Limits of the endpoints that clients send as the ones they use: an answer repeats them for each
#: queue.
MAX_ENDPOINTS: Final = 64
MAX_ENDPOINT_BYTES: Final = 4_096
MAX_AUTHORITY: Final = 300
#: The most bytes of the endpoints in an answer, with all repetitions.
MAX_REPEATED: Final = 4 << 20
#: Queues of a topic from which on its answer takes a turn of the event loop.
MANY_QUEUES: Final = 64


class Routes:
    """Serves both calls; `port` is the listening port."""

    def __init__(
        self,
        config: ProxyConfig,
        clients: Clients,
        metadata: Metadata,
        access: Access,
        turns: Turns,
    ) -> None:
        self.port = config.grpc_server_port
        self._echo_port = config.use_endpoint_port_from_request
        self._clients = clients
        self._metadata = metadata
        self._access = access
        self._turns = turns

    async def query_route(self, call: Call, request: pb.QueryRouteRequest) -> pb.QueryRouteResponse:
        """Return all queues of a topic."""
        name = topic_of(request.topic)
        self._access.use(call, name)
        self._clients.of(call)
        topic = await self._metadata.topic(name)
        endpoints = await self._endpoints_for(call, request.endpoints, topic)
        answer = pb.QueryRouteResponse(status=ok())
        for queues, broker, broker_id in _brokers(topic):
            read, write = _counts(queues)
            both = min(read, write)
            kinds = [(both, pb.READ_WRITE), (read - both, pb.READ), (write - both, pb.WRITE)]
            if not both and not read and not write:
                kinds = [(max(queues.read_queue_nums, queues.write_queue_nums), pb.NONE)]
            queue_id = 0
            for count, permission in kinds:
                for _ in range(count):
                    _set(answer.message_queues.add(), topic, broker, broker_id, endpoints)
                    queue = answer.message_queues[-1]
                    queue.id = queue_id
                    queue.permission = permission
                    queue.accept_message_types.extend(topic.types)
                    queue_id += 1
        return answer

    async def query_assignment(
        self, call: Call, request: pb.QueryAssignmentRequest
    ) -> pb.QueryAssignmentResponse:
        """Return the assignments of a push consumer: each broker, or for an ordered one each
        queue."""
        name = topic_of(request.topic)
        group = group_of(request.group)
        self._access.consume(call, group, name)
        self._clients.of(call)
        topic = await self._metadata.topic(name)
        settings = await self._metadata.group(group)
        endpoints = await self._endpoints_for(call, request.endpoints, topic)
        answer = pb.QueryAssignmentResponse(status=ok())
        for queues, broker, broker_id in _brokers(topic):
            read, write = _counts(queues)
            if broker_id or not read:
                continue
            for queue_id in range(read) if settings.consume_message_orderly else (-1,):
                queue = answer.assignments.add().message_queue
                _set(queue, topic, broker, broker_id, endpoints)
                queue.id = queue_id
                queue.permission = pb.READ_WRITE if write else pb.READ
        return answer

    async def _endpoints_for(self, call: Call, asked: pb.Endpoints, topic: Topic) -> pb.Endpoints:
        """Return the endpoints for an answer; wait for a turn if it is a long one.

        All calls that have waited for the route of a topic go on in the same turn.
        """
        endpoints = self._endpoints(call, asked)
        queues = sum(
            max(queues.read_queue_nums, queues.write_queue_nums) for queues, _, _ in _brokers(topic)
        )
        size = endpoints.ByteSize()
        if queues * size > MAX_REPEATED:
            raise ServiceError(
                pb.ILLEGAL_ACCESS_POINT,
                f"endpoints of {size} bytes for each of {queues} queues; at most {MAX_REPEATED} "
                "bytes are allowed in an answer: name fewer endpoints",
            )
        if queues > MANY_QUEUES:
            await self._turns.next(call.owner)
        return endpoints

    def _endpoints(self, call: Call, asked: pb.Endpoints) -> pb.Endpoints:
        endpoints = pb.Endpoints()
        if len(asked.addresses) > MAX_ENDPOINTS or asked.ByteSize() > MAX_ENDPOINT_BYTES:
            raise ServiceError(
                pb.ILLEGAL_ACCESS_POINT,
                f"{len(asked.addresses)} endpoints of {asked.ByteSize()} bytes; at most "
                f"{MAX_ENDPOINTS} and {MAX_ENDPOINT_BYTES} bytes are allowed",
            )
        if asked.addresses:
            endpoints.CopyFrom(asked)
        else:
            if len(call.authority) > MAX_AUTHORITY:
                raise ServiceError(
                    pb.ILLEGAL_ACCESS_POINT,
                    f"the authority has {len(call.authority)} characters; at most {MAX_AUTHORITY} "
                    "are allowed",
                )
            host, port = _split(call.authority, self.port)
            endpoints.scheme = _scheme(host)
            endpoints.addresses.add(host=host, port=port)
        if endpoints.scheme == pb.ADDRESS_SCHEME_UNSPECIFIED:
            endpoints.scheme = _scheme(endpoints.addresses[0].host)
        if not self._echo_port:
            for address in endpoints.addresses:
                address.port = self.port
        return endpoints


def _set(
    queue: pb.MessageQueue,
    topic: Topic,
    broker: BrokerData,
    broker_id: int,
    endpoints: pb.Endpoints,
) -> None:
    queue.topic.name = topic.name
    queue.broker.name = broker.broker_name
    queue.broker.id = broker_id
    queue.broker.endpoints.CopyFrom(endpoints)


def _brokers(topic: Topic) -> Iterator[tuple[QueueData, BrokerData, int]]:
    brokers = {data.broker_name: data for data in topic.route.broker_datas}
    for queues in sorted(topic.route.queue_datas, key=lambda data: data.broker_name):
        broker = brokers.get(queues.broker_name)
        for broker_id in sorted(broker.broker_addrs) if broker is not None else ():
            assert broker is not None
            yield queues, broker, broker_id


def _counts(queues: QueueData) -> tuple[int, int]:
    """Return how many queues can be read and written."""
    return (
        queues.read_queue_nums if queues.perm & PERM_READ else 0,
        queues.write_queue_nums if queues.perm & PERM_WRITE else 0,
    )


def _split(authority: str, port: int) -> tuple[str, int]:
    host, colon, digits = authority.rpartition(":")
    if colon and digits.isascii() and digits.isdigit() and int(digits) < 65_536:
        return host.removeprefix("[").removesuffix("]"), int(digits)
    if not authority:
        raise ServiceError(pb.ILLEGAL_ACCESS_POINT, "the request names no endpoints")
    return authority, port


def _scheme(host: str) -> pb.AddressScheme.ValueType:
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return pb.DOMAIN_NAME
    return pb.IPv4 if version == 4 else pb.IPv6
