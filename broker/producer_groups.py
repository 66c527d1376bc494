"""Who produces right now: producer groups and the connections of their members.

Filled by heartbeats; asked by admin requests and, for transactions, to find a member that can be
asked for the state of a half message. Reference: broker ProducerManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from broker.consumer_groups import ClientInfo


class ProducerGroups:
    """All producer groups with a live member; `clock` gives milliseconds."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._groups: dict[str, dict[Any, ClientInfo]] = {}
        self._groups_of: dict[Any, set[str]] = {}

    def clients(self, group: str) -> Iterable[ClientInfo] | None:
        """The members of `group`, or None when there is no such group."""
        members = self._groups.get(group)
        return None if members is None else members.values()

    def all(self) -> Mapping[str, Iterable[ClientInfo]]:
        """Every group with its members."""
        return {group: members.values() for group, members in self._groups.items()}

    def register(self, group: str, client: ClientInfo) -> None:
        """One producer group of one heartbeat."""
        self._groups.setdefault(group, {})[client.connection] = client
        groups = self._groups_of.get(client.connection)
        if groups is None:
            groups = self._groups_of[client.connection] = set()
            client.connection.add_close_callback(self.connection_closed)
        groups.add(group)

    def unregister(self, group: str, connection: Any) -> None:
        """A member leaves; the group goes with its last one."""
        members = self._groups.get(group)
        if members is None:
            return
        members.pop(connection, None)
        groups = self._groups_of.get(connection)
        if groups is not None:
            groups.discard(group)
        if not members:
            del self._groups[group]

    def connection_closed(self, connection: Any) -> None:
        """Everything that lived on `connection` leaves."""
        for group in self._groups_of.pop(connection, ()):
            self.unregister(group, connection)

    def expire(self, silent_ms: int) -> None:
        """Drop the clients that sent no heartbeat for `silent_ms`."""
        now = self._clock()
        for group, members in list(self._groups.items()):
            for client in list(members.values()):
                if now - client.seen > silent_ms:
                    self.unregister(group, client.connection)
