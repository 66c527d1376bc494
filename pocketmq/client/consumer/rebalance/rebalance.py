"""Rebalancing: divides the queues of a topic among the clients of a group.

Every client computes the same division (`strategies.py`). A broker notifies the clients of a group
when one joins or leaves (NOTIFY_CONSUMER_IDS_CHANGED); in addition, each client checks every 20 s.
While two of them see different lists, a queue may be read by both or by none: delivery is at least
once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from pocketmq.client.consumer.rebalance.strategies import Strategy
from pocketmq.client.errors import (
    BrokerNotFound,
    ClientError,
    NoNameServer,
    NoRouteInfo,
    RemoteSystemError,
    RemotingError,
    is_silence,
)
from pocketmq.client.instance import ClientInstance
from pocketmq.client.log_fields import fields
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.consumer import GetConsumerListByGroupResponseBody
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.client import (
    GetConsumerListByGroupRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from pocketmq.remoting.serving.request import Request, Response

log = logging.getLogger(__name__)

REBALANCE_PERIOD = 20.0
CONSUMER_LIST_TIMEOUT = 3.0
#: Rounds after which a group that no broker has ever known is reported.
PATIENCE = 5
#: How long a broker that left a route is expected back, seconds.
BROKER_PATIENCE = 300.0


class NotInGroup(ClientError):
    """A broker does not list this client in its group, or does not know the group."""

    retriable = True

    def __init__(self, group: str, broker: str, why: str) -> None:
        super().__init__(ResponseCode.CONSUMER_NOT_ONLINE, f"group {group}: {why}", broker)
        self.group = group


class Rebalancer:
    """Keeps one client's share of each subscribed topic.

    `assign(topic, queues)` is awaited whenever a share was computed, even if it did not change. It
    returns whether it could take all of it; if not, another round follows soon. `on_group` is
    called with the error when the group is lost, and with None when it is found again, `on_change`
    when another client may have gained or lost queues.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        strategy: Strategy,
        assign: Callable[[str, Sequence[MessageQueue]], Awaitable[bool]],
        on_group: Callable[[NotInGroup | None], object] | None = None,
        on_change: Callable[[], object] = lambda: None,
        *,
        retry_period: float,
    ) -> None:
        """`retry_period`: pause after a round in which a request failed, seconds."""
        self._instance = instance
        self._group = group
        self._strategy = strategy
        self._assign = assign
        self._on_group = on_group
        self._on_change = on_change
        self._retry_period = retry_period
        self._known = False
        self._lost = False
        self._missing = 0
        #: Topic → broker → when it was last in the topic's route, monotonic seconds.
        self._brokers: dict[str, dict[str, float]] = {}
        self._wake = asyncio.Event()
        #: Set after the first round.
        self.began = asyncio.Event()
        self._failing: set[str] = set()
        self.topics: set[str] = set()
        instance.dispatcher.register(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
            self._notified,
            NotifyConsumerIdsChangedRequestHeader,
        )

    def soon(self) -> None:
        """Start a round now."""
        self._on_change()
        self._wake.set()

    async def run(self) -> None:
        """Run rounds until cancelled."""
        while True:
            period = REBALANCE_PERIOD if await self.round() else self._retry_period
            self.began.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(period):
                    await self._wake.wait()
            self._wake.clear()

    async def round(self) -> bool:
        """Compute the share of every topic; return False if that failed for one."""
        complete = True
        missing: NotInGroup | None = None
        self._failing &= self.topics
        for gone in self._brokers.keys() - self.topics:
            del self._brokers[gone]
        for topic in sorted(self.topics):
            try:
                complete &= await self._assign(topic, await self._share(topic))
                complete &= self._all_brokers_there(topic)
                self._failing.discard(topic)
            except NotInGroup as error:
                missing = error
            except RemotingError as error:
                # A topic often does not exist yet, so this is logged only once. For a topic that
                # was divided before, the outage of the server is logged instead.
                away = is_silence(error) or isinstance(error, BrokerNotFound | NoNameServer)
                known = topic in self._failing or (away and topic in self._brokers)
                level = logging.DEBUG if known else logging.INFO
                told = fields(error, topic=topic, group=self._group)
                log.log(
                    level,
                    "topic %s cannot be divided among the group yet: %s",
                    topic,
                    error,
                    extra=told,
                )
                self._failing.add(topic)
                complete = False
                if is_silence(error):  # perhaps another broker has become the master meanwhile
                    self._instance.routes.doubt(topic, time.monotonic())
            except Exception:
                # The strategy may be part of the application.
                told = fields(topic=topic, group=self._group)
                log.exception(
                    "topic %s cannot be divided among the group: the strategy failed",
                    topic,
                    extra=told,
                )
                complete = False
        if missing is not None:
            await self._rejoin(missing)
        return complete and missing is None

    def _all_brokers_there(self, topic: str) -> bool:
        """Return False for a while after a broker left the topic's route. Most come back soon, and
        their queues should not wait for the next route poll: each round requests the route."""
        route = self._instance.routes.known(topic)
        present = set() if route is None else set(route.addresses())
        now = time.monotonic()
        seen = self._brokers.setdefault(topic, {})
        seen.update(dict.fromkeys(present, now))
        for broker in [broker for broker, at in seen.items() if now - at > BROKER_PATIENCE]:
            del seen[broker]
        if len(seen) > len(present):
            self._instance.routes.doubt(topic, now)
            return False
        return True

    async def _rejoin(self, error: NotInGroup) -> None:
        """Register again, unless this client is shutting down. This is normal until the first
        heartbeat has arrived."""
        if not self._instance.running:
            return
        self._missing += 1
        if not self._lost and (self._known or self._missing >= PATIENCE):
            self._lost = True
            log.warning("%s; registering again", error, extra=fields(error, group=self._group))
            self._tell_group(error)
        await self._instance.heartbeat.send_all()

    def _tell_group(self, error: NotInGroup | None) -> None:
        if self._on_group is not None:
            self._on_group(error)

    async def _share(self, topic: str) -> list[MessageQueue]:
        route = await self._instance.routes.for_subscribe(topic)
        if route is None:
            raise NoRouteInfo(topic)
        brokers = sorted(route.addresses())
        if not brokers:
            raise NoRouteInfo(topic, "no broker")
        # Any broker of the topic knows every client of the group: all clients send heartbeats to
        # all brokers.
        broker = random.choice(brokers)
        try:
            answer = await self._instance.request(
                self._instance.routes.address(broker),
                RequestCode.GET_CONSUMER_LIST_BY_GROUP,
                GetConsumerListByGroupRequestHeader(consumer_group=self._group),
                timeout=CONSUMER_LIST_TIMEOUT,
                broker=broker,
            )
        except RemoteSystemError as error:
            raise NotInGroup(self._group, broker, error.remark or "unknown") from None
        own = self._instance.client_id
        ids = GetConsumerListByGroupResponseBody.decode(answer.body).consumer_id_list
        if own not in ids:
            # The other clients divide all queues, so those of this client are read twice until its
            # next heartbeat arrives. Dropping them until then would be no better.
            raise NotInGroup(self._group, broker, f"does not have {own}")
        self._known = True
        self._missing = 0
        if self._lost:
            self._lost = False
            log.info(
                "group %s: the broker lists this client again",
                self._group,
                extra=fields(group=self._group, broker=broker),
            )
            self._tell_group(None)
        return self._strategy(sorted(route.subscribe), sorted(ids), own)

    def _notified(self, request: Request[NotifyConsumerIdsChangedRequestHeader]) -> Response | None:
        if request.header.consumer_group == self._group:
            self.soon()
        return None
