"""Heartbeats: they tell brokers the groups of this client.

They are sent to every broker of the routes at the start, every 30 s, and on each new connection,
because a broker forgets a client with its connection. Slaves (ids other than 0) get them only if
the client has consumers.
Reference: MQClientInstance.sendHeartbeatToAllBroker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pocketmq.client.errors import RemotingError, error_for
from pocketmq.client.log_fields import fields
from pocketmq.client.routes.route import MASTER_ID, RouteTable
from pocketmq.remoting.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.client import UnregisterClientRequestHeader
from pocketmq.remoting.pool import ConnectionPool

log = logging.getLogger(__name__)

HEARTBEAT_PERIOD = 30.0
HEARTBEAT_TIMEOUT = 3.0
#: Bytes above which a heartbeat is split. Brokers of pocketmq refuse heartbeats above 2 MiB.
PIECE = 1 << 20
#: Seconds that a shutdown waits for the answers of brokers.
UNREGISTER_TIMEOUT = 1.0


class Heartbeat:
    """The groups of one client; registers and unregisters them at brokers."""

    def __init__(self, client_id: str, pool: ConnectionPool, routes: RouteTable) -> None:
        self._client_id = client_id
        self._pool = pool
        self._routes = routes
        self._producers: set[str] = set()
        self._consumers: dict[str, Callable[[], ConsumerData]] = {}
        #: Release ordinal by broker address, from the answers to heartbeats.
        self.versions: dict[str, int] = {}
        #: Names of brokers that get no heartbeats.
        self.spared: set[str] = set()
        self._failing: set[str] = set()

    def add_producer(self, group: str) -> None:
        self._producers.add(group)

    def remove_producer(self, group: str) -> None:
        self._producers.discard(group)

    def remove_consumer(self, group: str) -> None:
        self._consumers.pop(group, None)

    def add_consumer(self, group: str, describe: Callable[[], ConsumerData]) -> None:
        """Add a consumer group. `describe` is called for each heartbeat and returns the group's
        current subscriptions."""
        self._consumers[group] = describe

    def data(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self._client_id,
            producer_data_set=[ProducerData(group_name=group) for group in self._producers],
            consumer_data_set=[describe() for describe in self._consumers.values()],
        )

    def bodies(self) -> list[bytes]:
        """Encode the groups as one body, or as several if it would be too long: brokers keep the
        groups of earlier heartbeats. A proxy has the groups of all of its clients, and a group
        whose subscriptions are too long for brokers must not affect the others."""
        data = self.data()
        whole = data.encode()
        if len(whole) <= PIECE:
            return [whole]
        bodies = []
        piece, size = HeartbeatData(client_id=self._client_id), 0
        for kind in ("producer_data_set", "consumer_data_set"):
            for member in getattr(data, kind):
                length = len(member.encode())
                if size and size + length > PIECE:
                    bodies.append(piece.encode())
                    piece, size = HeartbeatData(client_id=self._client_id), 0
                getattr(piece, kind).append(member)
                size += length + 1
        return [*bodies, piece.encode()]

    def targets(self) -> list[str]:
        """Return the addresses of brokers that get heartbeats; none while there are no groups."""
        if not (self._producers or self._consumers):
            return []
        return [
            address
            for name, addresses in self._routes.brokers.items()
            if name not in self.spared
            for broker_id, address in addresses.items()
            if broker_id == MASTER_ID or self._consumers
        ]

    async def send_all(self) -> None:
        """Send a heartbeat to every target. Failures are logged; those targets are tried again."""
        targets = self.targets()
        for gone in self.versions.keys() - set(targets):
            del self.versions[gone]
        self._failing &= set(targets)
        await asyncio.gather(*(self.send(address) for address in targets))

    async def send(self, address: str) -> bool:
        """Send a heartbeat to one broker; return whether it was accepted."""
        refusal = None
        try:
            for body in self.bodies():
                answer = await self._pool.request(
                    address, RequestCode.HEART_BEAT, None, body, timeout=HEARTBEAT_TIMEOUT
                )
                if answer.code != ResponseCode.SUCCESS:
                    refusal = error_for(answer.code, answer.remark, address)
            if refusal is not None:
                raise refusal
        except RemotingError as error:
            # This repeats every 30 s while a broker is down: warn once.
            level = logging.DEBUG if address in self._failing else logging.WARNING
            self._failing.add(address)
            log.log(
                level,
                "heartbeat to broker %s failed: %s",
                address,
                error,
                extra=fields(error, broker=address, client_id=self._client_id),
            )
            return False
        self._failing.discard(address)
        self.versions[address] = answer.version
        return True

    async def connected(self, address: str) -> None:
        """Send a heartbeat on a new connection: the broker does not know the client yet."""
        if address in self.targets():
            await self.send(address)

    async def unregister_all(self) -> None:
        """Unregister every group at every connected broker; best effort. Later heartbeats name no
        group: they would register the client again."""
        addresses = [address for address in self.targets() if address in self.versions]
        headers = [
            UnregisterClientRequestHeader(client_id=self._client_id, producer_group=group)
            for group in self._producers
        ] + [
            UnregisterClientRequestHeader(client_id=self._client_id, consumer_group=group)
            for group in self._consumers
        ]
        self._producers.clear()
        self._consumers.clear()
        await asyncio.gather(
            *(self._unregister(address, header) for address in addresses for header in headers)
        )

    async def _unregister(self, address: str, header: UnregisterClientRequestHeader) -> None:
        try:
            await self._pool.request(
                address, RequestCode.UNREGISTER_CLIENT, header, timeout=UNREGISTER_TIMEOUT
            )
        except RemotingError as error:
            told = fields(error, broker=address, client_id=self._client_id)
            log.debug("unregistering from broker %s failed: %s", address, error, extra=told)
