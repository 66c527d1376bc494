"""One member of a controller group: a state machine for its role. No I/O, no clock.

A controller assigns the roles (`told`). A master sends its log to each slave through a `SlaveLink`,
maintains the SyncStateSet, and tracks which messages all members have. A slave follows its master
through a `MasterLink`. Actions for the caller are returned as a list of `Order`; bytes are read
from and written to the `EpochLog`.

The rules are the reference's (ReplicasManager, AutoSwitchHAService), except where those can lose
messages or mix two logs:

- A member that is connected but has not reported does not count as having everything.
- The members of every set that may be in effect have to acknowledge, see `SyncStateSet`.
- A new master labels its bytes with its own epoch even if the last epoch has no bytes yet. The
  reference leaves the older label, so that bytes of two masters can share one.
- A master that restarts does not continue in its former epoch. The controller may still receive a
  request for another SyncStateSet from before the restart. And after a power cut, slaves may have
  bytes of this epoch that the master has lost, and would not notice that it writes others in their
  place.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from pocketmq.broker.controller.epoch_log import EpochLog
from pocketmq.broker.controller.ha_frames import Handshake, MasterEpochs, Report, Transfer
from pocketmq.broker.controller.master_link import MasterLink
from pocketmq.broker.controller.settings import ReplicaSettings
from pocketmq.broker.controller.slave_link import NOT_YET, SlaveLink, UnfitSlave
from pocketmq.broker.controller.sync_state_set import SyncStateSet
from pocketmq.broker.replication.replica_waits import CopyStarts
from pocketmq.store.epochs import Epochs

BEFORE_ALL = 0
"""The epoch of bytes that were written before the broker had a controller."""


class Role(Enum):
    """The role of a member; a fenced one neither accepts sends nor follows a master."""

    FENCED = "FENCED"
    MASTER = "MASTER"
    SLAVE = "SLAVE"


class RoleTold(NamedTuple):
    """A controller's information about a group.

    Attributes:
        master_id, master_address: the master.
        master_epoch: increases with every election.
        members, set_epoch: the SyncStateSet; None if the message does not contain it.
    """

    master_id: int
    master_address: str
    master_epoch: int
    members: frozenset[int] | None = None
    set_epoch: int = 0


class Lead(NamedTuple):
    """Become master: complete the queues, start the services, accept sends."""

    epoch: int


class StayMaster(NamedTuple):
    """Stay master with a new epoch: register again, with the epoch as state version."""

    epoch: int


class Follow(NamedTuple):
    """Become slave of a master, or change the master: stop the services, connect to it."""

    master_id: int
    address: str
    epoch: int


class AskForSet(NamedTuple):
    """Ask the controller for this SyncStateSet, to replace that of `set_epoch`."""

    members: frozenset[int]
    set_epoch: int


class Drop(NamedTuple):
    """Close the connection of a slave."""

    link: SlaveLink


Order = Lead | StayMaster | Follow | AskForSet | Drop


class RoleRefused(Exception):
    """The role is refused; the text says why, and what to do."""


class Replica:
    """The state machine of one member. Times are milliseconds of one clock.

    `confirmed` is the confirmOffset from before the start.

    Attributes:
        role: its role.
        master: the last accepted information from the controller; None at first.
        set: the SyncStateSet, while it is master.
        links: the connected slaves, while it is master.
        link: the connection to its master, while it has one.
    """

    def __init__(
        self,
        settings: ReplicaSettings,
        log: EpochLog,
        epochs: Epochs,
        broker_id: int,
        *,
        confirmed: int = 0,
    ) -> None:
        self.settings = settings
        self.role = Role.FENCED
        self.master: RoleTold | None = None
        self.set = SyncStateSet()
        self.links: list[SlaveLink] = []
        self.link: MasterLink | None = None
        self._log = log
        self._id = broker_id
        self._epochs = epochs.until(log.end)
        self._confirmed = min(confirmed, log.end)
        self._reign_began = 0
        self._starts = CopyStarts()

    # --- state --------------------------------------------------------------------------------

    @property
    def epochs(self) -> Epochs:
        """The epochs of the log."""
        return self._epochs if self.link is None else self.link.epochs

    @property
    def confirmed(self) -> int:
        """The confirmOffset: consumers get only messages before it."""
        if self.alone or (self.role is Role.MASTER and not self.settings.all_ack):
            return self._own_end
        return self._confirmed if self.link is None else self.link.confirmed

    @property
    def refusal(self) -> str:
        """Why sends are refused now; empty if they are accepted."""
        if self.role is not Role.MASTER:
            return "this broker is not the master of its group"
        if self.set.size < self.settings.min_in_sync:
            return "in-sync replicas not enough"
        return ""

    def replicated(self, end: int) -> bool:
        """Tell whether enough replicas have the message that ends at the physical offset `end`."""
        if self.role is not Role.MASTER:
            return False
        if not self.settings.all_ack:
            return sum(link.has(end) for link in self.links) + 1 >= self.settings.in_sync_replicas
        needed = self.set.needed
        if len(needed) < self.settings.min_in_sync:
            return False
        having = {link.slave_id for link in self.links if link.has(end)}
        return needed <= having | {self._id}

    @property
    def copies_from(self) -> int:
        """The physical offset before which some connected slave is not known to have anything."""
        return max((link.holds_from for link in self.links), default=0)

    @property
    def _own_end(self) -> int:
        """The offset up to which this replica itself acknowledges."""
        log = self._log
        return min(log.flushed, log.end) if self.settings.ack_flushed else log.end

    @property
    def alone(self) -> bool:
        """Whether this is a master, and no other member has to acknowledge."""
        return self.role is Role.MASTER and self.set.needed <= {self._id}

    def _ack_of(self, member: int) -> int:
        """Return the offset that a member has acknowledged; NOT_YET if it is not connected."""
        return next((link.acked for link in self.links if link.slave_id == member), NOT_YET)

    # --- roles --------------------------------------------------------------------------------

    def told(self, told: RoleTold, now: int) -> list[Order]:
        """Process information from the controller, unless it is outdated.

        Raises:
            RoleRefused: the role cannot be taken now; nothing has changed.
            OSError: the log or the list of its epochs cannot be written; nothing has changed.
        """
        known = self.master
        if known is not None and told.master_epoch <= known.master_epoch:
            same = told.master_epoch == known.master_epoch and told.master_id == self._id
            if same and told.members is not None and self.role is Role.MASTER:
                return self.set_told(told.members, told.set_epoch, now)
            return []
        if told.master_epoch < self.epochs.last_epoch:
            raise RoleRefused(
                f"the controller says that broker {told.master_id} is master of epoch "
                f"{told.master_epoch}, but this log has messages of epoch "
                f"{self.epochs.last_epoch}: the controller has lost its data, or it is another "
                "group's"
            )
        if told.master_id != self._id:
            return self._follow(told)
        return self._lead(told, now)

    def _lead(self, told: RoleTold, now: int) -> list[Order]:
        log = self._log
        epoch = told.master_epoch
        orders: list[Order]
        if self.role is Role.MASTER:
            epochs = self.epochs.begun(epoch, log.end)
            if epochs != self._epochs:
                log.save_epochs(epochs)
            orders = [StayMaster(epoch)]
        else:
            epochs = self.epochs
            if epochs.last_epoch == epoch:
                raise RoleRefused(
                    "a restart ended this master's epoch; it waits until the controller has "
                    "elected a master"
                )
            log.cut_torn()
            epochs = self._for_reign(epochs.until(log.end), epoch)
            log.save_epochs(epochs)
            self._confirmed = min(self.confirmed, log.end)
            self.link = None
            orders = [Lead(epoch)]
        self._epochs = epochs
        self.role = Role.MASTER
        self.master = told
        self._reign_began = now
        members = told.members if told.members is not None else (self._id,)
        self.set.begin(members, told.set_epoch)
        self._confirm()
        return [*orders, *self._check_set(now)]

    def _for_reign(self, epochs: Epochs, epoch: int) -> Epochs:
        """Return the epochs of this log at the start of a master epoch."""
        end = self._log.end
        if not epochs and end:
            # The log of a formerly single broker: without an entry its bytes could not be sent.
            epochs = epochs.begun(BEFORE_ALL, 0)
        return epochs.cut(end).begun(epoch, end)

    def _follow(self, told: RoleTold) -> list[Order]:
        known = self.master
        self.master = told
        if self.role is Role.SLAVE and known is not None and known.master_id == told.master_id:
            if known.master_address == told.master_address:
                return []
            self.disconnected()
            return [Follow(told.master_id, told.master_address, told.master_epoch)]
        self._confirmed = self.confirmed
        dropped = [Drop(link) for link in self.links]
        self.links.clear()
        self.disconnected()
        self.role = Role.SLAVE
        return [*dropped, Follow(told.master_id, told.master_address, told.master_epoch)]

    # --- as slave -----------------------------------------------------------------------------

    def connected(self, now: int) -> MasterLink:
        """Return the rules of a new connection to the master. Raises OSError."""
        self.disconnected()
        self._log.cut_torn()
        self._epochs = self._epochs.until(self._log.end)
        self._confirmed = min(self._confirmed, self._log.end)
        self.link = MasterLink(
            self.settings, self._log, self._epochs, self._confirmed, self._id, now
        )
        return self.link

    def disconnected(self) -> None:
        """Remove the connection to the master."""
        if self.link is not None:
            self._epochs = self.link.epochs
            self._confirmed = self.link.confirmed
            self.link = None

    # --- as master ----------------------------------------------------------------------------

    def accepted(self, now: int) -> SlaveLink | None:
        """Return the rules of a slave's new connection; None if this is not a master (yet, or any
        longer)."""
        if self.role is not Role.MASTER:
            return None
        link = SlaveLink(self.settings, self._starts, now)
        self.links.append(link)
        return link

    def greeted(
        self, link: SlaveLink, frame: Handshake, now: int
    ) -> tuple[MasterEpochs | None, list[Order]]:
        """Process a slave's handshake; return the answer and orders. A new connection of a slave
        replaces an older one. Raises UnfitSlave."""
        if frame.broker_id == self._id:
            raise UnfitSlave(
                f"it has this broker's id {self._id}: its store was copied from here. Stop it, "
                "remove the file brokerIdentity from its store, and start it again"
            )
        older = [one for one in self.links if one.slave_id == frame.broker_id and one is not link]
        for one in older:
            self.links.remove(one)
            link.replaces(one, now)
        answer = link.greeted(frame, self._log, self.epochs, now)
        return answer, [Drop(one) for one in older]

    def reported(self, link: SlaveLink, frame: Report, now: int) -> list[Order]:
        """Process a slave's report. Raises UnfitSlave."""
        link.reported(frame, self._log, now)
        self._confirm()
        if link.slave_id in self.set.members:
            return []
        return self._check_set(now)

    def flushed(self) -> None:
        """Update the confirmOffset: more of the log is on the disk."""
        self._confirm()

    def next_transfer(self, link: SlaveLink, now: int) -> Transfer | None:
        """Return the range of bytes to send to a slave now; None if there are none and no heartbeat
        is due."""
        return link.next_transfer(self._log, self.epochs, self.confirmed, now)

    def closed(self, link: SlaveLink, now: int) -> list[Order]:
        """Process the end of a slave's connection."""
        if link not in self.links:
            return []
        self.links.remove(link)
        self._confirm()
        return self._check_set(now)

    def tick(self, now: int) -> list[Order]:
        """Check timeouts; call this about once a second."""
        if self.role is not Role.MASTER:
            return []
        self._epochs = self.epochs.expired(self._log.begin)
        lost = [link for link in self.links if link.is_lost(now)]
        orders: list[Order] = [Drop(link) for link in lost]
        for link in lost:
            self.links.remove(link)
        return [*orders, *self._check_set(now)]

    # --- the SyncStateSet ---------------------------------------------------------------------

    def set_told(self, members: Iterable[int], set_epoch: int, now: int) -> list[Order]:
        """Use a set from the controller if it is newer than the known one."""
        if self.role is not Role.MASTER or not self.set.told(members, set_epoch):
            return []
        self._confirm()
        return self._check_set(now)

    def set_answered(self, told: tuple[Iterable[int], int] | None, now: int) -> list[Order]:
        """Process the controller's answer to `AskForSet`: the new set and its epoch, or None if it
        did not answer. In that case, the next `tick` asks again."""
        self.set.answered()
        return [] if told is None else self.set_told(*told, now)

    def set_refused(self) -> list[Order]:
        """Process a refusal by the controller; the next `tick` asks again."""
        self.set.refused()
        self._confirm()
        return []

    def _check_set(self, now: int) -> list[Order]:
        """Ask for another set if members are gone or slaves have caught up."""
        if self.role is not Role.MASTER or self.set.asked:
            return []
        members = self.set.members | {self._id}
        wanted = frozenset(member for member in members if self._stays(member, now))
        if wanted == self.set.members:
            wanted |= self._caught_up()
        if wanted == self.set.members:
            return []
        self.set.ask(wanted)
        return [AskForSet(wanted, self.set.epoch)]

    def _stays(self, member: int, now: int) -> bool:
        if member == self._id:
            return True
        seen = [link.caught_up for link in self.links if link.slave_id == member]
        if not seen:
            return now - self._reign_began < self.settings.first_check
        return now - max(seen) <= self.settings.most_behind

    def _caught_up(self) -> frozenset[int]:
        """Return the slaves outside the set that have caught up.

        A slave that lacks only the newest messages starts to join: from now on sends wait for it,
        too, so it has caught up as soon as it has everything stored until now. Otherwise a master
        that is alone would stay alone under load.
        """
        last = self.epochs.last
        start = last.start if last is not None else 0
        near = {
            link.slave_id: link.acked
            for link in self.links
            if link.slave_id not in self.set.members
            and not link.learner
            and link.in_step
            and link.acked >= start
        }
        confirmed = self.confirmed
        self._confirmed = max(self._confirmed, confirmed)
        self.set.joining = frozenset(near)
        return frozenset(slave for slave, acked in near.items() if acked >= confirmed)

    def _confirm(self) -> None:
        """Advance the confirmOffset to the offset up to which every member has the log."""
        if self.role is not Role.MASTER:
            return
        others = self.set.needed - {self._id}
        acks = [self._own_end, *(self._ack_of(member) for member in others)]
        if NOT_YET not in acks:
            self._confirmed = max(self._confirmed, min(acks))
