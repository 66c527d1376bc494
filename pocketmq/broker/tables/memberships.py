"""The groups that each connection is a member of, and their limits: any client can name any number
of groups."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.serving.long_requests import Steps, begin
from pocketmq.remoting.serving.request import Caller, owner_of
from pocketmq.remoting.shares import Shares

#: The most groups of one connection. A proxy has the groups of all its clients.
MAX_GROUPS: Final = 20_000
#: The most groups of all connections of one user (without authentication: one address).
MAX_GROUPS_OF_USER: Final = 100_000
#: Groups from which members are removed in one turn of the event loop.
REMOVED_AT_ONCE: Final = 500


class Memberships:
    """The members of all groups of one kind, which `log` calls `what`, by their connections.

    `leave(group, connection)` removes a member whose connection is gone.
    """

    def __init__(
        self,
        what: str,
        leave: Callable[[str, Any], None],
        log: LimitedLog,
        *,
        max_groups: int = MAX_GROUPS,
        max_groups_of_user: int = MAX_GROUPS_OF_USER,
    ) -> None:
        self._what = what
        self._leave = leave
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
            connection.add_close_callback(self.connection_closed)
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

    def connection_closed(self, connection: Any) -> None:
        """Remove a connection from all groups; from very many not at once."""
        begin(self._end(connection))

    def _end(self, connection: Any) -> Steps[None]:
        groups = self._groups.pop(connection, {})
        for number, (group, owner) in enumerate(groups.items(), 1):
            self._counts.remove(owner)
            self._leave(group, connection)
            if not number % REMOVED_AT_ONCE:
                yield
