"""The broker port: all that the services of a proxy need of brokers.

There are two: `pocketmq.proxy.port.local` reaches the broker of this process without a network, and
`pocketmq.proxy.port.remote` reaches the brokers of a cluster by their remoting ports.
`pocketmq.proxy.port.joint` puts them together. All speak in typed headers and bodies of the
remoting protocol, and raise its errors.
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
"""Seconds for what is answered at once."""


@dataclass(slots=True)
class Answer:
    """A broker's answer, whatever its code. `fields` is its typed header, or its extFields."""

    code: int
    remark: str | None
    fields: Header | Mapping[str, str] | None
    body: Buffer | Sequence[Buffer] = b""

    @property
    def ok(self) -> bool:
        """The request was executed."""
        return self.code == ResponseCode.SUCCESS

    def header(self, kind: type[H]) -> H:
        """Return the header. Raises HeaderError if a field that is needed is missing."""
        fields = self.fields
        if isinstance(fields, kind):
            return fields
        if isinstance(fields, Header):
            fields = fields.to_ext()
        return kind.from_ext(dict(fields or {}))

    def content(self) -> bytes:
        """Return the body in one piece."""
        body = self.body
        if isinstance(body, bytes):
            return body
        if isinstance(body, bytearray | memoryview):
            return bytes(body)
        return b"".join(body)

    def check(self, broker: str = "") -> Answer:
        """Raise the RemotingError of an answer that is not SUCCESS; return the others."""
        if not self.ok:
            raise error_for(self.code, self.remark, broker)
        return self


@dataclass(slots=True)
class Registration:
    """What brokers are told about a client: its groups."""

    producers: list[str] = field(default_factory=list)
    consumers: list[ConsumerData] = field(default_factory=list)


#: The headers of what brokers ask clients for.
ASKED_HEADERS: Final[Mapping[int, type[Header]]] = {
    int(RequestCode.CHECK_TRANSACTION_STATE): CheckTransactionStateRequestHeader,
    int(RequestCode.GET_CONSUMER_RUNNING_INFO): GetConsumerRunningInfoRequestHeader,
    int(RequestCode.CONSUME_MESSAGE_DIRECTLY): ConsumeMessageDirectlyResultRequestHeader,
}

#: What a broker asks of a client: gives the answer, None for a request without one.
Asked = Callable[[Request[Any]], Awaitable[Response | None]]


class Link(Protocol):
    """One client of the proxy, as brokers see it.

    `caller` signs the client's calls; what brokers ask of a group goes to those only that may see
    it. None without authentication.
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
            TopicNotExist: nothing is known of a broker of that name.
        """

    def withdraw(self, answer: asyncio.Future[Answer]) -> bool:
        """Take a request back that a broker holds, by the future of its answer; False if it is
        executed all the same."""

    async def register(self, registration: Registration) -> None:
        """Tell the brokers that have to know it what the client's groups are, and that it lives.

        Raises RemotingError.
        """

    def close(self) -> None:
        """Forget the client; its groups leave the brokers."""


class Choice(Protocol):
    """The queue that one send goes to, and what is learnt from it (RIP-63).

    `elsewhere`: other brokers have queues that would do as well.
    """

    queue: MessageQueue
    elsewhere: bool

    def ended(self, error: BaseException | None, code: int) -> None:
        """Note how the send ended: by an error without answer, or with a response code."""

    def again(self) -> Choice | None:
        """Return the choice for another try on another broker; None if there is none."""


class BrokerPort(Protocol):
    """The brokers behind a proxy.

    `local`: one of them is in this process, and is asked without a network.
    """

    local: bool

    def open(self, client_id: str, language: str, peer: tuple[str, int], asked: Asked) -> Link:
        """Return a link for a client at this address."""

    async def route(self, topic: str) -> TopicRouteData:
        """Return where a topic's queues are.

        Raises:
            TopicNotExist: the topic does not exist.
            RemotingError: nobody knows at this moment.
        """

    def choose(self, topic: str, route: TopicRouteData, key: str | None) -> Choice | None:
        """Choose the queue for a send, the same one for each key; None if there is none to write.

        `route` is what `route` returned for the topic.
        """

    def brokers(self) -> Sequence[str]:
        """Return the names of the brokers that are known."""
