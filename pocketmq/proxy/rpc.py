"""What the transport and the services know of each other: calls, the kinds of methods, and how a
call ends. Neither knows more of the other."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol

from pocketmq.remoting.serving.request import Caller


class Call:
    """One call, as a service sees it.

    Attributes:
        method: the name of the method.
        peer: (ip, port) of the client.
        authority: the address by which the client knows this server, "" if it named none.
        metadata: request headers by their name in lower case.
        deadline: time of the loop at which the client gives up; infinite without one.
        checked: its signature was checked, or nobody has to sign.
        caller: who signed it; None where nobody has to.
    """

    __slots__ = ("authority", "caller", "checked", "deadline", "metadata", "method", "peer")

    def __init__(
        self,
        method: str,
        peer: tuple[str, int],
        metadata: Mapping[bytes, bytes],
        *,
        authority: str = "",
        deadline: float = math.inf,
    ) -> None:
        self.method = method
        self.peer = peer
        self.authority = authority
        self.metadata = metadata
        self.deadline = deadline
        self.checked = False
        self.caller: Caller | None = None

    def text(self, name: bytes) -> str:
        """Return a request header as text; "" if it is missing."""
        return self.metadata.get(name, b"").decode("utf-8", "replace")

    def remaining(self) -> float:
        """Return the seconds until the deadline."""
        return self.deadline - asyncio.get_running_loop().time()


class GrpcStatus(IntEnum):
    """How a call ends; what a request itself led to is in the answer's own status."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class GrpcError(Exception):
    """Ends a call with a status other than OK."""

    def __init__(self, status: GrpcStatus, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Message(Protocol):
    """A protobuf message."""

    def SerializeToString(self) -> bytes: ...


class MessageType(Protocol):
    """The class of a protobuf message."""

    def FromString(self, data: bytes, /) -> Any: ...


#: Bytes of a request, unless its method takes more.
SMALL: Final = 64 << 10

#: Decides by the headers of a call whether its request is read: returns the answers that refuse it,
#: none to let it in.
Admit = Callable[[Call], Sequence[Message]]


class Unary(NamedTuple):
    """One request, one answer. A handler may return a future of its own instead of a coroutine,
    which saves a task.

    `carried_through`: the call goes on when its client gives it up. `limit`: bytes of a request.
    """

    request: MessageType
    handler: Callable[[Call, Any], Awaitable[Message]]
    carried_through: bool = True
    limit: int = SMALL
    admit: Admit | None = None


class ServerStream(NamedTuple):
    """One request, several answers, which the handler returns together.

    The handler is cancelled when its client gives the call up.
    """

    request: MessageType
    handler: Callable[[Call, Any], Awaitable[Sequence[Message]]]
    limit: int = SMALL
    admit: Admit | None = None


class Outgoing(Protocol):
    """The server's side of a duplex stream."""

    def send(self, message: Message) -> None:
        """Send one message; nothing when the stream is gone."""

    def end(self, error: Exception | None = None) -> None:
        """End the stream, with a GrpcError or well."""


class Incoming(Protocol):
    """What a service does with the client's side of a duplex stream."""

    def received(self, message: Any) -> None:
        """Take one message. Raises GrpcError, which ends the stream."""

    def closed(self) -> None:
        """The client ended the stream, or is gone."""


class Duplex(NamedTuple):
    """Messages in both directions for as long as the client likes."""

    request: MessageType
    open: Callable[[Call, Outgoing], Incoming]
    limit: int = SMALL
    admit: Admit | None = None


Method = Unary | ServerStream | Duplex
Methods = Mapping[bytes, Method]
"""By path: `/package.Service/Method`."""
