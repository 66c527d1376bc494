"""Connections that wait to have their requests executed."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

C = TypeVar("C")


class Turns(Generic[C]):
    """Connections in the order in which they have their turns.

    The owners alternate, and the connections of one owner, a user or an address (`owner_of`), take
    turns among themselves: a client waits for one request of each other owner, and not for as many
    as the others have connections.
    """

    def __init__(self) -> None:
        self._of: dict[str, deque[C]] = {}  # the next owner first

    def __bool__(self) -> bool:
        return bool(self._of)

    def has(self, owner: str) -> bool:
        """Whether a connection of this owner waits."""
        return owner in self._of

    def add(self, owner: str, connection: C) -> None:
        """Append a connection to those of its owner."""
        self._of.setdefault(owner, deque()).append(connection)

    def take(self) -> C:
        """Remove and return the next connection. Raises StopIteration if there is none."""
        owner = next(iter(self._of))
        connections = self._of.pop(owner)
        connection = connections.popleft()
        if connections:
            self._of[owner] = connections
        return connection
