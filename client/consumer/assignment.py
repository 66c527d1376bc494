"""What a pull consumer reads: its topics, the queues of each, and what they have ready.

| kind | a topic's queues are |
|---|---|
| FIXED | those the user named |
| FOLLOWED | all of the topic's route, as it changes |
| SHARED | this client's share of them (client.consumer.rebalance) |

A queue begins where the group's stored offset says, else at the consumer's `start`. A queue that
did not exist when its topic was assigned begins at its first message: none of them is older than
the assignment.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum

import msgspec

from client.consumer.fetcher import FetchBudget, QueueFetcher
from client.consumer.offset_store import RemoteOffsetStore
from client.consumer.puller import Puller
from client.errors import RemotingError
from client.instance import ClientInstance
from client.offsets import Position, QueueOffsets
from client.route import TopicRoute
from message.message import MessageExt, MessageQueue
from message.tags import TagExpression
from remoting.bodies.heartbeat import SubscriptionData

__all__ = ["Assignment", "FetchOptions", "Kind", "Subscription"]


class Kind(Enum):
    """How the queues of a subscription are chosen."""

    FIXED = "fixed"
    FOLLOWED = "followed"
    SHARED = "shared"


class Subscription(msgspec.Struct):
    """A topic that is read. `at_first` holds the queues that existed when it was assigned;
    `version` is that time, ms."""

    topic: str
    kind: Kind
    tags: TagExpression
    version: int
    at_first: set[MessageQueue] = msgspec.field(default_factory=set)

    def data(self) -> SubscriptionData:
        """As heartbeats tell it."""
        return SubscriptionData(
            code_set=sorted(self.tags.codes),
            sub_string=self.tags.text,
            sub_version=self.version,
            tags_set=sorted(self.tags.tags),
            topic=self.topic,
        )


class FetchOptions(msgspec.Struct, frozen=True):
    """`start`: for a group without a stored offset. `batch`: messages in one pull.
    `max_buffered`: messages kept for each queue."""

    start: Position
    batch: int
    max_buffered: int


class Assignment:
    """The fetchers of one consumer, and the messages they have ready."""

    def __init__(
        self,
        instance: ClientInstance,
        puller: Puller,
        store: RemoteOffsetStore,
        offsets: QueueOffsets,
        budget: FetchBudget,
        options: FetchOptions,
        on_error: Callable[[MessageQueue, RemotingError], object] | None = None,
    ) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self.fetchers: dict[MessageQueue, QueueFetcher] = {}
        #: Set while messages are ready, and when those who wait for some should look again.
        self.arrival = asyncio.Event()
        self._instance = instance
        self._puller = puller
        self._store = store
        self._offsets = offsets
        self._budget = budget
        self._options = options
        self._on_error = on_error
        self._ready: deque[QueueFetcher] = deque()
        self._held: set[QueueFetcher] = set()

    def begin(self, topic: str, kind: Kind, tags: TagExpression, route: TopicRoute | None) -> bool:
        """Read this topic from now on; False when it is read in this way already.

        `route` is the topic's present one, None while it does not exist. Raises ValueError when the
        topic is read in another way.
        """
        old = self.subscriptions.get(topic)
        if old is not None:
            if old.kind is kind and old.tags == tags:
                return False
            raise ValueError(
                f"topic {topic} is read already ({old.kind.value}, tags {old.tags.text!r}): "
                "unassign it first"
            )
        existing = set(route.subscribe) if route is not None else set()
        now = time.time_ns() // 1_000_000
        self.subscriptions[topic] = Subscription(topic, kind, tags, now, existing)
        return True

    def end(self, topic: str) -> list[QueueFetcher]:
        """Read this topic no more; returns the fetchers that were removed."""
        self.subscriptions.pop(topic, None)
        self._instance.routes.unwatch(topic)
        return [self.remove(queue) for queue in self.of_topic(topic)]

    def of_topic(self, topic: str) -> list[MessageQueue]:
        """The queues of the topic that are read now."""
        return [queue for queue in self.fetchers if queue.topic == topic]

    def add_all(self, queues: Iterable[MessageQueue]) -> None:
        """Have these queues read; new fetchers are not started yet."""
        for queue in queues:
            self.add(queue)

    def add(self, queue: MessageQueue) -> QueueFetcher:
        """Have the queue read; a new fetcher is not started yet."""
        fetcher = self.fetchers.get(queue)
        if fetcher is None:
            fetcher = self.fetchers[queue] = QueueFetcher(
                queue,
                self.subscriptions[queue.topic].tags,
                self._puller,
                self,
                self._budget,
                max_buffered=self._options.max_buffered,
                batch=self._options.batch,
            )
        return fetcher

    def remove(self, queue: MessageQueue) -> QueueFetcher:
        """Stop reading the queue; what it had ready is dropped, its offsets stay in it."""
        fetcher = self.fetchers.pop(queue)
        fetcher.stop()
        if fetcher.buffer:
            self._ready.remove(fetcher)
        fetcher.rewind()
        self._held.discard(fetcher)
        self._puller.forget(queue)
        return fetcher

    async def start_all(self) -> None:
        """Begin every fetcher that does not run. First each looks up its offset, so that messages
        sent after this call are not before the end that a queue begins at."""
        fresh = [fetcher for fetcher in self.fetchers.values() if fetcher.next_offset is None]
        await asyncio.gather(*(self._settle(fetcher) for fetcher in fresh))
        if self._instance.running:
            for fetcher in self.fetchers.values():
                fetcher.start(self._instance.spawn)

    async def _settle(self, fetcher: QueueFetcher) -> None:
        try:
            offset = await self.first_offset(fetcher.queue)
        except RemotingError as error:
            self.failed(fetcher.queue, error)  # the fetcher itself tries again
            return
        if fetcher.next_offset is None:
            fetcher.next_offset = offset

    def route_changed(self, route: TopicRoute) -> None:
        """Take up new queues of a followed topic, and drop those that a live broker has no more.

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
        for queue in route.subscribe:
            fetcher = self.add(queue)
            if self._instance.running:
                fetcher.start(self._instance.spawn)

    def take(self, count: int) -> list[MessageExt]:
        """Hand out up to `count` messages, from the queues in turn."""
        messages: list[MessageExt] = []
        ready = self._ready
        while ready and len(messages) < count:
            fetcher = ready.popleft()
            messages += fetcher.take(count - len(messages))
            self._held.add(fetcher)
            if fetcher.buffer:
                ready.append(fetcher)
        if not ready:
            self.arrival.clear()
        return messages

    def release(self) -> None:
        """All that was handed out is done."""
        if self._held:
            for fetcher in self._held:
                fetcher.held_at = None
            self._held.clear()

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Have a queue go on at another offset."""
        fetcher = self.fetchers[queue]
        fetcher.stop()
        if fetcher.buffer:
            self._ready.remove(fetcher)
        fetcher.seek(offset)
        self._held.discard(fetcher)
        if not self._ready:
            self.arrival.clear()
        if self._instance.running:
            fetcher.start(self._instance.spawn)

    def stop(self) -> None:
        """End every fetcher, and the wait of everyone who waits for messages."""
        for fetcher in self.fetchers.values():
            fetcher.stop()
        self.arrival.set()

    def subscription_data(self) -> list[SubscriptionData]:
        return [subscription.data() for subscription in self.subscriptions.values()]

    # What fetchers ask (client.consumer.fetcher.Reader)

    async def first_offset(self, queue: MessageQueue) -> int:
        stored = await self._store.read(queue)
        if stored is not None:
            return stored
        subscription = self.subscriptions.get(queue.topic)
        new = (
            subscription is not None
            and subscription.kind is not Kind.FIXED
            and queue not in subscription.at_first
        )
        return await self._offsets.resolve(queue, "begin" if new else self._options.start)

    def arrived(self, fetcher: QueueFetcher) -> None:
        if fetcher not in self._ready:
            self._ready.append(fetcher)
        self.arrival.set()

    def failed(self, queue: MessageQueue, error: RemotingError) -> None:
        self._instance.routes.doubt(queue.topic, time.monotonic())
        if self._on_error is not None:
            self._on_error(queue, error)
