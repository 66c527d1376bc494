"""The SyncStateSet on the master: the members that have every acknowledged message.

Only the controller changes the set. While a request for a change is pending, the master cannot know
which set is in effect: the request may have been executed although its answer was lost, or may
still arrive. So until the controller reports a newer set, the members of every requested set have
to acknowledge.
"""

from __future__ import annotations

from collections.abc import Iterable

NO_MEMBERS: frozenset[int] = frozenset()


class SyncStateSet:
    """The ids of the members, and the epoch of the set.

    Attributes:
        members: the members in the controller's last report.
        epoch: the epoch of that set.
        asked: whether a request is pending.
        joining: slaves to be added with the next request.
    """

    def __init__(self) -> None:
        self.members: frozenset[int] = NO_MEMBERS
        self.epoch = 0
        self.asked = False
        self.joining: frozenset[int] = NO_MEMBERS
        self._possible: frozenset[int] = NO_MEMBERS

    @property
    def needed(self) -> frozenset[int]:
        """The members that have to acknowledge: those of every set that may be in effect or will be
        requested next."""
        return self.members | self._possible | self.joining

    @property
    def size(self) -> int:
        """The size to compare with minInSyncReplicas: that of the largest set that may be in
        effect."""
        return max(len(self.members), len(self._possible))

    def begin(self, members: Iterable[int], epoch: int) -> None:
        """Replace the set by that of a new master epoch."""
        self.members = frozenset(members)
        self.epoch = epoch
        self.asked = False
        self.joining = self._possible = NO_MEMBERS

    def ask(self, members: frozenset[int]) -> None:
        """Record a request for this set."""
        self.asked = True
        self.joining = NO_MEMBERS
        self._possible |= members

    def told(self, members: Iterable[int], epoch: int) -> bool:
        """Use a set reported by the controller; return whether it is newer."""
        if epoch <= self.epoch:
            return False
        self.members = frozenset(members)
        self.epoch = epoch
        self._possible = NO_MEMBERS
        return True

    def answered(self) -> None:
        """Record the end of the request, successful or not."""
        self.asked = False
