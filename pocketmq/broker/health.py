"""The health of a broker as a member of its group, derived from facts. No I/O.

/ready, the metrics, brokerStatus, `pocketmq status` and the dashboard all show this.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from pocketmq.broker.tables.topic_config import PERM_READ, PERM_WRITE

#: With less than this, in bytes, a disk counts as full: the file of a new queue does not fit.
LEAST_FREE: Final = 1 << 20


class MemberRole(Enum):
    """The role of a member; a fenced one has no role in its controller group yet."""

    MASTER = "MASTER"
    SLAVE = "SLAVE"
    FENCED = "FENCED"


class DiskState(NamedTuple):
    """The disk of the commit log.

    Attributes:
        directory: a directory on it.
        free: bytes that the broker's user can still write.
        used_percent: how full it is, rounded up.
        warning_percent: diskSpaceWarningLevelRatio.
        trouble: why the store cannot write; empty if no reason is known.
        flush_failed: a flush failed, so only a restart helps.
    """

    directory: str
    free: int
    used_percent: int
    warning_percent: int
    trouble: str = ""
    flush_failed: bool = False

    @property
    def problem(self) -> str:
        """Why messages cannot be stored; empty if they can."""
        if self.flush_failed:
            return f"{self.trouble}; only a restart of this broker helps"
        if self.trouble:
            return self.trouble
        if self.free < LEAST_FREE:
            return f"the disk of {self.directory} is full: {self.free} bytes are free"
        return ""

    @property
    def remark(self) -> str:
        """A warning to operators while messages are still stored; empty if there is none."""
        if self.problem or self.used_percent <= self.warning_percent:
            return ""
        return (
            f"the disk of {self.directory} is {self.used_percent} % full, which is above "
            f"diskSpaceWarningLevelRatio ({self.warning_percent} %)"
        )


class MasterLink(NamedTuple):
    """A slave's connection to its master.

    Attributes:
        master: the master's address; empty while it is not known.
        connected: whether the slave copies it now.
        seconds: how long it has been connected, or not.
        lag: bytes of the master's log that the slave lacks; None while that is not known.
        most_lag: haMaxGapNotInSync: with this lag or more, the slave is not in sync.
        in_set: whether the slave is in the SyncStateSet of its controller group, by the last report
            of a controller; None without a group, and for a learner, which never is in the set.
        trouble: why the last connection failed or ended; empty once one works.
    """

    master: str
    connected: bool
    seconds: float
    lag: int | None
    most_lag: int
    in_set: bool | None = None
    trouble: str = ""

    @property
    def problem(self) -> str:
        """Why the slave is not in sync; empty if it is."""
        if not self.master:
            return "the master of this slave is not known" + self._why
        if not self.connected:
            return f"not connected to the master {self.master} for {self.seconds:.0f} s{self._why}"
        if self.trouble:
            return f"the master {self.master} is not copied: {self.trouble}"
        if self.lag is None:
            return f"the master {self.master} has not reported the end of its log yet"
        if self.lag >= self.most_lag:
            return (
                f"{self.lag} bytes behind the master {self.master} "
                f"(in sync below {self.most_lag}, haMaxGapNotInSync)"
            )
        if self.in_set is False:
            return "not in the SyncStateSet of its group yet"
        return ""

    @property
    def _why(self) -> str:
        return f": {self.trouble}" if self.trouble else ""


class MemberHealth(NamedTuple):
    """One member at one moment.

    Attributes:
        role: its role.
        epoch: the master epoch of its role; None outside a controller group.
        permission: brokerPermission.
        disk: of its commit log.
        link: to its master; None on a master.
        refusal: why the store refuses puts, other than the disk; empty if it accepts them.
        unregistered: why no client can find it; empty if clients can.
        copies, copies_needed: of a master: the number of members in sync, including itself, and the
            number that a send waits for.
    """

    role: MemberRole
    permission: int
    disk: DiskState
    epoch: int | None = None
    link: MasterLink | None = None
    refusal: str = ""
    unregistered: str = ""
    copies: int = 1
    copies_needed: int = 1

    @property
    def problems(self) -> tuple[str, ...]:
        """Why it is not ready."""
        link = "" if self.link is None else self.link.problem
        refusal = "" if self.role is MemberRole.SLAVE else self.refusal
        return tuple(filter(None, (self.disk.problem, link, refusal, self.unregistered)))

    @property
    def remarks(self) -> tuple[str, ...]:
        """Warnings to operators while it is ready."""
        found = [self.disk.remark]
        if not self.permission & PERM_WRITE:
            found.append(
                f"drained: brokerPermission is {self.permission}, so producers choose others"
            )
        if not self.permission & PERM_READ:
            found.append(f"brokerPermission is {self.permission}, so nothing can be read")
        if self.role is MemberRole.MASTER and self.copies < self.copies_needed:
            found.append(
                f"sends wait for {self.copies_needed} copies, but only {self.copies} are in sync"
            )
        return tuple(filter(None, found))

    @property
    def ready(self) -> bool:
        """Whether it fulfils its role: a master stores messages, a slave is in sync."""
        return not self.problems

    @property
    def accepts_sends(self) -> bool:
        """Whether a producer may send to it."""
        is_master = self.role is MemberRole.MASTER
        can_store = not self.disk.problem and not self.refusal
        return is_master and can_store and bool(self.permission & PERM_WRITE)

    @property
    def reasons(self) -> tuple[str, ...]:
        """All problems and remarks, the worst first."""
        return (*self.problems, *self.remarks)
