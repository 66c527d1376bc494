"""Sharing the queues of a topic among the clients of a group (AllocateMessageQueueAveragely).

Every client computes the same division from the same two sorted lists, so no server decides. A
broker tells the clients of a group when one joins or leaves (NOTIFY_CONSUMER_IDS_CHANGED); apart
from that each looks every 20 s. While two of them see different lists, a queue may be read by both
or by none: delivery is at least once. Spec 6.1, 6.6.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Sequence

from client.errors import NoRouteInfo, RemotingError
from client.instance import ClientInstance
from message.message import MessageQueue
from remoting.bodies.consumer import GetConsumerListByGroupResponseBody
from remoting.codes import RequestCode
from remoting.headers.client import (
    GetConsumerListByGroupRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from remoting.request import Request, Response

__all__ = ["REBALANCE_PERIOD", "Rebalancer", "average"]

log = logging.getLogger(__name__)

REBALANCE_PERIOD = 20.0
#: After a round in which something could not be asked, seconds.
RETRY_PERIOD = 1.0
CONSUMER_LIST_TIMEOUT = 3.0


def average(
    queues: Sequence[MessageQueue], client_ids: Sequence[str], own: str
) -> list[MessageQueue]:
    """The consecutive queues of client `own`: equal shares, the first clients get one more.

    Both lists in any order. No queue for a client that is not in the list.
    """
    ids = sorted(client_ids)
    if own not in ids:
        return []
    index = ids.index(own)
    least, extra = divmod(len(queues), len(ids))
    start = index * least + min(index, extra)
    return sorted(queues)[start : start + least + (index < extra)]


class Rebalancer:
    """Keeps one client's share of each subscribed topic.

    `assign(topic, queues)` is awaited whenever a share was computed, changed or not.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        assign: Callable[[str, Sequence[MessageQueue]], Awaitable[None]],
    ) -> None:
        self._instance = instance
        self._group = group
        self._assign = assign
        self._wake = asyncio.Event()
        self._failing: set[str] = set()
        self.topics: set[str] = set()
        instance.dispatcher.register(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
            self._notified,
            NotifyConsumerIdsChangedRequestHeader,
        )

    def soon(self) -> None:
        """Do a round now."""
        self._wake.set()

    async def run(self) -> None:
        """Rounds for ever; ends by cancellation."""
        while True:
            period = REBALANCE_PERIOD if await self.round() else RETRY_PERIOD
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(period):
                    await self._wake.wait()
            self._wake.clear()

    async def round(self) -> bool:
        """Compute every topic's share; False when some could not be."""
        complete = True
        for topic in sorted(self.topics):
            try:
                await self._assign(topic, await self._share(topic))
                self._failing.discard(topic)
            except RemotingError as error:
                # A topic that does not exist yet and a group that the broker does not know yet
                # are usual, so only the first time is told.
                level = logging.DEBUG if topic in self._failing else logging.INFO
                log.log(level, "topic %s can not be shared out yet: %s", topic, error)
                self._failing.add(topic)
                complete = False
        return complete

    async def _share(self, topic: str) -> list[MessageQueue]:
        route = await self._instance.routes.for_subscribe(topic)
        if route is None:
            raise NoRouteInfo(topic)
        brokers = sorted(route.addresses())
        if not brokers:
            raise NoRouteInfo(topic, "no broker")
        # Any broker of the topic knows every client of the group: all heartbeat to all.
        broker = random.choice(brokers)
        answer = await self._instance.request(
            self._instance.routes.address(broker),
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            GetConsumerListByGroupRequestHeader(consumer_group=self._group),
            timeout=CONSUMER_LIST_TIMEOUT,
            broker=broker,
        )
        ids = GetConsumerListByGroupResponseBody.decode(answer.body).consumer_id_list
        return average(route.subscribe, ids, self._instance.client_id)

    def _notified(self, request: Request[NotifyConsumerIdsChangedRequestHeader]) -> Response | None:
        if request.header.consumer_group == self._group:
            self.soon()
        return None
