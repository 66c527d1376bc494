"""The broker port to the brokers of a cluster, through their remoting ports.

It uses the client's routes, connections, and RIP-63 queue selection, with one selector for the
whole proxy. To brokers, the proxy is one client with the groups of all its own clients. A broker's
request for a group is sent to one of the proxy's clients in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

from pocketmq.client.errors import BrokerNotFound, is_silence
from pocketmq.client.instance import ClientInstance
from pocketmq.client.remote_switches import RemoteSwitches
from pocketmq.client.routes.route import TopicRoute
from pocketmq.client.selector.detector import Detector
from pocketmq.client.selector.pipeline import PublishQueues, QueueSelector, Tries
from pocketmq.client.selector.switches import Switches
from pocketmq.limited_log import LimitedLog
from pocketmq.message import properties as names
from pocketmq.message.message import MessageQueue
from pocketmq.message.record import decode
from pocketmq.message.record_layout import RecordError
from pocketmq.message.retry_topic import topics_of
from pocketmq.proxy.config import ProxyConfig
from pocketmq.proxy.port.broker_port import (
    ASKED_HEADERS,
    REQUEST_TIMEOUT,
    Answer,
    Asked,
    Choice,
    Registration,
)
from pocketmq.proxy.port.queue_choice import queue_of_group
from pocketmq.remoting.bodies.heartbeat import ConsumerData
from pocketmq.remoting.bodies.route import TopicRouteData
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingConnectError, RemotingError, TopicNotExist
from pocketmq.remoting.headers.base import Header
from pocketmq.remoting.headers.client import UnregisterClientRequestHeader
from pocketmq.remoting.headers.offset import GetMaxOffsetRequestHeader
from pocketmq.remoting.headers.transaction import CheckTransactionStateRequestHeader
from pocketmq.remoting.serving.request import Caller, Request, Response, owner_of
from pocketmq.remoting.shares import Shares

log = logging.getLogger("pocketmq.proxy")

#: Codes of a broker that cannot serve now, which isolate it. Other errors concern the request, not
#: the broker.
TROUBLED: Final = frozenset(
    {
        int(ResponseCode.SYSTEM_BUSY),
        int(ResponseCode.FLUSH_DISK_TIMEOUT),
        int(ResponseCode.SLAVE_NOT_AVAILABLE),
        int(ResponseCode.FLUSH_SLAVE_TIMEOUT),
        int(ResponseCode.SERVICE_NOT_AVAILABLE),
    }
)

#: The most topics whose routes are cached; those of further topics are queried each time.
MAX_TOPICS: Final = 100_000
#: The most groups of all clients of one user (without authentication: one address) that are
#: reported to brokers, which keep 20,000 of the whole proxy. Each client counts.
MAX_GROUPS_OF_USER: Final = 5_000


def selector_for(config: ProxyConfig) -> QueueSelector:
    """Return the selector for a proxy's settings."""
    switches = Switches(
        send_latency_enable=config.send_latency_enable,
        start_detector_enable=config.start_detector_enable,
        detect_interval=config.detect_interval,
        detect_timeout=config.detect_timeout,
    )
    return QueueSelector(monotonic, switches=switches)


class RemotePort:
    """The brokers that a name server knows.

    `instance` is not started. `selector` has the switches of RIP-63, which the name server's
    key-value table overrides while the proxy runs (`pocketmq.client.selector.switches`).
    """

    local = False

    def __init__(self, instance: ClientInstance, selector: QueueSelector | None = None) -> None:
        self.instance = instance
        self.selector = selector or QueueSelector(monotonic)
        self._routes = instance.routes
        self._log = LimitedLog(log)
        self._links: dict[_RemoteLink, None] = {}
        # By group its members, with the owner for whom each is counted.
        self._by_group: dict[tuple[str, str], dict[_RemoteLink, str]] = {}
        self._counts = Shares()
        self._changed = False
        self._announcing: asyncio.Task[None] | None = None
        self._detector = Detector(
            self.selector, self._routes.masters, self._probe, self._routes.poll
        )
        instance.with_route_poll(RemoteSwitches(instance.name_servers, self.selector).read)
        dispatcher = instance.dispatcher
        dispatcher.register(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, _ignored)
        for code, header in ASKED_HEADERS.items():
            check = code == RequestCode.CHECK_TRANSACTION_STATE
            dispatcher.register(code, self._check if check else self._asked_of_consumer, header)

    async def start(self) -> None:
        """Start. Raises NoNameServer."""
        await self.instance.start()
        self.instance.keep(self._detector.run, "detector")

    async def stop(self) -> None:
        """Stop, and close all connections."""
        await self.instance.shutdown()

    def open(
        self, client_id: str, language: str, peer: tuple[str, int], asked: Asked
    ) -> _RemoteLink:
        """Return a link for a client."""
        link = _RemoteLink(self, asked, peer[0])
        self._links[link] = None
        return link

    async def route(self, topic: str) -> TopicRouteData:
        """Return the route of a topic. Raises TopicNotExist, RemotingError."""
        route = self._routes.known(topic)
        if route is None or route.provisional:
            route = await self._routes.for_subscribe(topic)
            if route is None or len(self._routes.topics) > MAX_TOPICS:
                self._routes.unwatch(topic)
            if route is None:
                raise TopicNotExist(
                    f"CODE: 17  DESC: No topic route info in name server for the topic: {topic}"
                )
        return route.data

    def choose(self, topic: str, route: TopicRouteData, key: str | None) -> Choice | None:
        """Choose a queue: by the key, or by the state of the brokers."""
        known = self._routes.known(topic)
        if known is None or known.data is not route:
            known = TopicRoute(topic, route)
        return self.choose_from(topic, known.publish, key)

    def choose_from(self, topic: str, queues: PublishQueues, key: str | None) -> Choice | None:
        """Choose one of a topic's queues."""
        if not queues.queues:
            return None
        if key is not None:
            return _Fixed(self, topic, queue_of_group(queues.queues, key))
        queue = self.selector.select(queues)
        return None if queue is None else _Chosen(self, topic, queues, queue, None)

    def brokers(self) -> Sequence[str]:
        """Return the names of all brokers of the routes."""
        return tuple(self._routes.brokers)

    def doubt(self, topic: str) -> None:
        """Query a topic's route again soon."""
        self._routes.doubt(topic, monotonic())

    # --- for links --------------------------------------------------------------------------------

    async def request(
        self, broker: str, code: int, header: Header | None, body: bytes, timeout: float
    ) -> Answer:
        """Ask a broker."""
        try:
            address = self._routes.master(broker)
        except BrokerNotFound:
            raise RemotingConnectError(f"no route names a master of broker {broker}") from None
        answer = await self.instance.pool.request(address, code, header, body, timeout=timeout)
        return Answer(answer.code, answer.remark, answer.ext_fields, bytes(answer.body))

    def groups_changed(self, link: _RemoteLink, before: Registration, now: Registration) -> None:
        """Record the groups of a link."""
        old = _groups(before)
        new = _groups(now)
        for group in old - new:
            members = self._by_group.get(group)
            if members is None:
                continue
            owner = members.pop(link, None)
            if owner is not None:
                self._counts.remove(owner)
            if not members:
                del self._by_group[group]
                self._leave(*group)
        for group in new:
            if link in self._by_group.get(group, ()):
                continue
            if self._counts.of(link.owner) >= MAX_GROUPS_OF_USER:
                self._log.warning(
                    "group %s is not registered at brokers: %s already has clients in %d groups",
                    group[1],
                    link.owner,
                    MAX_GROUPS_OF_USER,
                )
                break
            self._counts.add(link.owner)
            self._by_group.setdefault(group, {})[link] = link.owner
            kind, name = group
            if kind == "producer":
                self.instance.heartbeat.add_producer(name)
            else:
                self.instance.heartbeat.add_consumer(name, self._describe(name))
        if new - old:
            self._announce()

    def _announce(self) -> None:
        """Send heartbeats soon. Each has the groups of all clients, so changes while they are in
        flight go into the next ones."""
        self._changed = True
        if self._announcing is None or self._announcing.done():
            self._announcing = self.instance.spawn(self._send_heartbeats(), "heartbeat")

    async def _send_heartbeats(self) -> None:
        while self._changed:
            self._changed = False
            await self.instance.heartbeat.send_all()

    def forget(self, link: _RemoteLink) -> None:
        """Remove a link."""
        self.groups_changed(link, link.registration, Registration())
        self._links.pop(link, None)

    def _leave(self, kind: str, group: str) -> None:
        heartbeat = self.instance.heartbeat
        if kind == "producer":
            heartbeat.remove_producer(group)
            header = UnregisterClientRequestHeader(
                client_id=self.instance.client_id, producer_group=group
            )
        else:
            heartbeat.remove_consumer(group)
            header = UnregisterClientRequestHeader(
                client_id=self.instance.client_id, consumer_group=group
            )
        for address in self.instance.pool.addresses:
            if self._routes.broker_at(address) is not None and self.instance.running:
                self.instance.spawn(self._unregister(address, header), "unregister")

    async def _unregister(self, address: str, header: Header) -> None:
        try:
            await self.instance.pool.request(address, RequestCode.UNREGISTER_CLIENT, header)
        except RemotingError as error:
            log.debug("unregistering at %s failed: %s", address, error)

    def _describe(self, group: str) -> Callable[[], ConsumerData]:
        def describe() -> ConsumerData:
            for link in self._by_group.get(("consumer", group), ()):
                for consumer in link.registration.consumers:
                    if consumer.group_name == group:
                        return consumer
            return ConsumerData(group_name=group, consume_type="CONSUME_POP")

        return describe

    # --- what brokers ask -------------------------------------------------------------------------

    def _check(self, request: Request[CheckTransactionStateRequestHeader]) -> None:
        """Handle a broker's check of a transaction."""
        try:
            record = decode(request.body)
        except RecordError as error:
            self._log.warning("a half message of %s cannot be read: %s", request.connection, error)
            return
        group = record.properties.get(names.PGROUP, "")
        topic = record.properties.get(names.REAL_TOPIC) or record.topic
        link = self._member(("producer", group), lambda caller: caller.may_publish(topic))
        if link is None:
            self._log.warning(
                "producer group %s: cannot check a transaction: no connected client may publish to "
                "topic %s",
                group,
                topic,
            )
            return
        if request.header.bname is None:
            address = "{}:{}".format(*request.connection.peer)
            request.header.bname = self._routes.broker_at(address)
        self.instance.spawn(self._guarded(link, request), "transaction check")

    async def _guarded(self, link: _RemoteLink, request: Request[Any]) -> None:
        try:
            await link.asked(request)
        except RemotingError as error:
            self._log.warning("request %d of a broker failed: %s", request.code, error)

    async def _asked_of_consumer(self, request: Request[Any]) -> Response | None:
        group = request.header.consumer_group
        topics: tuple[str, ...] = ()
        if request.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            try:
                topics = topics_of(decode(request.body).topic, group)
            except RecordError as error:
                return Response(ResponseCode.SYSTEM_ERROR, f"the body is not a message: {error}")
        link = self._member(("consumer", group), lambda caller: caller.may_consume(group, *topics))
        if link is None:
            return Response(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer Group <{group}> not exist in this consumer",
            )
        return await link.asked(request)

    def _member(self, group: tuple[str, str], may: Callable[[Caller], bool]) -> _RemoteLink | None:
        """Return a client of the group whose user may see the request, in round-robin order."""
        members = self._by_group.get(group, {})
        for link in members:
            if link.caller is None or may(link.caller):
                members[link] = members.pop(link)
                return link
        return None

    async def _probe(self, address: str, timeout: float) -> bool:
        header = GetMaxOffsetRequestHeader(topic=next(iter(self._routes.topics), ""), queue_id=0)
        try:
            await self.instance.pool.request(
                address, RequestCode.GET_MAX_OFFSET, header, timeout=timeout
            )
        except RemotingError:
            return False
        return True


class _RemoteLink:
    """One client; see `pocketmq.proxy.port.broker_port.Link`."""

    def __init__(self, port: RemotePort, asked: Asked, host: str) -> None:
        self._port = port
        self._host = host
        self.asked = asked
        self.caller: Caller | None = None
        self.registration = Registration()

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
        return asyncio.ensure_future(self._port.request(broker, code, header, body, timeout))

    def withdraw(self, answer: asyncio.Future[Answer]) -> bool:
        """Return False: the request is already in flight."""
        return False

    @property
    def owner(self) -> str:
        """The owner of the client: a user, or without authentication an address."""
        return owner_of(self.caller, self._host)

    async def register(self, registration: Registration) -> None:
        """Report the client's groups to the brokers with the proxy's next heartbeats."""
        before, self.registration = self.registration, registration
        self._port.groups_changed(self, before, registration)

    def close(self) -> None:
        """Remove the client."""
        self._port.forget(self)


class _Fixed:
    """The queue of a message group: it is fixed, but the results of sends are reported."""

    __slots__ = ("_began", "_item", "_port", "_topic", "elsewhere", "queue")

    def __init__(self, port: RemotePort, topic: str, queue: MessageQueue) -> None:
        self.queue = queue
        self.elsewhere = False
        self._topic = topic
        self._port = port
        self._began = port.selector.clock()
        self._item = port.selector.tolerance.began(queue.broker_name, self._began)

    def ended(self, error: BaseException | None, code: int) -> None:
        """Report the result to the selector."""
        self._item.in_flight -= 1
        selector = self._port.selector
        name = self.queue.broker_name
        elapsed = selector.clock() - self._began
        if error is not None:
            if is_silence(error):
                selector.silent(name, elapsed)
                self._port.doubt(self._topic)
        elif code in TROUBLED:
            selector.refused(name, elapsed)
            # This is the answer of a slave: the route may be out of date.
            self._port.doubt(self._topic)
        else:
            selector.answered(name, elapsed)

    def again(self) -> Choice | None:
        """Return None: the queue is fixed."""
        return None


class _Chosen(_Fixed):
    """A queue chosen by the selector, which may be replaced by another."""

    __slots__ = ("_queues", "_tries")

    def __init__(
        self,
        port: RemotePort,
        topic: str,
        queues: PublishQueues,
        queue: MessageQueue,
        tries: Tries | None,
    ) -> None:
        super().__init__(port, topic, queue)
        self.elsewhere = queues.broker_count > 1
        self._queues = queues
        self._tries = tries

    def again(self) -> Choice | None:
        """Choose a queue on another broker."""
        tries = self._tries or Tries()
        tries.failed(self.queue)
        queue = self._port.selector.select(self._queues, tries)
        if queue is None or queue.broker_name in tries.failed_brokers:
            return None
        return _Chosen(self._port, self._topic, self._queues, queue, tries)


def _groups(registration: Registration) -> set[tuple[str, str]]:
    return {("producer", name) for name in registration.producers} | {
        ("consumer", consumer.group_name) for consumer in registration.consumers
    }


def _ignored(request: Request[Any]) -> None:
    """Consumers that pop need no rebalancing."""
