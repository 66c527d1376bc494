"""One member of a controller group: its role, and what follows from it. No I/O, no clock.

A controller tells the roles (`told`). A master feeds its slaves through a `SlaveLink` each, keeps
the SyncStateSet, and knows which messages every member has. A slave follows its master through a
`MasterLink`. Whatever is to be done outside comes back as a list of `Order`; bytes go through the
`EpochLog`.

The rules are the reference's (ReplicasManager, AutoSwitchHAService), except where those can lose
or splice messages:

- A member that is connected but has not reported does not count as having everything.
- The members of each set that may be in force have to acknowledge, see `SyncStateSet`.
- A new master labels its bytes with its own epoch even if the last epoch has no byte yet. The
  reference leaves the older label, so that bytes of two masters can share one.
- A master that is started again within its own reign does not go on in it. A request for another
  SyncStateSet, of before, may still arrive at the controller. And after a power cut, slaves may
  have bytes of this epoch that it has lost, and would not notice that others take their place.
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
from pocketmq.store.epochs import Epochs

BEFORE_ALL = 0
"""The epoch of bytes that were written before the first controller came."""


class Role(Enum):
    """What a member does; a fenced one takes no sends, and follows nobody."""

    FENCED = "FENCED"
    MASTER = "MASTER"
    SLAVE = "SLAVE"


class RoleTold(NamedTuple):
    """What a controller says of a group.

    Attributes:
        master_id, master_address: the master.
        master_epoch: its reign; it grows with every election.
        members, set_epoch: the SyncStateSet; None where the answer does not have it.
    """

    master_id: int
    master_address: str
    master_epoch: int
    members: frozenset[int] | None = None
    set_epoch: int = 0


class Lead(NamedTuple):
    """Become master: enter everything into the queues, start the services, take sends."""

    epoch: int


class StayMaster(NamedTuple):
    """The same master has a new reign: register again, with its epoch as state version."""

    epoch: int


class Follow(NamedTuple):
    """Become slave of a master, or of another one: stop the services, connect to it."""

    master_id: int
    address: str
    epoch: int


class AskForSet(NamedTuple):
    """Ask the controller for this SyncStateSet, in place of the one of `set_epoch`."""

    members: frozenset[int]
    set_epoch: int


class Drop(NamedTuple):
    """Close the connection of a slave."""

    link: SlaveLink


Order = Lead | StayMaster | Follow | AskForSet | Drop


class RoleRefused(Exception):
    """The role cannot be taken; the text says why, and what to do."""


class Replica:
    """The state machine of one member. Times are milliseconds of one clock.

    `confirmed` is the confirmOffset of before the start.

    Attributes:
        role: what it does.
        master: what the controller said last, as far as it was taken; None at first.
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

    # --- what others want to know -------------------------------------------------------------

    @property
    def epochs(self) -> Epochs:
        """The epochs of the log."""
        return self._epochs if self.link is None else self.link.epochs

    @property
    def confirmed(self) -> int:
        """The confirmOffset: consumers see nothing behind it."""
        if self.alone or (self.role is Role.MASTER and not self.settings.all_ack):
            return self._own_end
        return self._confirmed if self.link is None else self.link.confirmed

    @property
    def refusal(self) -> str:
        """Why sends are refused at the moment; empty while they are not."""
        if self.role is not Role.MASTER:
            return "this broker is not the master of its group"
        if self.set.size < self.settings.min_in_sync:
            return "in-sync replicas not enough"
        return ""

    def replicated(self, end: int) -> bool:
        """Return whether enough replicas have the log up to the physical offset `end`."""
        if self.role is not Role.MASTER:
            return False
        if not self.settings.all_ack:
            acks = sum(link.acked >= end for link in self.links)
            return acks + 1 >= self.settings.in_sync_replicas
        needed = self.set.needed
        if len(needed) < self.settings.min_in_sync:
            return False
        return all(self._ack_of(member) >= end for member in needed if member != self._id)

    @property
    def _own_end(self) -> int:
        """What this replica itself would acknowledge."""
        log = self._log
        return min(log.flushed, log.end) if self.settings.ack_flushed else log.end

    @property
    def alone(self) -> bool:
        """Whether this is a master, and no other member has to acknowledge."""
        return self.role is Role.MASTER and self.set.needed <= {self._id}

    def _ack_of(self, member: int) -> int:
        """What a member has acknowledged; NOT_YET when it is not connected."""
        return next((link.acked for link in self.links if link.slave_id == member), NOT_YET)

    # --- roles --------------------------------------------------------------------------------

    def told(self, told: RoleTold, now: int) -> list[Order]:
        """Take what the controller said, unless it is older than what is known.

        Raises:
            RoleRefused: the role cannot be taken, at least not now; nothing has changed.
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
                    "a restart ended this broker's reign; it waits until the controller has "
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
        """The list with which this log begins a reign."""
        end = self._log.end
        if not epochs and end:
            # The log of a single broker: without an entry its bytes could not be sent.
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
        """The connection to the master is over."""
        if self.link is not None:
            self._epochs = self.link.epochs
            self._confirmed = self.link.confirmed
            self.link = None

    # --- as master ----------------------------------------------------------------------------

    def accepted(self, now: int) -> SlaveLink | None:
        """Return the rules of a slave's new connection; None for one that comes too early or too
        late: this is not a master."""
        if self.role is not Role.MASTER:
            return None
        link = SlaveLink(self.settings, now)
        self.links.append(link)
        return link

    def greeted(
        self, link: SlaveLink, frame: Handshake, now: int
    ) -> tuple[MasterEpochs | None, list[Order]]:
        """Take a slave's handshake; return the answer, and what is to be done. Of two connections
        of one slave the newer one counts. Raises UnfitSlave."""
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
        """Take a slave's report. Raises UnfitSlave."""
        link.reported(frame, self._log, now)
        self._confirm()
        if link.slave_id in self.set.members:
            return []
        return self._check_set(now)

    def flushed(self) -> None:
        """More of the log is on the disk."""
        self._confirm()

    def next_transfer(self, link: SlaveLink, now: int) -> Transfer | None:
        """Return which bytes to send to a slave now; None when there are none and no heartbeat is
        due."""
        return link.next_transfer(self._log, self.epochs, self.confirmed, now)

    def closed(self, link: SlaveLink, now: int) -> list[Order]:
        """A slave's connection is over."""
        if link not in self.links:
            return []
        self.links.remove(link)
        self._confirm()
        return self._check_set(now)

    def tick(self, now: int) -> list[Order]:
        """Look at what time has brought; about once a second."""
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
        """Take the set as the controller has it, if it is newer than what is known."""
        if self.role is not Role.MASTER or not self.set.told(members, set_epoch):
            return []
        self._confirm()
        return self._check_set(now)

    def set_answered(self, told: tuple[Iterable[int], int] | None, now: int) -> list[Order]:
        """Take the controller's answer to `AskForSet`: the new set and its epoch, or None when it
        refused or did not answer. Then the set is asked for again at the next `tick`."""
        self.set.answered()
        return [] if told is None else self.set_told(*told, now)

    def _check_set(self, now: int) -> list[Order]:
        """Ask for another set, if members are gone, or slaves have caught up."""
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
        """The slaves that have everything that counts, and are not members.

        A slave that lacks only what was stored in the last moment is made to join: from now on
        sends wait for it, too, and so it has everything as soon as it has what there is now.
        Without that, a master that is alone under load would stay alone.
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
        """Move the confirmOffset on, as far as every member has the log."""
        if self.role is not Role.MASTER:
            return
        others = self.set.needed - {self._id}
        acks = [self._own_end, *(self._ack_of(member) for member in others)]
        if NOT_YET not in acks:
            self._confirmed = max(self._confirmed, min(acks))
