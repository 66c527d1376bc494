"""The owners of client ids, on a broker with authentication.

A client chooses its own client id. Replies, admin requests and queue locks find a client by it, so
it belongs to the user who registered it first, as long as one of this user's connections with the
id is open. The same user may use it on a new connection; other users are refused.

The official broker has no owners: the last heartbeat counts. Without authentication, this broker
does the same.
"""

from __future__ import annotations

from typing import Any, Final

from pocketmq.limited_log import shown
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.serving.request import Caller
from pocketmq.remoting.shares import Shares

#: The most client ids of one connection. Clients have one; official proxies have one for each of
#: their clients.
MAX_IDS: Final = 100
#: The most client ids of all connections of one user: as many as a server has connections.
MAX_IDS_OF_USER: Final = 20_000


class _Owner:
    __slots__ = ("connections", "username")

    def __init__(self, username: str) -> None:
        self.username = username
        self.connections: set[Any] = set()


class ClientIds:
    """The client ids of signed heartbeats, with their owners."""

    def __init__(self) -> None:
        self._owners: dict[str, _Owner] = {}
        self._ids_of: dict[Any, set[str]] = {}
        self._counts = Shares()  # ids by user

    def __len__(self) -> int:
        return len(self._owners)

    def claim(self, client_id: str, connection: Any, caller: Caller | None) -> None:
        """Register a client id. Raises RemotingError if it belongs to another user."""
        self.check(client_id, caller)
        if caller is None or not caller.username:
            return
        ids = self._ids_of.get(connection)
        if ids is None:
            ids = self._ids_of[connection] = set()
            connection.add_close_callback(self._closed)
        if client_id in ids:
            return
        owner = self._owners.get(client_id)
        name = caller.username
        if len(ids) >= MAX_IDS or (owner is None and self._counts.of(name) >= MAX_IDS_OF_USER):
            raise RemotingError(
                ResponseCode.NO_PERMISSION,
                f"a connection has at most {MAX_IDS} client ids, and a user {MAX_IDS_OF_USER}",
            )
        if owner is None:
            owner = self._owners[client_id] = _Owner(name)
            self._counts.add(name)
        ids.add(client_id)
        owner.connections.add(connection)

    def check(self, client_id: str, caller: Caller | None) -> None:
        """Raise RemotingError if this id belongs to a user other than the caller."""
        if caller is None:
            return
        owner = self._owners.get(client_id)
        if owner is not None and owner.username != caller.username:
            raise RemotingError(
                ResponseCode.NO_PERMISSION,
                f"the client id {shown(client_id)} belongs to another user",
            )

    def _closed(self, connection: Any) -> None:
        for client_id in self._ids_of.pop(connection, ()):
            owner = self._owners[client_id]
            owner.connections.discard(connection)
            if not owner.connections:
                del self._owners[client_id]
                self._counts.remove(owner.username)
