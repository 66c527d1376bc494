"""Topics and groups, from the brokers: the message types of a topic, and the settings of a group.

They are queried at the first use, and again after `fresh` seconds, in the background, while the
cached ones stay in use. Missing ones are queried each time, so that an operator who has created a
topic need not wait. If no broker answers, cached ones stay, and unknown ones are an error: assuming
that a group is not ordered would break its order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Generic, TypeVar

from pocketmq.proxy.port.broker_port import BrokerPort, Link
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.bodies.route import TopicRouteData
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers.admin import GetSubscriptionGroupConfigRequestHeader
from pocketmq.remoting.headers.topic import GetTopicConfigRequestHeader
from pocketmq.remoting.held_error import HeldError

FRESH_LOCAL: Final = 1.0
FRESH_REMOTE: Final = 10.0
#: The most cached topics, and groups.
MAX_KNOWN: Final = 20_000

T = TypeVar("T")

MESSAGE_TYPE: Final = "message.type"
TYPES: Final[Mapping[str, tuple[pb.MessageType.ValueType, ...]]] = {
    "UNSPECIFIED": (),
    "NORMAL": (pb.NORMAL,),
    "FIFO": (pb.FIFO,),
    "DELAY": (pb.DELAY,),
    "TRANSACTION": (pb.TRANSACTION,),
    "PRIORITY": (pb.PRIORITY,),
    "MIXED": (pb.NORMAL, pb.FIFO, pb.DELAY, pb.TRANSACTION),
}


class Topic:
    """A topic: its route, and the message types that it accepts."""

    __slots__ = ("name", "route", "types")

    def __init__(
        self, name: str, route: TopicRouteData, types: tuple[pb.MessageType.ValueType, ...]
    ) -> None:
        self.name = name
        self.route = route
        self.types = types


class _Cache(Generic[T]):
    """Cached values by name; `ask(name)` returns one, None if it does not exist."""

    def __init__(self, ask: Callable[[str], Awaitable[T | None]], fresh: float) -> None:
        self._ask = ask
        self._fresh = fresh
        self._known: dict[str, tuple[T, float]] = {}
        self._asking: dict[str, asyncio.Task[T | None]] = {}

    def known(self, name: str) -> T | None:
        """Return the value if it is cached and fresh."""
        entry = self._known.get(name)
        if entry is None or asyncio.get_running_loop().time() > entry[1]:
            return None
        return entry[0]

    async def get(self, name: str) -> T | None:
        """Return the value. Raises the errors of `ask`."""
        entry = self._known.get(name)
        now = asyncio.get_running_loop().time()
        if entry is not None:
            if now > entry[1]:
                self._known[name] = (entry[0], now + self._fresh)
                self._refresh(name)
            return entry[0]
        return await asyncio.shield(self._refresh(name))

    def _refresh(self, name: str) -> asyncio.Task[T | None]:
        task = self._asking.get(name)
        if task is None:
            task = self._asking[name] = asyncio.ensure_future(self._learn(name))
            task.add_done_callback(lambda _: self._asking.pop(name, None))
            # The waiters may be gone, for example at a stop.
            task.add_done_callback(_seen)
        return task

    async def _learn(self, name: str) -> T | None:
        value = await self._ask(name)
        if value is None:
            self._known.pop(name, None)
            return None
        if len(self._known) >= MAX_KNOWN and name not in self._known:
            self._known.pop(next(iter(self._known)))
        self._known[name] = (value, asyncio.get_running_loop().time() + self._fresh)
        return value


def _seen(task: asyncio.Task[object]) -> None:
    if not task.cancelled():
        task.exception()


class Metadata:
    """Topics and groups of one port; `link` sends the queries.

    `fresh`: seconds until they are queried again; None for the default of the port.
    """

    def __init__(self, port: BrokerPort, link: Link, *, fresh: float | None = None) -> None:
        self._port = port
        self._link = link
        if fresh is None:
            fresh = FRESH_LOCAL if port.local else FRESH_REMOTE
        self._topics = _Cache(self._ask_topic, fresh)
        self._groups = _Cache(self._ask_group, fresh)

    def known_topic(self, name: str) -> Topic | None:
        """Return the topic if it is cached and fresh."""
        return self._topics.known(name)

    async def topic(self, name: str) -> Topic:
        """Return a topic. Raises TopicNotExist, RemotingError."""
        topic = await self._topics.get(name)
        assert topic is not None  # the port raises for a topic that does not exist
        return topic

    async def group(self, name: str) -> SubscriptionGroupConfig:
        """Return a group's settings, the defaults for one that does not exist.

        Raises RemotingError if no broker answers.
        """
        return await self._groups.get(name) or SubscriptionGroupConfig(group_name=name)

    async def _ask_topic(self, name: str) -> Topic:
        route = await self._port.route(name)
        failure: HeldError[RemotingError] | None = None
        for data in route.queue_datas:
            header = GetTopicConfigRequestHeader(topic=name)
            try:
                answer = await self._link.request(
                    data.broker_name, RequestCode.GET_TOPIC_CONFIG, header
                )
                config = TopicConfig.decode(answer.check(data.broker_name).content())
            except RemotingError as error:
                failure = HeldError(error)
                continue  # another broker may answer
            kind = config.attributes.get(MESSAGE_TYPE, "NORMAL").upper()
            return Topic(name, route, TYPES.get(kind, (pb.NORMAL,)))
        if failure is not None:
            raise failure.take()
        return Topic(name, route, (pb.NORMAL,))

    async def _ask_group(self, name: str) -> SubscriptionGroupConfig | None:
        header = GetSubscriptionGroupConfigRequestHeader(group=name)
        failure: HeldError[RemotingError] | None = None
        answered = False
        for broker in self._port.brokers():
            try:
                answer = await self._link.request(
                    broker, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header
                )
            except RemotingError as error:
                failure = HeldError(error)
                continue
            if answer.code == ResponseCode.SUCCESS:
                return SubscriptionGroupConfig.decode(answer.content())
            answered = True
        if failure is not None and not answered:
            raise failure.take()
        return None
