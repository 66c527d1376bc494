"""A limit on what the requests of many clients take together, and on the share of one client.

A limit on the number of requests bounds nothing while a client chooses their size: ten thousand
pulls of two megabytes each are within any such limit. So what is kept for clients is counted in its
own unit, mostly bytes, and one client leaves room for the others.
"""

from __future__ import annotations

from typing import Any, Final

from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.serving.request import Request
from pocketmq.remoting.shares import Shares

_CONNECTION_SHARE: Final = 10
_OWNER_SHARE: Final = 2


def text_bytes(text: str) -> int:
    """Return how many bytes a text takes at most, without its object; always the same number.

    Characters that are not ASCII take up to four bytes, and as many again once they are written as
    UTF-8, which a text keeps. `getsizeof` gives less before that than after it: what is added and
    taken away would differ.
    """
    return len(text) if text.isascii() else 8 * len(text)


class Budget:
    """An amount of `unit` for `what`: a tenth of it for each connection, half for each owner: a
    user at an address, or all there who sign nothing.

    `what` and `unit` are for the log: "held pulls", "bytes".
    """

    def __init__(self, limit: int, what: str, unit: str, log: LimitedLog) -> None:
        self._limit = limit
        self._what = what
        self._unit = unit
        self._log = log
        self._connections = Shares()
        self._owners = Shares()
        # By connection and identity of a thing, how many of its requests keep that.
        self._shared = Shares()

    @property
    def taken(self) -> int:
        """What all connections have taken."""
        return self._connections.total

    def take(self, request: Request[Any], amount: int) -> bool:
        """Take this amount for a request; return False, and log it, if that is too much."""
        if not amount:
            return True
        connection = request.connection
        owner = request.owner
        for holder, taken, share in (
            ("the connection", self._connections.of(connection), _CONNECTION_SHARE),
            (
                "the user at its address" if owner.user else "the address",
                self._owners.of(owner),
                _OWNER_SHARE,
            ),
            ("all clients", self.taken, 1),
        ):
            if taken + amount > max(1, self._limit // share):
                self._refused(request, holder, taken + amount, max(1, self._limit // share))
                return False
        self._connections.add(connection, amount)
        self._owners.add(owner, amount)
        return True

    def give_back(self, request: Request[Any], amount: int) -> None:
        """Give back what was taken for a request."""
        if amount:
            self._connections.remove(request.connection, amount)
            self._owners.remove(request.owner, amount)

    def take_shared(self, request: Request[Any], thing: object, amount: int) -> bool:
        """Take this amount for an object that several requests may keep; it counts once for each
        connection. It must live until it is given back."""
        key = request.connection, id(thing)
        if not self._shared.of(key) and not self.take(request, amount):
            return False
        self._shared.add(key)
        return True

    def give_back_shared(self, request: Request[Any], thing: object, amount: int) -> None:
        """Give back what one request keeps."""
        if not self._shared.remove((request.connection, id(thing))):
            self.give_back(request, amount)

    def _refused(self, request: Request[Any], holder: str, wanted: int, most: int) -> None:
        caller = request.caller
        self._log.warning(
            "%s: request from %s:%d%s is not held: %s would use %d %s, the limit is %d",
            self._what,
            request.connection.peer[0],
            request.connection.peer[1],
            f" (user {caller.username})" if caller is not None else "",
            holder,
            wanted,
            self._unit,
            most,
            cause=(self._what, self._unit, holder),
        )
