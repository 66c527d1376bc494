"""The broker port: the interface through which the services of a proxy use brokers.

`pocketmq.proxy.port.local` calls the broker in this process without a network, and
`pocketmq.proxy.port.remote` connects to the remoting ports of the brokers of a cluster.
`pocketmq.proxy.port.joint` combines the two. All use typed headers and bodies of the remoting
protocol, and raise its errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from pocketmq.message.buffers import Buffer
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.heartbeat import ConsumerData
from pocketmq.remoting.bodies.route import TopicRouteData
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import error_for
from pocketmq.remoting.headers.base import Header
from pocketmq.remoting.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from pocketmq.remoting.headers.transaction import CheckTransactionStateRequestHeader
from pocketmq.remoting.serving.request import Caller, Request, Response

H = TypeVar("H", bound=Header)

REQUEST_TIMEOUT = 3.0
"""Timeout of requests that are answered at once, in seconds."""


@dataclass(slots=True)
class Answer:
    """A broker's answer with any code. `fields` is its typed header, or its extFields."""

    code: int
    remark: str | None
    fields: Header | Mapping[str, str] | None
    body: Buffer | Sequence[Buffer] = b""

    @property
    def ok(self) -> bool:
        """The request was executed."""
        return self.code == ResponseCode.SUCCESS

    def header(self, kind: type[H]) -> H:
        """Return the header. Raises HeaderError if a required field is missing."""
        fields = self.fields
        if isinstance(fields, kind):
            return fields
        if isinstance(fields, Header):
            fields = fields.to_ext()
        return kind.from_ext(dict(fields or {}))

    @property
    def size(self) -> int:
        """The bytes of the body."""
        body = self.body
        if isinstance(body, bytes | bytearray | memoryview):
            return len(body)
        return sum(map(len, body))

    def content(self) -> bytes:
        """Return the body as one object."""
        body = self.body
        if isinstance(body, bytes):
            return body
        if isinstance(body, bytearray | memoryview):
            return bytes(body)
        return b"".join(body)

    def check(self, broker: str = "") -> Answer:
        """Return an answer with SUCCESS; raise the RemotingError of any other."""
        if not self.ok:
            raise error_for(self.code, self.remark, broker)
        return self


@dataclass(slots=True)
class Registration:
    """The groups of a client, as reported to brokers."""

    producers: list[str] = field(default_factory=list)
    consumers: list[ConsumerData] = field(default_factory=list)


#: The headers of the requests that brokers send to clients.
ASKED_HEADERS: Final[Mapping[int, type[Header]]] = {
    int(RequestCode.CHECK_TRANSACTION_STATE): CheckTransactionStateRequestHeader,
    int(RequestCode.GET_CONSUMER_RUNNING_INFO): GetConsumerRunningInfoRequestHeader,
    int(RequestCode.CONSUME_MESSAGE_DIRECTLY): ConsumeMessageDirectlyResultRequestHeader,
}

#: Handles a broker's request to a client; returns the answer, None for a one-way request.
Asked = Callable[[Request[Any]], Awaitable[Response | None]]


class Link(Protocol):
    """One client of the proxy, as brokers see it.

    `caller` signs the client's calls; a broker's request for a group is only sent to clients that
    may see it. None without authentication.
    """

    caller: Caller | None

    def request(
        self,
        broker: str,
        code: int,
        header: Header | None,
        body: bytes = b"",
        *,
        timeout: float = REQUEST_TIMEOUT,
    ) -> asyncio.Future[Answer]:
        """Ask a broker, and return its answer.

        Raises:
            RemotingTimeout, RemotingClosed: no answer; the broker may have executed the request.
            RemotingConnectError: the request was not sent.
            TopicNotExist: no broker of that name is known.
        """

    def withdraw(self, answer: asyncio.Future[Answer]) -> bool:
        """Withdraw a request that a broker holds, by the future of its answer; return False if it
        will still be executed."""

    async def register(self, registration: Registration) -> None:
        """Report the client's groups to the brokers concerned, as a heartbeat.

        Raises RemotingError.
        """

    def close(self) -> None:
        """Remove the client; its groups are unregistered from the brokers."""


class Choice(Protocol):
    """The queue chosen for one send; the result of the send is reported to it (RIP-63).

    `elsewhere`: other brokers have suitable queues too.
    """

    queue: MessageQueue
    elsewhere: bool

    def ended(self, error: BaseException | None, code: int) -> None:
        """Record how the send ended: with an error without an answer, or with a response code."""

    def again(self) -> Choice | None:
        """Return the choice for a retry on another broker; None if no other broker is available."""


class BrokerPort(Protocol):
    """The brokers of a proxy.

    `local`: one of them is in this process, and is called without a network.
    """

    local: bool

    def open(self, client_id: str, language: str, peer: tuple[str, int], asked: Asked) -> Link:
        """Return a link for a client at this address."""

    async def route(self, topic: str) -> TopicRouteData:
        """Return the route of a topic.

        Raises:
            TopicNotExist: the topic does not exist.
            RemotingError: the route cannot be found out now.
        """

    def choose(self, topic: str, route: TopicRouteData, key: str | None) -> Choice | None:
        """Choose the queue for a send, the same one for each key; None if no queue is writable.

        `route` is the result of `route` for the topic.
        """

    def brokers(self) -> Sequence[str]:
        """Return the names of the known brokers."""
