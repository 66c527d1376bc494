"""The topics that a push consumer works on: what PushConsumer offers to add and to remove them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from pocketmq.client.consumer.dispatch.handlers import BatchHandler, Handler, handler_of
from pocketmq.client.consumer.expression import Expression
from pocketmq.client.consumer.push_subscriptions import PushSubscriptions
from pocketmq.client.consumer.rebalance.rebalance import Rebalancer
from pocketmq.client.instance import ClientInstance

__all__ = ["PushTopics"]

H = TypeVar("H", bound=Handler)
B = TypeVar("B", bound=BatchHandler)


class PushTopics:
    """The topics of one push consumer."""

    def __init__(
        self, instance: ClientInstance, wanted: PushSubscriptions, rebalancer: Rebalancer
    ) -> None:
        self._running = False
        self._instance = instance
        self._wanted = wanted
        self._rebalancer = rebalancer

    @overload
    def on(self, topic: str, tags: str = "*", *, sql: str | None = None) -> Callable[[H], H]: ...

    @overload
    def on(
        self, topic: str, tags: str = "*", *, sql: str | None = None, batch: int
    ) -> Callable[[B], B]: ...

    def on(
        self, topic: str, tags: str = "*", *, sql: str | None = None, batch: int | None = None
    ) -> Callable[[Any], Any]:
        """Have the decorated function work on a topic's messages; before `start`.

        `tags`: "*", or "TagA || TagB"; or else `sql`: a SQL92 condition on properties. What the
        function raises has the message delivered again; ReconsumeLater says when. With `batch`
        it gets a list of up to so many messages (consumeMessageBatchMaxSize; 1…1024): what is there
        of one queue, without waiting for more; `ack` and `reconsume` tell the outcome of single
        ones, returning or raising that of the others.

        Raises InvalidName; ValueError for a topic that is subscribed to already, and for a
        `batch` out of range.
        """
        expression = Expression.of(tags, sql)

        def decorate(function: Any) -> Any:
            if self._running:
                raise ValueError("a running consumer takes new topics by subscribe()")
            self._wanted.add(topic, expression, handler_of(function, batch))
            return function

        return decorate

    async def subscribe(
        self,
        topic: str,
        tags: str = "*",
        *,
        sql: str | None = None,
        handler: Handler | BatchHandler | None = None,
        batch: int | None = None,
    ) -> None:
        """Consume one more topic while running; `handler` is needed if others have one. `batch`: it
        gets lists of up to so many messages, as with `on`.

        Raises InvalidName; NotRunning; NoNameServer; ValueError for a topic that is subscribed to
        already, or a handler that is missing; what a broker answers to a condition that it can not
        evaluate.
        """
        self._instance.check_running("consumer")
        self._wanted.add(topic, Expression.of(tags, sql), handler_of(handler, batch))
        try:
            self._wanted.check()
            await self._wanted.begin(topic)
        except BaseException:
            self._wanted.forget(topic)
            raise
        await self._instance.heartbeat.send_all()
        self._rebalancer.soon()

    async def unsubscribe(self, topic: str) -> None:
        """Consume this topic no more; what is done of it is committed."""
        await self._wanted.end(topic)
        if self._running:
            await self._instance.heartbeat.send_all()
