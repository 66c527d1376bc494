"""Requests of any form over a plain socket, and what comes back."""

from __future__ import annotations

import itertools
import json
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from .wire import Answer

NO_ANSWER: Final = "no answer"
CLOSED: Final = "closed"
PATIENCE: Final = 10.0  # s; whatever is answered at all is answered by then
_VERSION: Final = 479

Fields = Mapping[str, str]
Body = bytes | dict[str, Any] | None
Head = Callable[[dict[str, Any]], bytes]


def plain_head(header: dict[str, Any]) -> bytes:
    """A JSON header as everybody writes it."""
    return json.dumps(header).encode()


@dataclass(frozen=True)
class Ask:
    """A request: which server gets it, its code, its fields and its body."""

    server: str
    code: int
    fields: Fields = field(default_factory=dict)
    body: Body = None


@dataclass(frozen=True)
class Effect:
    """What is asked afterwards, and what of its answer is compared."""

    ask: Ask
    of: Callable[[Answer], object]


@dataclass(frozen=True)
class Good:
    """A good request, what is done before it, and where its effect shows."""

    ask: Ask
    before: Sequence[Ask] = ()
    effect: Effect | None = None
    answer: Callable[[Answer], object] | None = None
    patience: float = PATIENCE


@dataclass(frozen=True)
class Case:
    """An odd request. `head` writes its JSON header, where that is the odd part."""

    name: str
    good: Good
    ask: Ask
    head: Head = plain_head


class Connection:
    """A connection to one server, made anew when the server closed it."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._socket: socket.socket | None = None
        self._opaque = itertools.count(1)

    def ask(
        self,
        ask: Ask,
        head: Head = plain_head,
        patience: float = PATIENCE,
    ) -> Answer | str:
        """The answer, or `NO_ANSWER` or `CLOSED`."""
        opaque = next(self._opaque)
        header = head(
            {
                "code": int(ask.code),
                "extFields": dict(ask.fields),
                "flag": 0,
                "language": "JAVA",
                "opaque": opaque,
                "version": _VERSION,
            }
        )
        body = _bytes(ask.body)
        frame = struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body
        if self._socket is None:
            self._socket = socket.create_connection(self._address, PATIENCE)
        self._socket.settimeout(patience)
        try:
            self._socket.sendall(frame)
            while True:
                answer = self._read(self._socket)
                # What a server asks its clients meanwhile is left unanswered.
                if answer["flag"] & 1 and answer["opaque"] == opaque:
                    return Answer(
                        answer["code"],
                        answer.get("remark"),
                        answer.get("extFields") or {},
                        answer["body"],
                    )
        except TimeoutError:
            self.close()
            return NO_ANSWER
        except OSError:
            self.close()
            return CLOSED

    @staticmethod
    def _read(stream: socket.socket) -> dict[str, Any]:
        length, head_length = struct.unpack(">II", _exactly(stream, 8))
        rest = _exactly(stream, length - 4)
        answer: dict[str, Any] = json.loads(rest[:head_length])
        answer["body"] = rest[head_length:]
        return answer

    def close(self) -> None:
        """Closes it; the next request opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _exactly(stream: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = stream.recv(size)
        if not part:
            raise ConnectionError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _bytes(body: Body) -> bytes:
    if body is None:
        return b""
    return body if isinstance(body, bytes) else json.dumps(body).encode()
