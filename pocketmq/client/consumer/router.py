"""A router: topics and their handlers, independent of any connection.

    router = Router()

    @router.on("orders", tags="paid")
    async def bill(message: ConsumedMessage) -> None:
        ...

    consumer = PushConsumer("billing", router, namesrv="127.0.0.1:9876")

A router uses neither an event loop nor the network. Define it at module level, and give it to a
consumer in your program and to another one in your tests. Asyncio and synchronous consumers use the
same class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import UnionType
from typing import Any, NamedTuple, Protocol, TypeVar, overload

from pocketmq.client.consumer.dispatch.handlers import (
    AnyHandler,
    handler_of,
)
from pocketmq.client.consumer.expression import Expression
from pocketmq.client.parameters import Seconds, text
from pocketmq.client.validation import check_topic_name

P = TypeVar("P")
M = TypeVar("M")
R = TypeVar("R")
#: For both asyncio and synchronous consumers, whose messages have different types.
RoutedHandler = Callable[[Any], object]
RoutedBatchHandler = Callable[[list[Any]], object]
F = TypeVar("F", bound=Callable[[Any, Any], object])
H = TypeVar("H", bound=RoutedHandler)
B = TypeVar("B", bound=RoutedBatchHandler)


class PayloadDecorator(Protocol[P]):
    """Decorates a function of a message and its body, decoded as P; returns it unchanged.

    So tests can call it directly.
    """

    def __call__(self, function: Callable[[M, P], R], /) -> Callable[[M, P], R]: ...


class UnionDecorator(Protocol):
    """The same for bodies decoded as `A | B`, a type that some type checkers cannot infer."""

    def __call__(self, function: F, /) -> F: ...


class Route(NamedTuple):
    """One topic: its filter and its handler."""

    topic: str
    expression: Expression
    function: Callable[..., object] | None = None
    max_batch: int | None = None
    payload: Any = None
    max_wait: Seconds | None = None

    def handler(self, adapt: Callable[[Any], Any]) -> AnyHandler | None:
        """Return the handler. `adapt` wraps a function of the application for the consumer."""
        if self.function is None:
            return None
        return handler_of(adapt(self.function), self.max_batch, self.payload, self.max_wait)


def checked_route(
    topic: str,
    tags: str = "*",
    sql: str | None = None,
    function: Any = None,
    max_batch: int | None = None,
    payload: Any = None,
    max_wait: Seconds | None = None,
) -> Route:
    """Return a route from the arguments of `on` and `subscribe`; raises as they do."""
    check_topic_name(text("topic", topic))
    expression = Expression.of(tags, sql)
    handler_of(function, max_batch, payload, max_wait)  # only to raise its errors
    return Route(topic, expression, function, max_batch, payload, max_wait)


class Routing:
    """Registers handlers with its decorator `on`: the base of Router and PushConsumer."""

    @overload
    def on(
        self, topic: str, tags: str = "*", *, sql: str | None = None, payload: type[P]
    ) -> PayloadDecorator[P]: ...

    @overload
    def on(
        self, topic: str, tags: str = "*", *, sql: str | None = None, payload: UnionType
    ) -> UnionDecorator: ...

    @overload
    def on(
        self,
        topic: str,
        tags: str = "*",
        *,
        sql: str | None = None,
        max_batch: int,
        max_wait: Seconds | None = None,
    ) -> Callable[[B], B]: ...

    @overload
    def on(self, topic: str, tags: str = "*", *, sql: str | None = None) -> Callable[[H], H]: ...

    def on(
        self,
        topic: str,
        tags: str = "*",
        *,
        sql: str | None = None,
        max_batch: int | None = None,
        max_wait: Seconds | None = None,
        payload: Any = None,
    ) -> Callable[[Any], Any]:
        """Register the decorated function as the handler of a topic.

        Consumers copy the routes of a router when they start.

        Args:
            topic: the topic's name.
            tags: `"*"` for all messages, or `"TagA || TagB"`.
            sql: a SQL92 condition on properties, instead of `tags`.
            max_batch: call the function with a list of 1 to `max_batch` messages (at most 1024) of
                one queue: those that have arrived.
            max_wait: seconds (or a timedelta) that a message may wait for the list to become full;
                None to wait for nothing. Needs `max_batch`.
            payload: call the function with the message and its body decoded as this type: a
                `msgspec.Struct`, a dataclass, a pydantic model, `dict`, … (JSON). Not with
                `max_batch`.

        The function gets a ConsumedMessage; you may annotate it as MessageExt or Message, whose
        attributes it has, except the options of sending. If the function returns, the message is
        consumed. If it raises, the message is redelivered later; with ReconsumeLater, you choose
        when.

        Raises:
            InvalidName: the topic, the tags or the SQL condition are malformed.
            TypeError: an argument has the wrong type, or the function has other parameters.
            ValueError: the topic already has a handler, `max_batch` is out of range, or this is a
                running consumer, which accepts new topics only with `subscribe`.
        """
        checked_route(topic, tags, sql, lambda *_: None, max_batch, payload, max_wait)

        def decorate(function: Any) -> Any:
            given = _some(function)
            self._take(checked_route(topic, tags, sql, given, max_batch, payload, max_wait))
            return function

        return decorate

    def _take(self, route: Route) -> None:
        raise NotImplementedError


class Router(Routing):
    """Topics with their handlers, for any number of push consumers."""

    def __init__(self) -> None:
        self._routes: dict[str, Route] = {}

    def __repr__(self) -> str:
        return f"Router({', '.join(sorted(self._routes))})"

    def __iter__(self) -> Iterator[Route]:
        return iter(tuple(self._routes.values()))

    def include(self, other: Router) -> None:
        """Copy the current routes of another router.

        Raises:
            ValueError: both have a handler for a topic.
        """
        if not isinstance(other, Router):
            raise TypeError(f"include() takes a Router, not {other!r}")
        for route in other:
            self._take(route)

    def _take(self, route: Route) -> None:
        """Add one route. Raises ValueError if the topic already has another one."""
        if self._routes.setdefault(route.topic, route) != route:
            raise ValueError(already_subscribed(route.topic))


def already_subscribed(topic: str) -> str:
    """Return the text of the error for a second handler of a topic."""
    return (
        f"topic {topic} is subscribed to already: a topic has one handler; subscribe to all of its "
        'tags, as "paid || refunded", and look at message.tags there'
    )


def _some(function: Any) -> Any:
    if function is None:
        raise TypeError("the handler must be a function, not None")
    return function


def routes_of(subscriptions: object, handler: object) -> Router:
    """Return a router for a consumer's arguments `subscriptions` and `handler`.

    Raises:
        TypeError, InvalidName: it is neither a Router nor a mapping of topics to tags.
    """
    if isinstance(subscriptions, Router):
        if handler is not None:
            raise ValueError("a Router has handlers of its own: pass either it or `handler`")
        return subscriptions
    router = Router()
    if subscriptions is None:
        if handler is not None:
            raise ValueError("`handler` needs `subscriptions`: the topics that it works on")
        return router
    if not isinstance(subscriptions, Mapping):
        raise TypeError(
            "subscriptions must be a Router or a mapping of topics to tags, "
            f'as {{"orders": "*"}}, not {subscriptions!r}'
        )
    for topic, tags in subscriptions.items():
        router._take(checked_route(topic, tags, function=handler))
    return router


def merged(routers: Iterable[Router]) -> dict[str, Route]:
    """Return the routes of several routers, by topic.

    Raises:
        ValueError: two routers have different routes for a topic, or only some topics have
        handlers.
    """
    every = Router()
    for router in routers:
        every.include(router)
    routes = {route.topic: route for route in every}
    missing = sorted(route.topic for route in every if route.function is None)
    if missing and len(missing) < len(routes):
        raise ValueError(f"no handler for {', '.join(missing)}, while other topics have one")
    return routes
