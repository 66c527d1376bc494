"""How many long polls wait, and how many of them may be one client's."""

from __future__ import annotations

from typing import Final

from pocketmq.remoting.address_counts import AddressCounts

#: The polls of one connection, and of one address, are at most one of so many parts of all.
_CONNECTION_SHARE: Final = 10
_ADDRESS_SHARE: Final = 2


class PollShares:
    """Counts the polls that wait, so that one client leaves room for those of others."""

    def __init__(self) -> None:
        self._waiting = AddressCounts()

    def are_full(self, limit: int, address: str, of_connection: int) -> bool:
        """Tell whether no other poll of a connection may wait.

        Args:
            limit: how many may wait in all.
            address: where the connection is from.
            of_connection: how many polls of it wait.
        """
        return (
            self._waiting.total >= limit
            or of_connection >= max(1, limit // _CONNECTION_SHARE)
            or self._waiting.of(address) >= max(1, limit // _ADDRESS_SHARE)
        )

    def add(self, address: str) -> None:
        """Count a poll that begins to wait."""
        self._waiting.add(address)

    def remove(self, address: str) -> None:
        """Count a poll no longer."""
        self._waiting.remove(address)
