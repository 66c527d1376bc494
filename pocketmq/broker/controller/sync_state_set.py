"""The SyncStateSet on the master: the members that have every acknowledged message.

Only the controller changes the set. While a request for a change is pending, the master cannot know
which set is in effect: the request may have been executed although its answer was lost, or may
still arrive. So until the controller reports a newer set, the members of every requested set have
to acknowledge, except for requests that it refused: the refused slave may never acknowledge.
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
        self._wanted: frozenset[int] = NO_MEMBERS  # of the pending request
        self._possible: frozenset[int] = NO_MEMBERS  # of requests without an answer

    @property
    def needed(self) -> frozenset[int]:
        """The members that have to acknowledge: those of every set that may be in effect or will be
        requested next."""
        return self.members | self._possible | self._wanted | self.joining

    @property
    def size(self) -> int:
        """The size to compare with minInSyncReplicas: that of the largest set that may be in
        effect."""
        return max(len(self.members), len(self._possible | self._wanted))

    def begin(self, members: Iterable[int], epoch: int) -> None:
        """Replace the set by that of a new master epoch."""
        self.members = frozenset(members)
        self.epoch = epoch
        self.asked = False
        self.joining = self._wanted = self._possible = NO_MEMBERS

    def ask(self, members: frozenset[int]) -> None:
        """Record a request for this set."""
        self.asked = True
        self.joining = NO_MEMBERS
        self._wanted = members

    def told(self, members: Iterable[int], epoch: int) -> bool:
        """Use a set reported by the controller; return whether it is newer."""
        if epoch <= self.epoch:
            return False
        self.members = frozenset(members)
        self.epoch = epoch
        self._wanted = self._possible = NO_MEMBERS
        return True

    def answered(self) -> None:
        """Record the end of the request, successful or without an answer."""
        self.asked = False
        self._possible |= self._wanted
        self._wanted = NO_MEMBERS

    def refused(self) -> None:
        """Record that the controller refused the request: its set never takes effect."""
        self.asked = False
        self._wanted = NO_MEMBERS
