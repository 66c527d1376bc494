"""The groups that each connection is a member of, and their limits: any client can name any number
of groups."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.serving.request import Caller, owner_of
from pocketmq.remoting.shares import Shares

#: The most groups of one connection. A proxy has the groups of all its clients.
MAX_GROUPS: Final = 20_000
#: The most groups of all connections of one user (without authentication: one address).
MAX_GROUPS_OF_USER: Final = 100_000


class Memberships:
    """The members of all groups of one kind, which `log` calls `what`, by their connections.

    `closed(connection)` is called when a connection with members is gone.
    """

    def __init__(
        self,
        what: str,
        closed: Callable[[Any], None],
        log: LimitedLog,
        *,
        max_groups: int = MAX_GROUPS,
        max_groups_of_user: int = MAX_GROUPS_OF_USER,
    ) -> None:
        self._what = what
        self._closed = closed
        self._log = log
        self._max_groups = max_groups
        self._max_groups_of_user = max_groups_of_user
        # The groups of each connection, with the owner for whom each is counted.
        self._groups: dict[Any, dict[str, str]] = {}
        self._counts = Shares()

    def of(self, connection: Any) -> Collection[str]:
        """Return the groups of a connection."""
        return self._groups.get(connection, ())

    def add(self, group: str, connection: Any, caller: Caller | None) -> bool:
        """Add a connection to a group; return False, and log it, if it has too many."""
        groups = self._groups.get(connection)
        if groups is None:
            groups = self._groups[connection] = {}
            connection.add_close_callback(self._closed)
        if group in groups:
            return True
        owner = owner_of(caller, connection.peer[0])
        count = self._counts.of(owner)
        if len(groups) >= self._max_groups or count >= self._max_groups_of_user:
            self._log.warning(
                "%s %s is ignored: connection %s already has %d groups, and its user or address %d",
                self._what, group, connection, len(groups), count,
            )  # fmt: skip
            return False
        groups[group] = owner
        self._counts.add(owner)
        return True

    def remove(self, group: str, connection: Any) -> None:
        """Remove a connection from a group, if it is a member."""
        owner = self._groups.get(connection, {}).pop(group, None)
        if owner is not None:
            self._counts.remove(owner)

    def end(self, connection: Any) -> Collection[str]:
        """Remove a connection from all groups, and return them."""
        groups = self._groups.pop(connection, {})
        for owner in groups.values():
            self._counts.remove(owner)
        return groups
