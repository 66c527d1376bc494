"""The topics of a push consumer, each with its expression and handler, and the retry topic."""

from __future__ import annotations

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.dispatch.handlers import AnyHandler
from pocketmq.client.consumer.expression import EVERYTHING, Expression
from pocketmq.client.consumer.rebalance.assignment import Assignment
from pocketmq.client.consumer.rebalance.queue_ownership import QueueOwnership
from pocketmq.client.consumer.rebalance.rebalance import Rebalancer
from pocketmq.client.consumer.router import already_subscribed
from pocketmq.client.consumer.subscription import Kind
from pocketmq.client.instance import ClientInstance
from pocketmq.client.offsets import Position


class PushSubscriptions:
    """The subscriptions of one consumer, by the application's topic names.

    `retry_topic` is None in broadcast mode, in which every client reads all queues and nothing is
    redelivered.
    """

    def __init__(
        self,
        instance: ClientInstance,
        handlers: dict[str, AnyHandler],
        assignment: Assignment[ConsumedMessage],
        rebalancer: Rebalancer,
        ownership: QueueOwnership,
        retry_topic: str | None,
    ) -> None:
        self._instance = instance
        self._expressions: dict[str, Expression] = {}
        self._handlers = handlers
        self._assignment = assignment
        self._rebalancer = rebalancer
        self._ownership = ownership
        self._retry_topic = retry_topic

    def add(self, topic: str, expression: Expression, handler: AnyHandler | None) -> None:
        """Add a topic. Raises ValueError if it is already subscribed to in a different way."""
        old = self._expressions.get(topic)
        if old is not None:
            if old == expression and self._handlers.get(topic) == handler:
                return
            raise ValueError(already_subscribed(topic))
        self._expressions[topic] = expression
        if handler is not None:
            self._handlers[topic] = handler

    @property
    def has_topics(self) -> bool:
        """Whether there is any topic."""
        return bool(self._expressions)

    def check(self) -> None:
        """Raise ValueError if only some of the topics have handlers."""
        missing = self._expressions.keys() - self._handlers.keys()
        if self._handlers and missing:
            topics = ", ".join(sorted(missing))
            raise ValueError(f"no handler for {topics}, while other topics have one")

    async def begin_all(self, timeout: float) -> None:
        """Begin to read all topics; raises as `begin`, which has `timeout` seconds for each."""
        for topic in tuple(self._expressions):  # a copy: `subscribe` may add topics
            await self.begin(topic, timeout)
        if self._retry_topic is not None:
            await self._begin(self._retry_topic, EVERYTHING, "begin", timeout)

    async def begin(self, topic: str, timeout: float) -> None:
        """Begin to read one topic. Raises InvalidName, NoNameServer if none answers within
        `timeout` seconds, and a broker's error for a condition that it cannot evaluate."""
        wire_topic = self._instance.namespace.wrap(topic)
        await self._begin(wire_topic, self._expressions[topic], None, timeout)

    async def _begin(
        self, topic: str, expression: Expression, start: Position | None, timeout: float
    ) -> None:
        shared = self._retry_topic is not None
        kind = Kind.SHARED if shared else Kind.FOLLOWED
        route = await self._assignment.begin(topic, kind, expression, start, timeout=timeout)
        if shared:
            self._rebalancer.topics.add(topic)
        elif route is not None:
            self._assignment.add_all(route.subscribe)
            await self._assignment.start_all()

    def forget(self, topic: str) -> None:
        """Remove a topic for which `begin` failed."""
        if self._instance.namespace.wrap(topic) not in self._assignment.subscriptions:
            self._expressions.pop(topic, None)
            self._handlers.pop(topic, None)

    async def end(self, topic: str) -> None:
        """Stop reading a topic. Its handler is kept for messages that were already received, and
        for redelivered ones."""
        wire_topic = self._instance.namespace.wrap(topic)
        self._rebalancer.topics.discard(wire_topic)
        self._expressions.pop(topic, None)
        try:
            await self._ownership.revoke(self._assignment.shared_queues(wire_topic))
        finally:
            # Before the commit, which may be cancelled; and during it, a pending rebalance would
            # assign queues of the topic.
            dropped = self._ownership.drop(self._assignment.of_topic(wire_topic))
            self._assignment.end(wire_topic)
        await self._ownership.let_go(dropped)
