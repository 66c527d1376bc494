"""Counts of something per peer address, for limits per address."""

from __future__ import annotations


class AddressCounts:
    """Counts by address. What is counted is removed again with the same address.

    Attributes:
        total: the sum of all.
    """

    def __init__(self) -> None:
        self.total = 0
        self._counts: dict[str, int] = {}

    def of(self, address: str) -> int:
        """Return the count of an address."""
        return self._counts.get(address, 0)

    def add(self, address: str) -> int:
        """Count one more; return the new count of its address."""
        self.total += 1
        count = self._counts[address] = self._counts.get(address, 0) + 1
        return count

    def remove(self, address: str) -> None:
        """Count one fewer."""
        self.total -= 1
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]
