"""The number of waiting long polls, and the share that one client may have."""

from __future__ import annotations

from typing import Final

from pocketmq.remoting.serving.request import Owner
from pocketmq.remoting.shares import Shares

#: One connection, and one owner, may have at most one such part of the limit.
_CONNECTION_SHARE: Final = 10
_OWNER_SHARE: Final = 2


class PollShares:
    """Counts waiting polls, so that one client cannot use up the limit."""

    def __init__(self) -> None:
        self._waiting = Shares()

    def are_full(self, limit: int, owner: Owner, of_connection: int) -> bool:
        """Tell whether another poll of a connection would exceed a limit.

        Args:
            limit: the most waiting polls of all clients.
            owner: of the poll's request.
            of_connection: the waiting polls of the connection.
        """
        return (
            self._waiting.total >= limit
            or of_connection >= max(1, limit // _CONNECTION_SHARE)
            or self._waiting.of(owner) >= max(1, limit // _OWNER_SHARE)
        )

    def add(self, owner: Owner) -> None:
        """Count a poll that starts to wait."""
        self._waiting.add(owner)

    def remove(self, owner: Owner) -> None:
        """Stop counting a poll."""
        self._waiting.remove(owner)
