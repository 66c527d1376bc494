"""Topic routes of a client: queues to publish to, queues to read, broker addresses.

The table requests a route when its topic is first used, then every 30 s for every topic in use. For
a topic that the name server does not know, sends use the route of the template topic TBW102, and
the broker creates the topic with the first send; a consumer waits until the topic exists.
Reference: MQClientInstance.updateTopicRouteInfoFromNameServer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from pocketmq.client.backoff import backoff, jittered
from pocketmq.client.errors import (
    SHUT_DOWN,
    BrokerNotFound,
    NoNameServer,
    NoRouteInfo,
    NotRunning,
    RemotingError,
    RouteUnavailable,
)
from pocketmq.client.log_fields import fields
from pocketmq.client.routes.name_servers import NAMESRV_TIMEOUT, NameServers
from pocketmq.client.selector.pipeline import PublishQueues
from pocketmq.limited_log import LimitedLog
from pocketmq.message.limits import TBW102
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.route import QueueData, TopicRouteData
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.namesrv import GetRouteInfoRequestHeader
from pocketmq.remoting.held_error import HeldError

log = logging.getLogger(__name__)

MASTER_ID = 0
PERM_READ = 4
PERM_WRITE = 2
#: Concurrent requests of one poll.
POLL_CONCURRENCY = 32
#: After failed sends, a route is requested again at most once in this time, seconds.
DOUBT_INTERVAL = 1.0
#: Pauses before a missing route is requested again: the first and the longest, seconds.
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
#: With less time than this left, no further request is made, seconds.
LEAST_WAIT = 0.02


def publish_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Return the queues to send to, in the order of broker names and queue ids: those of
    orderTopicConf, else of every writable broker with a master."""
    if route.order_topic_conf:
        pairs = (part.rpartition(":") for part in route.order_topic_conf.split(";"))
        return [
            MessageQueue(topic, broker, queue_id)
            for broker, _, count in pairs
            if count.isdecimal()
            for queue_id in range(int(count))
        ]
    masters = {b.broker_name for b in route.broker_datas if MASTER_ID in b.broker_addrs}
    return [
        MessageQueue(topic, data.broker_name, queue_id)
        for data in _by_broker(route.queue_datas)
        if data.perm & PERM_WRITE and data.broker_name in masters
        for queue_id in range(data.write_queue_nums)
    ]


def subscribe_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Return the queues to read: those of every readable broker."""
    return [
        MessageQueue(topic, data.broker_name, queue_id)
        for data in _by_broker(route.queue_datas)
        if data.perm & PERM_READ
        for queue_id in range(data.read_queue_nums)
    ]


def _by_broker(queue_datas: Iterable[QueueData]) -> list[QueueData]:
    return sorted(queue_datas, key=lambda data: data.broker_name)


class TopicRoute:
    """One topic's route. `provisional`: made from TBW102 because the topic does not exist yet."""

    __slots__ = ("data", "provisional", "publish", "subscribe", "topic")

    def __init__(self, topic: str, data: TopicRouteData, *, provisional: bool = False) -> None:
        self.topic = topic
        self.data = data
        self.provisional = provisional
        self.publish = PublishQueues(publish_queues(topic, data))
        self.subscribe = () if provisional else tuple(subscribe_queues(topic, data))

    def addresses(self) -> dict[str, dict[int, str]]:
        return {b.broker_name: dict(b.broker_addrs) for b in self.data.broker_datas}

    def same_as(self, other: TopicRoute) -> bool:
        return self.provisional == other.provisional and self.data == other.data


class RouteTable:
    """All routes that a client uses.

    `spawn` starts a background task that the client's shutdown cancels. `template` and
    `template_queues` are the producer's createTopicKey and defaultTopicQueueNums.
    """

    def __init__(
        self,
        name_servers: NameServers,
        spawn: Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]],
        *,
        template: str = TBW102,
        template_queues: int = 4,
    ) -> None:
        self._log = LimitedLog(log)
        self._name_servers = name_servers
        self._spawn = spawn
        self._template = template
        self._template_queues = template_queues
        self._routes: dict[str, TopicRoute] = {}
        self._published: set[str] = set()
        self._watched: set[str] = set()
        self._asking: dict[tuple[str, bool], asyncio.Task[TopicRoute | None]] = {}
        self._doubted_at: dict[str, float] = {}
        #: For topics that senders wait for: the number of requests that found no route, and the
        #: pause before the next one.
        self._misses: dict[str, int] = {}
        self._asking_later: dict[str, asyncio.Task[None]] = {}
        self._brokers: dict[str, dict[int, str]] = {}
        self._listeners: list[Callable[[TopicRoute], None]] = []

    @property
    def topics(self) -> set[str]:
        """Topics that are polled."""
        return self._published | self._watched

    @property
    def brokers(self) -> Mapping[str, Mapping[int, str]]:
        """Broker name → broker id → address, of all routes."""
        return self._brokers

    def broker_at(self, address: str) -> str | None:
        """Return the name of the broker at an address; None for any other server."""
        brokers = self._brokers.items()
        return next((name for name, addresses in brokers if address in addresses.values()), None)

    def masters(self) -> dict[str, str | None]:
        """Return the master's address for each broker of the routes; None while it has none."""
        return {name: addresses.get(MASTER_ID) for name, addresses in self._brokers.items()}

    def on_change(self, listener: Callable[[TopicRoute], None]) -> None:
        """Call `listener` with each route that is new or differs from the last."""
        self._listeners.append(listener)

    def known(self, topic: str) -> TopicRoute | None:
        """Return the last known route, without a request."""
        return self._routes.get(topic)

    def writable(self, topic: str) -> TopicRoute | None:
        """Return the route for sends if it is known and has queues, which is the usual case."""
        route = self._routes.get(topic)
        if route is None or not route.publish.queues or topic not in self._published:
            return None
        return route

    def unwatch(self, topic: str) -> None:
        """Stop polling for a topic that no consumer reads any more."""
        self._watched.discard(topic)

    def master(self, broker_name: str) -> str:
        """Return the master's address; raises BrokerNotFound."""
        addresses = self._brokers.get(broker_name)
        address = addresses.get(MASTER_ID) if addresses is not None else None
        if address is None:
            raise BrokerNotFound(broker_name)
        return address

    def has_master(self, broker_name: str) -> bool:
        """Return whether the routes contain the master, not only slaves."""
        return MASTER_ID in self._brokers.get(broker_name, ())

    def address(self, broker_name: str, broker_id: int = MASTER_ID) -> str:
        """Return the address of this replica, else of any; raises BrokerNotFound."""
        addresses = self._brokers.get(broker_name)
        if not addresses:
            raise BrokerNotFound(broker_name)
        found = addresses.get(broker_id)
        return found if found is not None else addresses[min(addresses)]

    async def for_publish(self, topic: str, *, timeout: float = NAMESRV_TIMEOUT) -> TopicRoute:
        """Return the route for sends, requested on first use; for an unknown topic, the template's.

        Raises NoRouteInfo if no route has a writable queue, NoNameServer if no name server answers
        within `timeout` seconds, NotRunning at a shutdown.
        """
        route = self._routes.get(topic)
        if route is not None and route.publish.queues:
            self._published.add(topic)
            return route
        route = await self._ask(topic, True, timeout)
        if route is None:
            raise NoRouteInfo(
                topic,
                "the name server does not know it, and lists no broker that creates topics "
                f"(autoCreateTopicEnable, {self._template}); create it before you send to it",
            )
        if not route.publish.queues:
            raise RouteUnavailable(
                topic, "none may be written, or their broker has no master", exists=True
            )
        self._published.add(topic)
        return route

    async def wait_for_publish(self, topic: str, *, timeout: float) -> TopicRoute:
        """Do as `for_publish`, but wait up to `timeout` seconds for a route.

        A topic has no route while the name server, or the topic's first broker, is starting. All
        callers that wait for a topic share its requests, which are made with growing pauses.

        Raises:
            NoRouteInfo, NoNameServer: the error of the last request within `timeout`.
            NotRunning: the client was shut down.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        last: HeldError[NoRouteInfo | NoNameServer] | None = None
        while True:
            try:
                return await self.for_publish(topic, timeout=max(deadline - loop.time(), 0.0))
            except (NoRouteInfo, NoNameServer) as error:
                left = deadline - loop.time()
                if left <= 0 and isinstance(error, NoNameServer):
                    # The deadline cut off this request: what came before it says more.
                    if last is not None:
                        raise last.take() from None
                    why = f"no name server answered within {timeout:.3g} s"
                    raise RouteUnavailable(topic, why) from error
                if left < LEAST_WAIT or not error.retriable:
                    raise
                if last is None and topic not in self._misses:
                    log.warning(
                        "waiting up to %.1f s for a route of topic %s: %s",
                        left,
                        topic,
                        error,
                        extra=fields(error, topic=topic),
                    )
                last = HeldError(error)
                # Make the last request some time before the deadline, so that it can be answered.
                later = self._later(topic)
                await asyncio.wait((later,), timeout=max(left / 2, LEAST_WAIT))
                if later.cancelled():
                    raise NotRunning("client", SHUT_DOWN) from None

    def _later(self, topic: str) -> asyncio.Task[None]:
        """Return the task that ends when it is time for the next request."""
        task = self._asking_later.get(topic)
        if task is None:
            misses = self._misses[topic] = self._misses.get(topic, 0) + 1
            pause = jittered(backoff(FIRST_PAUSE, LONGEST_PAUSE, misses))
            task = self._asking_later[topic] = self._spawn(
                asyncio.sleep(pause), f"waiting for a route of {topic}"
            )
            task.add_done_callback(lambda _: self._asking_later.pop(topic, None))
        return task

    async def for_subscribe(
        self, topic: str, *, timeout: float = NAMESRV_TIMEOUT
    ) -> TopicRoute | None:
        """Return the route for reading, None while the topic does not exist; poll from now on.

        Raises NoNameServer if no name server answers within `timeout` seconds.
        """
        self._watched.add(topic)
        route = self._routes.get(topic)
        if route is not None and not route.provisional:
            return route
        route = await self._ask(topic, False, timeout)
        return None if route is None or route.provisional else route

    async def refresh(self, topic: str, *, timeout: float = NAMESRV_TIMEOUT) -> TopicRoute | None:
        """Request the route now; return None if the name server does not know the topic."""
        return await self._ask(topic, topic in self._published, timeout)

    def learn(self, topic: str, data: TopicRouteData) -> TopicRoute:
        """Store a route that a name server has just returned for an existing topic."""
        return self._learn(TopicRoute(topic, data))

    def doubt(self, topic: str, now: float) -> None:
        """Request the route again in the background after a send or pull by it failed, at most once
        a second (`now`: clock seconds)."""
        if now - self._doubted_at.get(topic, float("-inf")) >= DOUBT_INTERVAL:
            self._doubted_at[topic] = now
            self._asking_task(topic, topic in self._published)

    async def poll(self) -> None:
        """Request the routes of all topics in use; then forget the others, and brokers without a
        route."""
        gate = asyncio.Semaphore(POLL_CONCURRENCY)

        async def ask(topic: str) -> None:
            async with gate:
                try:
                    await self.refresh(topic)
                except NoNameServer as error:
                    # NameServers logs one warning for all topics.
                    log.debug("topic %s: the route could not be requested: %s", topic, error)
                except RemotingError as error:
                    self._log.warning(
                        "topic %s: the route could not be requested: %s",
                        topic,
                        error,
                        extra=fields(error, topic=topic),
                    )

        await asyncio.gather(*(ask(topic) for topic in self.topics))
        for table in (self._routes, self._doubted_at, self._misses):
            for topic in table.keys() - self.topics:
                del table[topic]
        self._forget_brokers()

    async def _ask(self, topic: str, create: bool, timeout: float) -> TopicRoute | None:
        # All callers that want the same route share one request; cancelling one of them does not
        # cancel it.
        task = self._asking_task(topic, create)
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(task)
        except TimeoutError:
            raise NoNameServer(f"no name server answered within {timeout:.3g} s") from None
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if task.cancelled() and not (current and current.cancelling()):
                raise NotRunning("client", SHUT_DOWN) from None
            raise

    def _asking_task(self, topic: str, create: bool) -> asyncio.Task[TopicRoute | None]:
        key = (topic, create)
        task = self._asking.get(key)
        if task is None:
            task = self._spawn(self._fetch(topic, create), f"route of {topic}")
            self._asking[key] = task
            task.add_done_callback(lambda done: self._asked(key, done))
        return task

    def _asked(self, key: tuple[str, bool], task: asyncio.Task[TopicRoute | None]) -> None:
        self._asking.pop(key, None)
        # Waiters get the error; after a background request nobody else would retrieve it.
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("route of topic %s: %s", key[0], error)

    async def _fetch(self, topic: str, create: bool) -> TopicRoute | None:
        data = await self._request(topic)
        provisional = False
        if data is None and create:
            provisional = True
            data = await self._request(self._template)
            if data is not None:
                for queue_data in data.queue_datas:
                    count = min(self._template_queues, queue_data.read_queue_nums)
                    queue_data.read_queue_nums = queue_data.write_queue_nums = count
        if data is None:
            # The last known route stays in use: a name server that has just started has no routes
            # yet, and a broker refuses requests for a topic that was deleted.
            return self._routes.get(topic)
        return self._learn(TopicRoute(topic, data, provisional=provisional))

    async def _request(self, topic: str) -> TopicRouteData | None:
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        try:
            answer = await self._name_servers.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        except RemotingError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        return TopicRouteData.decode(answer.body)

    def _learn(self, route: TopicRoute) -> TopicRoute:
        old = self._routes.get(route.topic)
        self._brokers.update(route.addresses())
        self._misses.pop(route.topic, None)
        if old is not None and old.same_as(route):
            return old
        if old is not None and route.provisional and not old.provisional:
            return old
        self._routes[route.topic] = route
        log.info(
            "route of topic %s: %d queues to write, %d to read on %s%s",
            route.topic,
            len(route.publish.queues),
            len(route.subscribe),
            sorted(route.addresses()),
            " (topic is created by the first send)" if route.provisional else "",
            extra=fields(topic=route.topic),
        )
        for listener in self._listeners:
            listener(route)
        return route

    def _forget_brokers(self) -> None:
        named = {name for route in self._routes.values() for name in route.addresses()}
        for name in [name for name in self._brokers if name not in named]:
            del self._brokers[name]
            log.info("broker %s is no longer in any route", name, extra=fields(broker=name))
