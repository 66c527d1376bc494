"""The SyncStateSet as its master sees it: the members that have every acknowledged message.

Only the controller changes the set. While it is asked to, the master cannot know which set counts:
a request may have been carried out although its answer was lost, or may still arrive. So until the
controller tells of a newer set, the members of every set that was asked for have to acknowledge.
"""

from __future__ import annotations

from collections.abc import Iterable

NO_MEMBERS: frozenset[int] = frozenset()


class SyncStateSet:
    """The ids of the members, and the epoch of the set.

    Attributes:
        members: as the controller told last.
        epoch: of that set.
        asked: whether a request is on its way.
        joining: slaves that are about to be asked for.
    """

    def __init__(self) -> None:
        self.members: frozenset[int] = NO_MEMBERS
        self.epoch = 0
        self.asked = False
        self.joining: frozenset[int] = NO_MEMBERS
        self._possible: frozenset[int] = NO_MEMBERS

    @property
    def needed(self) -> frozenset[int]:
        """The members that have to acknowledge: those of every set that may be in force, or be
        asked for next."""
        return self.members | self._possible | self.joining

    @property
    def size(self) -> int:
        """What is compared with minInSyncReplicas: of the sets that may be in force, the larger
        size."""
        return max(len(self.members), len(self._possible))

    def begin(self, members: Iterable[int], epoch: int) -> None:
        """Take the set of a new reign, whatever was known before."""
        self.members = frozenset(members)
        self.epoch = epoch
        self.asked = False
        self.joining = self._possible = NO_MEMBERS

    def ask(self, members: frozenset[int]) -> None:
        """Note that the controller is asked for this set."""
        self.asked = True
        self.joining = NO_MEMBERS
        self._possible |= members

    def told(self, members: Iterable[int], epoch: int) -> bool:
        """Take a set that the controller told; return whether it is newer."""
        if epoch <= self.epoch:
            return False
        self.members = frozenset(members)
        self.epoch = epoch
        self._possible = NO_MEMBERS
        return True

    def answered(self) -> None:
        """Note that the request is over, well or not."""
        self.asked = False
