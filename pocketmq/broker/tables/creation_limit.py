"""Limits the names that one connection may create in a table before the table is written.

Each name takes memory and makes the table's file longer. A client that keeps creating names must
not be faster than the disk.
"""

from __future__ import annotations

from typing import Final

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.serving.request import RequestConnection

MOST: Final = 1_024


class CreationLimit:
    """Counts the names that connections create in one table; `what` is for errors: "topics"."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._created: dict[RequestConnection, int] = {}

    def count(self, connection: RequestConnection) -> None:
        """Count a name that this connection is about to create.

        Raises RemotingError (SYSTEM_BUSY) if it has created MOST names since the last `clear`.
        """
        created = self._created.get(connection, 0)
        if created >= MOST:
            raise RemotingError(
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD]this connection created {created} {self._what} that are not on the "
                "disk yet",
            )
        self._created[connection] = created + 1

    def clear(self) -> None:
        """Reset all counts: the new names are being written."""
        self._created.clear()
