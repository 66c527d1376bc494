"""The interface between the transport and the services: calls, kinds of methods, and how a call
ends. They share nothing else."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol

from pocketmq.remoting.serving.request import Caller, Owner


class Call:
    """One call, for a service.

    Attributes:
        method: the name of the method.
        peer: (ip, port) of the client.
        authority: the address by which the client knows this server; "" if not given.
        metadata: request headers by their name in lower case.
        deadline: loop time at which the client gives up; infinite without one.
        checked: its signature was checked, or none is required.
        caller: the user who signed it; None if no signature is required.
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

    @property
    def owner(self) -> Owner:
        """For whom to count what the call takes."""
        return Owner(self.peer[0], self.caller.username if self.caller is not None else "")

    def remaining(self) -> float:
        """Return the seconds until the deadline."""
        return self.deadline - asyncio.get_running_loop().time()


class GrpcStatus(IntEnum):
    """How a call ends. The result of the request itself is in the answer's own status."""

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


#: The largest request in bytes, unless its method allows more.
SMALL: Final = 64 << 10

#: Decides by the headers of a call whether to read its request: returns the answers that refuse it,
#: none to admit it.
Admit = Callable[[Call], Sequence[Message]]


class Unary(NamedTuple):
    """One request, one answer. A handler may return a future instead of a coroutine, which saves a
    task.

    `carried_through`: the call continues if its client cancels it. `limit`: bytes of a request.
    """

    request: MessageType
    handler: Callable[[Call, Any], Awaitable[Message]]
    carried_through: bool = True
    limit: int = SMALL
    admit: Admit | None = None


class ServerStream(NamedTuple):
    """One request, several answers, which the handler returns all at once.

    The handler is cancelled if the client cancels the call.
    """

    request: MessageType
    handler: Callable[[Call, Any], Awaitable[Sequence[Message]]]
    limit: int = SMALL
    admit: Admit | None = None


class Outgoing(Protocol):
    """The server's side of a duplex stream."""

    def send(self, message: Message) -> None:
        """Send one message. Does nothing if the stream has ended."""

    def end(self, error: Exception | None = None) -> None:
        """End the stream, with a GrpcError or successfully."""


class Incoming(Protocol):
    """A service's handler of the client's side of a duplex stream."""

    def received(self, message: Any) -> None:
        """Handle one message. Raises GrpcError, which ends the stream."""

    def closed(self) -> None:
        """Handle the end of the stream: the client ended it or disconnected."""


class Duplex(NamedTuple):
    """Messages in both directions, until the client ends the stream."""

    request: MessageType
    open: Callable[[Call, Outgoing], Incoming]
    limit: int = SMALL
    admit: Admit | None = None


Method = Unary | ServerStream | Duplex
Methods = Mapping[bytes, Method]
"""By path: `/package.Service/Method`."""
