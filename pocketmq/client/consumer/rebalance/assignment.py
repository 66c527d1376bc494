"""The topics that a consumer reads, and a fetcher for each of its queues.

A queue begins at the group's stored offset, else at the consumer's `start`. A queue that did not
exist when its topic was subscribed to begins at its first message: none is older than the
subscription.
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
from pocketmq.client.routes.name_servers import NAMESRV_TIMEOUT
from pocketmq.client.routes.route import TopicRoute
from pocketmq.client.validation import check_topic_name
from pocketmq.message.limits import RETRY_PREFIX
from pocketmq.message.message import MessageExt, MessageQueue
from pocketmq.remoting.bodies.heartbeat import SubscriptionData

log = logging.getLogger(__name__)

M = TypeVar("M", bound=MessageExt)


class ReadingListener(Protocol):
    """Is informed about the reading of queues."""

    def reading_failed(self, queue: MessageQueue, error: RemotingError, times: int) -> None:
        """Called when a pull has failed `times` times in a row; it is retried."""

    def reading_works(self, queue: MessageQueue, failures: int) -> None:
        """Called when the first pull succeeds, and when one does after `failures` failures."""

    def reading_changed(self, topic: str) -> None:
        """Called when a topic was added or removed."""


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
        """`arrived` is called when the buffer of a queue is no longer empty, `share_again` when a
        missing topic has been created."""
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
        """The process queues of all current queues."""
        return [fetcher.pq for fetcher in self.fetchers.values()]

    @property
    def healthy(self) -> bool:
        """Whether the last pull of any queue succeeded; without queues, whether a name server
        answers."""
        queues = self.queues
        if not queues:
            return self._instance.name_servers.answering
        return not all(pq.failing for pq in queues)

    @property
    def lag(self) -> dict[MessageQueue, int]:
        """The lag of each queue in offsets, with the application's topic names."""
        unwrap = self._instance.namespace.unwrap_queue
        # An atomic copy: any thread may call this.
        lags = [(fetcher.pq.queue, fetcher.pq.lag) for fetcher in list(self.fetchers.values())]
        return {unwrap(queue): lag for queue, lag in lags if lag is not None}

    @property
    def answered_at(self) -> float | None:
        """When a pull was last answered, Unix seconds."""
        answered = [pq.answered_at for pq in self.queues if pq.answered_at is not None]
        return unix_seconds(max(answered)) if answered else None

    async def begin(
        self,
        topic: str,
        kind: Kind,
        expression: Expression,
        start: Position | None = None,
        *,
        timeout: float = NAMESRV_TIMEOUT,
    ) -> TopicRoute | None:
        """Read a topic from now on. Return its route; None if it does not exist: then a rebalance
        follows when it is created.

        Raises InvalidName, NotRunning, NoNameServer if none answers within `timeout` seconds,
        ValueError if the topic is already read in a different way, and a broker's error for a
        SQL92 condition that it cannot evaluate.
        """
        self._instance.check_running()
        check_topic_name(topic)
        route = await self._instance.routes.for_subscribe(topic, timeout=timeout)
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
        """Add a subscription; return False if there is an equal one."""
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
        if not topic.startswith(RETRY_PREFIX):  # the first retry creates a group's retry topic
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
                    # The route table has called route_changed.
                    await self._instance.heartbeat.send_all()
                    self._share_again()
                    return
            except RemotingError as error:
                log.debug("route of topic %s: %s", topic, error)

    def end(self, topic: str) -> list[ProcessQueue[M]]:
        """Stop reading a topic; return the queues that were dropped."""
        self.subscriptions.pop(topic, None)
        self._instance.routes.unwatch(topic)
        self._listener.reading_changed(topic)
        return [self.remove(queue) for queue in self.of_topic(topic)]

    def of_topic(self, topic: str) -> list[MessageQueue]:
        """Return the current queues of a topic."""
        return [queue for queue in self.fetchers if queue.topic == topic]

    def shared_queues(self, topic: str | None = None) -> list[MessageQueue]:
        """Return the current queues of a topic, or of all, that were assigned by rebalancing."""
        return [
            queue
            for queue in self.fetchers
            if (topic is None or queue.topic == topic)
            and (subscription := self.subscriptions.get(queue.topic)) is not None
            and subscription.kind is Kind.SHARED
        ]

    def add_all(self, queues: Iterable[MessageQueue]) -> list[ProcessQueue[M]]:
        """Add queues; new fetchers are not started yet."""
        return [self.add(queue).pq for queue in queues]

    def add(self, queue: MessageQueue) -> QueueFetcher[M]:
        """Add a queue; a new fetcher is not started yet."""
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
        """Drop a queue and its prefetched messages; return the process queue with its offsets."""
        fetcher = self.fetchers.pop(queue)
        fetcher.drop()
        self._puller.forget(queue)
        return fetcher.pq

    async def start_all(self) -> None:
        """Start every fetcher that does not run. First determine their offsets, so that a queue
        that begins at the end includes all messages sent after this call."""
        fresh = [pq for pq in self.queues if pq.next_offset is None]
        try:
            await asyncio.gather(*(self._settle(pq) for pq in fresh))
        finally:
            # Also after a cancellation: assigned queues must be read.
            self._start(self.fetchers.values())

    def _start(self, fetchers: Iterable[QueueFetcher[M]]) -> None:
        if self._instance.running:
            for fetcher in fetchers:
                fetcher.start(self._instance.keep)

    async def _settle(self, pq: ProcessQueue[M]) -> None:
        try:
            offset = await self.first_offset(pq.queue)
        except RemotingError as error:
            self.failed(pq.queue, error, 1)  # the fetcher retries
            return
        if pq.next_offset is None:
            pq.next_offset = offset

    def route_changed(self, route: TopicRoute) -> None:
        """Add new queues of a FOLLOWED topic, and drop those that a broker in the route has lost.

        Queues of a broker that left the route are kept with their offsets: it may come back.
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
        """Commit every offset again. A broker saves offsets only every few seconds: one that was
        killed has lost the last ones, and those of idle queues would not be sent again."""
        for pq in self.queues:
            pq.committed = None

    def undivided_queues(self) -> list[MessageQueue]:
        """Return the known queues of SHARED topics that are not rebalanced yet."""
        routes = [
            self._instance.routes.known(subscription.topic)
            for subscription in self.subscriptions.values()
            if subscription.undivided
        ]
        return [queue for route in routes if route is not None for queue in route.subscribe]

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue a queue at another offset, now or when the first rebalance assigns it."""
        fetcher = self.fetchers.get(queue)
        subscription = self.subscriptions.get(queue.topic)
        if fetcher is not None:
            fetcher.stop()
            fetcher.seek(offset)
            self._start([fetcher])
        elif subscription is not None and subscription.undivided:
            subscription.sought[queue] = offset

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull and deliver nothing from these queues until `resume`."""
        for queue in queues:
            fetcher = self.fetchers[queue]
            fetcher.pq.paused = True
            fetcher.stop()

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Continue with these queues."""
        for queue in queues:
            fetcher = self.fetchers[queue]
            fetcher.pq.paused = False
            if fetcher.pq.buffer:
                self.arrived(fetcher.pq)
            self._start([fetcher])

    def stop(self) -> None:
        """Stop every fetcher."""
        for fetcher in self.fetchers.values():
            fetcher.stop()

    def subscription_data(self) -> list[SubscriptionData]:
        """Return the subscriptions as heartbeats contain them."""
        return [subscription.data() for subscription in self.subscriptions.values()]

    # The interface for fetchers (fetch/fetcher.py, Reader)

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
            # The end moves: the next owner of the queue would miss messages that arrive until then.
            with contextlib.suppress(RemotingError):  # later commits store it too
                await self._store.store(queue, offset)
        return offset

    def failed(self, queue: MessageQueue, error: RemotingError, times: int) -> None:
        self._instance.routes.doubt(queue.topic, time.monotonic())
        self._listener.reading_failed(queue, error, times)
