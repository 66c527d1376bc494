"""What each of many clients has of something that is limited."""

from __future__ import annotations

from typing import Any


class Shares:
    """Numbers by owner: a user or an address (`owner_of`), a connection. What is added is removed
    again with the same owner.

    Attributes:
        total: the sum of all.
    """

    def __init__(self) -> None:
        self.total = 0
        self._of: dict[Any, int] = {}

    def of(self, owner: Any) -> int:
        """Return the share of an owner."""
        return self._of.get(owner, 0)

    def add(self, owner: Any, amount: int = 1) -> int:
        """Add to the share of an owner; return the new share."""
        self.total += amount
        share = self._of.get(owner, 0) + amount
        if share:
            self._of[owner] = share
        else:
            self._of.pop(owner, None)
        return share

    def remove(self, owner: Any, amount: int = 1) -> int:
        """Take away from the share of an owner; return what is left."""
        return self.add(owner, -amount)
