"""The broker port to the broker in this process and, over the network, to the other brokers.

Routes come from the name server, except that the own broker's part comes from that broker itself,
which knows of changes at once. Requests to it need no network; those to other brokers are
forwarded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from pocketmq.client.routes.route import publish_queues
from pocketmq.client.selector.pipeline import PublishQueues
from pocketmq.proxy.port.broker_port import (
    REQUEST_TIMEOUT,
    Answer,
    Asked,
    Choice,
    Link,
    Registration,
)
from pocketmq.proxy.port.local import LocalPort
from pocketmq.proxy.port.remote import RemotePort
from pocketmq.remoting.bodies.route import TopicRouteData
from pocketmq.remoting.errors import TopicNotExist
from pocketmq.remoting.headers.base import Header
from pocketmq.remoting.held_error import HeldError
from pocketmq.remoting.serving.request import Caller

#: The most topics whose queues are cached.
MAX_TOPICS: Final = 20_000


class JointPort:
    """`local` and `remote` together. `remote` is started and stopped with this port."""

    local = True

    def __init__(self, local: LocalPort, remote: RemotePort) -> None:
        self._local = local
        self._remote = remote
        self._name = local.broker.name
        # The own broker knows the clients themselves, not the proxy with all their groups.
        remote.instance.heartbeat.spared.add(self._name)
        self._routes: dict[str, tuple[TopicRouteData, PublishQueues]] = {}

    async def start(self) -> None:
        """Start. Raises NoNameServer."""
        await self._remote.start()

    async def stop(self) -> None:
        """Stop, and close all connections."""
        await self._remote.stop()
        await self._local.stop()

    def open(self, client_id: str, language: str, peer: tuple[str, int], asked: Asked) -> Link:
        """Return a link for a client."""
        return _JointLink(
            self._name,
            self._local.open(client_id, language, peer, asked),
            self._remote.open(client_id, language, peer, asked),
        )

    async def route(self, topic: str) -> TopicRouteData:
        """Return the route of a topic. Raises TopicNotExist, RemotingError."""
        missing = None
        route = TopicRouteData()
        try:
            route = await self._local.route(topic)
        except TopicNotExist as error:
            missing = HeldError(error)
        try:
            known = await self._remote.route(topic)
        except TopicNotExist:
            known = TopicRouteData()
        others = [data for data in known.queue_datas if data.broker_name != self._name]
        if missing is not None and not others:
            raise missing.take()
        brokers = [data for data in known.broker_datas if data.broker_name != self._name]
        # Includes the replicas of the own broker, if it is registered.
        own = [data for data in known.broker_datas if data.broker_name == self._name]
        route = TopicRouteData(
            order_topic_conf=known.order_topic_conf,
            queue_datas=[*route.queue_datas, *others],
            broker_datas=[*(own or route.broker_datas), *brokers],
        )
        entry = self._routes.pop(topic, None)
        if entry is None or entry[0] != route:
            entry = route, PublishQueues(publish_queues(topic, route))
        self._routes[topic] = entry
        if len(self._routes) > MAX_TOPICS:
            del self._routes[next(iter(self._routes))]
        return entry[0]

    def choose(self, topic: str, route: TopicRouteData, key: str | None) -> Choice | None:
        """Choose a queue: by the key, or by the state of the brokers."""
        queues = route.queue_datas
        if len(queues) == 1 and queues[0].broker_name == self._name:
            return self._local.choose(topic, route, key)
        entry = self._routes.get(topic)
        if entry is not None and entry[0] is route:
            return self._remote.choose_from(topic, entry[1], key)
        return self._remote.choose_from(topic, PublishQueues(publish_queues(topic, route)), key)

    def brokers(self) -> Sequence[str]:
        """Return the names of the own broker and of the other known brokers."""
        others = (name for name in self._remote.brokers() if name != self._name)
        return (self._name, *others)


class _JointLink:
    """One client; see `pocketmq.proxy.port.broker_port.Link`."""

    __slots__ = ("_local", "_name", "_remote")

    def __init__(self, name: str, local: Link, remote: Link) -> None:
        self._name = name
        self._local = local
        self._remote = remote

    @property
    def caller(self) -> Caller | None:
        """The user who signs the client's calls."""
        return self._local.caller

    @caller.setter
    def caller(self, caller: Caller | None) -> None:
        self._local.caller = self._remote.caller = caller

    def request(
        self,
        broker: str,
        code: int,
        header: Header | None,
        body: bytes = b"",
        *,
        timeout: float = REQUEST_TIMEOUT,
    ) -> asyncio.Future[Answer]:
        """Ask a broker."""
        link = self._local if broker == self._name else self._remote
        return link.request(broker, code, header, body, timeout=timeout)

    def withdraw(self, answer: asyncio.Future[Answer]) -> bool:
        """Withdraw a request that the own broker holds."""
        return self._local.withdraw(answer)

    async def register(self, registration: Registration) -> None:
        """Report the client's groups to the own broker, and to the others with the next
        heartbeats."""
        await self._local.register(registration)
        await self._remote.register(registration)

    def close(self) -> None:
        """Remove the client."""
        self._local.close()
        self._remote.close()
