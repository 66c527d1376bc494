"""What a consumer reads: its topics, and a fetcher for each of their queues that it has.

A queue begins where the group's stored offset says, else at the consumer's `start`. A queue that
did not exist when its topic was subscribed to begins at its first message: none of them is older
than the subscription.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, Protocol, TypeVar

from pocketmq.client.consumer.consumer_options import ConsumerOptions
from pocketmq.client.consumer.expression import Expression
from pocketmq.client.consumer.fetch.fetcher import QueueFetcher
from pocketmq.client.consumer.fetch.process_queue import ProcessQueue
from pocketmq.client.consumer.fetch.pull_limiter import PullLimiter
from pocketmq.client.consumer.fetch.puller import Puller
from pocketmq.client.consumer.offsets.offset_store import OffsetStore
from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.consumer.similar_topics import similar_topics
from pocketmq.client.consumer.subscription import Kind, Subscription, check_expression
from pocketmq.client.errors import RemotingError
from pocketmq.client.instance import ClientInstance
from pocketmq.client.log_fields import fields
from pocketmq.client.offsets import Position, QueueOffsets
from pocketmq.client.parameters import unix_seconds
from pocketmq.client.routes.route import TopicRoute
from pocketmq.client.validation import check_topic_name
from pocketmq.message.limits import RETRY_PREFIX
from pocketmq.message.message import MessageExt, MessageQueue
from pocketmq.remoting.bodies.heartbeat import SubscriptionData

log = logging.getLogger(__name__)

M = TypeVar("M", bound=MessageExt)


class ReadingListener(Protocol):
    """Hears how the reading of queues goes."""

    def reading_failed(self, queue: MessageQueue, error: RemotingError, times: int) -> None:
        """Reading a queue failed, so many times in a row; it is tried again."""

    def reading_works(self, queue: MessageQueue, failures: int) -> None:
        """A queue was read for the first time, or after so many failures in a row."""

    def reading_changed(self, topic: str) -> None:
        """The topic is read from now on, or no more."""


class Assignment(Generic[M]):
    """The subscriptions of one consumer, and the fetchers of its queues."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        puller: Puller[M],
        store: OffsetStore,
        limiter: PullLimiter,
        options: ConsumerOptions,
        arrived: Callable[[ProcessQueue[M]], None],
        listener: ReadingListener,
        share_again: Callable[[], None],
        pauses: Pauses,
    ) -> None:
        """`arrived` is called when the buffer of a queue is not empty any more, `share_again` when
        a topic exists that was missing."""
        self.subscriptions: dict[str, Subscription] = {}
        self.fetchers: dict[MessageQueue, QueueFetcher[M]] = {}
        #: Whether queues that are added are paused.
        self.pause_new = False
        self._instance = instance
        self._group = group
        self._puller = puller
        self._store = store
        self._offsets = QueueOffsets(instance)
        self._limiter = limiter
        self._options = options
        self._share_again = share_again
        self._pauses = pauses
        self._listener = listener
        self.arrived = arrived
        self.answered = listener.reading_works
        instance.routes.on_change(self.route_changed)
        instance.pool.on_disconnected.append(self._connection_lost)

    @property
    def queues(self) -> list[ProcessQueue[M]]:
        """The process queues of all that is read now."""
        return [fetcher.pq for fetcher in self.fetchers.values()]

    @property
    def healthy(self) -> bool:
        """Whether any of the queues can be read; with none, whether a name server answers."""
        queues = self.queues
        if not queues:
            return self._instance.name_servers.answering
        return not all(pq.failing for pq in queues)

    @property
    def lag(self) -> dict[MessageQueue, int]:
        """How many offsets each queue is behind, as the application knows it."""
        unwrap = self._instance.namespace.unwrap_queue
        # A copy in one step: any thread may ask.
        lags = [(fetcher.pq.queue, fetcher.pq.lag) for fetcher in list(self.fetchers.values())]
        return {unwrap(queue): lag for queue, lag in lags if lag is not None}

    @property
    def answered_at(self) -> float | None:
        """When a pull was answered last, Unix seconds."""
        answered = [pq.answered_at for pq in self.queues if pq.answered_at is not None]
        return unix_seconds(max(answered)) if answered else None

    async def begin(
        self, topic: str, kind: Kind, expression: Expression, start: Position | None = None
    ) -> TopicRoute | None:
        """Read this topic from now on. Returns its route; None while it does not exist, and then
        a rebalance follows when it does.

        Raises InvalidName; NotRunning; NoNameServer; ValueError when the topic is read in another
        way; what a broker answers to a SQL92 condition that it cannot evaluate.
        """
        self._instance.check_running()
        check_topic_name(topic)
        route = await self._instance.routes.for_subscribe(topic)
        if route is not None:
            await check_expression(self._instance, self._group, route, expression)
        if self._begin(topic, kind, expression, start, route) and route is None:
            look = partial(self._look_for, self.subscriptions[topic])
            self._instance.keep(look, f"look for {topic}", ends=True)
        return route

    def _begin(
        self,
        topic: str,
        kind: Kind,
        expression: Expression,
        start: Position | None,
        route: TopicRoute | None,
    ) -> bool:
        """False when it is read in this way already."""
        old = self.subscriptions.get(topic)
        if old is not None:
            if old.kind is kind and old.expression == expression:
                return False
            raise ValueError(
                f"topic {topic} is read already ({old.kind.value}, {old.expression.type} "
                f"{old.expression.text!r}): unassign it first"
            )
        existing = set(route.subscribe) if route is not None else set()
        now = time.time_ns() // 1_000_000
        self._listener.reading_changed(topic)
        self.subscriptions[topic] = Subscription(
            topic, kind, expression, now, existing, start, undivided=kind is Kind.SHARED
        )
        return True

    async def _look_for(self, subscription: Subscription) -> None:
        topic = subscription.topic
        if not topic.startswith(RETRY_PREFIX):  # that of a new group comes with its first retry
            near = await similar_topics(self._instance, topic)
            log.warning(
                "topic %s does not exist; the consumer gets no messages from it until it is "
                "created%s",
                self._instance.namespace.unwrap(topic),
                f"; similar topics: {', '.join(near)}" if near else "",
                extra=fields(topic=topic, group=self._group),
            )
        while True:
            await asyncio.sleep(self._pauses.missing_topic)
            if self.subscriptions.get(topic) is not subscription:
                return
            try:
                if await self._instance.routes.for_subscribe(topic) is not None:
                    # The route table has told route_changed.
                    await self._instance.heartbeat.send_all()
                    self._share_again()
                    return
            except RemotingError as error:
                log.debug("route of topic %s: %s", topic, error)

    def end(self, topic: str) -> list[ProcessQueue[M]]:
        """Stop reading this topic; return the queues that were dropped."""
        self.subscriptions.pop(topic, None)
        self._instance.routes.unwatch(topic)
        self._listener.reading_changed(topic)
        return [self.remove(queue) for queue in self.of_topic(topic)]

    def of_topic(self, topic: str) -> list[MessageQueue]:
        """The queues of the topic that are read now."""
        return [queue for queue in self.fetchers if queue.topic == topic]

    def shared_queues(self, topic: str | None = None) -> list[MessageQueue]:
        """Those of them, or of all topics, that are this client's share in the group."""
        return [
            queue
            for queue in self.fetchers
            if (topic is None or queue.topic == topic)
            and (subscription := self.subscriptions.get(queue.topic)) is not None
            and subscription.kind is Kind.SHARED
        ]

    def add_all(self, queues: Iterable[MessageQueue]) -> list[ProcessQueue[M]]:
        """Have these queues read; new fetchers are not started yet."""
        return [self.add(queue).pq for queue in queues]

    def add(self, queue: MessageQueue) -> QueueFetcher[M]:
        """Have the queue read; a new fetcher is not started yet."""
        fetcher = self.fetchers.get(queue)
        if fetcher is None:
            fetcher = self.fetchers[queue] = QueueFetcher(
                ProcessQueue(queue),
                self.subscriptions[queue.topic].expression,
                self._puller,
                self,
                self._limiter,
                self._options.batch,
                self._pauses,
            )
            fetcher.pq.paused = self.pause_new
        return fetcher

    def remove(self, queue: MessageQueue) -> ProcessQueue[M]:
        """Drop the queue: what it had ready is forgotten, its offsets stay in what is returned."""
        fetcher = self.fetchers.pop(queue)
        fetcher.drop()
        self._puller.forget(queue)
        return fetcher.pq

    async def start_all(self) -> None:
        """Begin every fetcher that does not run. First each looks up its offset, so that messages
        sent after this call are not before the end that a queue begins at."""
        fresh = [pq for pq in self.queues if pq.next_offset is None]
        try:
            await asyncio.gather(*(self._settle(pq) for pq in fresh))
        finally:
            # Also when the caller is cancelled: what is assigned is read.
            self._start(self.fetchers.values())

    def _start(self, fetchers: Iterable[QueueFetcher[M]]) -> None:
        if self._instance.running:
            for fetcher in fetchers:
                fetcher.start(self._instance.keep)

    async def _settle(self, pq: ProcessQueue[M]) -> None:
        try:
            offset = await self.first_offset(pq.queue)
        except RemotingError as error:
            self.failed(pq.queue, error, 1)  # the fetcher itself tries again
            return
        if pq.next_offset is None:
            pq.next_offset = offset

    def route_changed(self, route: TopicRoute) -> None:
        """Take up new queues of a followed topic, and drop those that a live broker has lost.

        Queues of a broker that left the route stay: it may come back, and they know where they
        were.
        """
        subscription = self.subscriptions.get(route.topic)
        if subscription is None or subscription.kind is not Kind.FOLLOWED or route.provisional:
            return
        present = set(route.subscribe)
        brokers = route.addresses()
        for queue in self.of_topic(route.topic):
            if queue not in present and queue.broker_name in brokers:
                self.remove(queue)
        self._start([self.add(queue) for queue in route.subscribe])

    def _connection_lost(self, _address: str) -> None:
        """Have every offset committed once more. A broker saves them only every few seconds: one
        that was killed has lost the last ones, and nothing else would send those of idle queues."""
        for pq in self.queues:
            pq.committed = None

    def undivided_queues(self) -> list[MessageQueue]:
        """The queues of the shared topics of which no share has come yet, as far as they exist."""
        routes = [
            self._instance.routes.known(subscription.topic)
            for subscription in self.subscriptions.values()
            if subscription.undivided
        ]
        return [queue for route in routes if route is not None for queue in route.subscribe]

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Have a queue go on at another offset, now or when it comes with the first share."""
        fetcher = self.fetchers.get(queue)
        subscription = self.subscriptions.get(queue.topic)
        if fetcher is not None:
            fetcher.stop()
            fetcher.seek(offset)
            self._start([fetcher])
        elif subscription is not None and subscription.undivided:
            subscription.sought[queue] = offset

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull and hand out nothing of these queues until `resume`."""
        for queue in queues:
            fetcher = self.fetchers[queue]
            fetcher.pq.paused = True
            fetcher.stop()

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with these queues."""
        for queue in queues:
            fetcher = self.fetchers[queue]
            fetcher.pq.paused = False
            if fetcher.pq.buffer:
                self.arrived(fetcher.pq)
            self._start([fetcher])

    def stop(self) -> None:
        """End every fetcher."""
        for fetcher in self.fetchers.values():
            fetcher.stop()

    def subscription_data(self) -> list[SubscriptionData]:
        """As heartbeats tell it."""
        return [subscription.data() for subscription in self.subscriptions.values()]

    # For fetchers (fetch/fetcher.py, Reader)

    async def first_offset(self, queue: MessageQueue) -> int:
        subscription = self.subscriptions.get(queue.topic)
        if subscription is not None and queue in subscription.sought:
            return subscription.sought.pop(queue)
        stored = await self._store.read(queue)
        if stored is not None:
            return stored
        start = self._options.start
        if subscription is not None:
            if subscription.kind is not Kind.FIXED and queue not in subscription.at_first:
                start = "begin"
            elif subscription.start is not None:
                start = subscription.start
        offset = await self._offsets.resolve(queue, start)
        if start == "end" and self._options.commits:
            # The end moves: the next owner of the queue would miss messages that came in between.
            with contextlib.suppress(RemotingError):  # the commits to come say it too
                await self._store.store(queue, offset)
        return offset

    def failed(self, queue: MessageQueue, error: RemotingError, times: int) -> None:
        self._instance.routes.doubt(queue.topic, time.monotonic())
        self._listener.reading_failed(queue, error, times)
