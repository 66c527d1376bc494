"""A master's end of the connection to one slave."""

from __future__ import annotations

from pocketmq.broker.controller.epoch_log import EpochLog
from pocketmq.broker.controller.ha_frames import Handshake, MasterEpochs, Report, Transfer
from pocketmq.broker.controller.settings import ReplicaSettings
from pocketmq.broker.replication.replica_waits import CopyStarts
from pocketmq.store.epochs import Epochs

NOT_YET = -1
IN_TURN_MS = 60_000
"""If a connection replaces another one, and is itself replaced within this time, two brokers have
the same id. A slave that reconnects after a failure does not use the older connection again."""


class UnfitSlave(Exception):
    """The slave's log cannot be continued with this one; the text says what to do."""


class SlaveLink:
    """A master's knowledge of a connected slave. Times are milliseconds of one clock. `starts` is
    shared by all slaves of a master.

    Attributes:
        slave_id: NOT_YET before the handshake.
        learner: it never becomes a member of the SyncStateSet.
        acked: physical offset up to which the slave has the log; NOT_YET before its first report.
        holds_from: physical offset before which the slave is not known to have anything.
        next: physical offset of the next byte to send; NOT_YET before the first report.
        caught_up: when the slave last had the whole log.
        last_heard, last_sent: when the slave last sent something, and when it was last sent
            something.
        in_turn: two brokers with this id seem to disconnect each other.
    """

    def __init__(self, settings: ReplicaSettings, starts: CopyStarts, now: int) -> None:
        self.slave_id = self.acked = self.next = NOT_YET
        self.learner = self.in_turn = False
        self.caught_up = self.last_heard = self.last_sent = now
        self.holds_from = 0
        self._settings = settings
        self._starts = starts
        self._from_last_file = False
        self._replaced_at: int | None = None
        self._master_end = 0  # the end of the master's log when it last sent something
        self._sent_at = now  # the time of that

    def greeted(
        self, frame: Handshake, log: EpochLog, epochs: Epochs, now: int
    ) -> MasterEpochs | None:
        """Process a handshake; return the answer. None for a repeated handshake after the first
        report: the slave would treat an answer as an error. (The official slave repeats a handshake
        if the answer takes longer than 5 s.)"""
        self.last_heard = now
        if self.next != NOT_YET or self.acked != NOT_YET:
            return None
        self.slave_id = frame.broker_id
        self.learner = frame.learner
        self._from_last_file = frame.from_last_file
        self.last_sent = now
        return MasterEpochs(log.end, epochs)

    def replaces(self, older: SlaveLink, now: int) -> None:
        """Replace an open connection of the same slave."""
        at = older._replaced_at
        self.in_turn = at is not None and now - at <= IN_TURN_MS
        self._replaced_at = now

    def reported(self, frame: Report, log: EpochLog, now: int) -> None:
        """Process a report. Raises UnfitSlave."""
        self.last_heard = now
        offset = frame.offset
        if self.slave_id == NOT_YET:
            raise UnfitSlave(
                "it reports without a handshake: it is not in controller mode "
                "(enableControllerMode), or it is not a broker"
            )
        if offset > log.end:
            raise UnfitSlave(
                f"its log ends at the physical offset {offset}, but this one at {log.end}: it has "
                "bytes that are not from this group. Stop it, empty its store (keep a copy), and "
                "start it again"
            )
        if self.acked == NOT_YET and 0 < offset < log.begin:
            raise UnfitSlave(
                f"its log ends at the physical offset {offset}, but this one begins at "
                f"{log.begin}: the log in between has expired. Stop it, empty its store, and start "
                "it again"
            )
        if self.acked == NOT_YET and offset:
            self.holds_from = self._starts.of_other(offset)
        self.acked = max(self.acked, offset)
        if self.acked == log.end:
            self.caught_up = max(self.caught_up, now)
        elif self.acked >= self._master_end:
            self.caught_up = max(self.caught_up, self._sent_at)

    def has(self, end: int) -> bool:
        """Tell whether the slave has the message that ends at the physical offset `end`."""
        return self.holds_from < end <= self.acked

    @property
    def in_step(self) -> bool:
        """Whether the slave has the whole log as of the last transfer to it."""
        return self.acked != NOT_YET and self.acked >= self._master_end

    def next_transfer(
        self, log: EpochLog, epochs: Epochs, confirmed: int, now: int
    ) -> Transfer | None:
        """Return the range of bytes to send now, and count it as sent; None if there are none and
        no heartbeat is due."""
        if self.acked == NOT_YET:
            return None
        heartbeat_due = now - self.last_sent > self._settings.heartbeat_interval
        if self.next == NOT_YET:
            if log.begin == log.end:
                return self._heartbeat(-1, epochs, confirmed, now) if heartbeat_due else None
            self.next = self._first(log)
        begin = self.next
        entry = epochs.at(begin)
        size = 0
        if entry is not None:
            file_end = begin - begin % log.file_size + log.file_size
            epoch_end = epochs.end_of(entry, log.end)
            size = min(epoch_end, file_end, begin + self._settings.batch_size) - begin
        if entry is not None and size > 0:
            self.next = begin + size
            self.last_sent = self._sent_at = now
            self._master_end = log.end
            return Transfer(begin, size, *entry, confirmed)
        return self._heartbeat(begin, epochs, confirmed, now) if heartbeat_due else None

    def _first(self, log: EpochLog) -> int:
        if self.acked:
            return self.acked
        # An empty slave must start where a file of the master starts.
        start = log.begin
        if self._from_last_file:
            start = max(log.end - log.end % log.file_size, start)
        self.holds_from = self._starts.of_empty(start)
        return start

    def _heartbeat(self, offset: int, epochs: Epochs, confirmed: int, now: int) -> Transfer | None:
        entry = epochs.at(max(offset, 0)) or (epochs.entries[0] if epochs else None)
        if entry is None:
            return None
        self.last_sent = now
        return Transfer(offset, 0, *entry, confirmed)

    def is_lost(self, now: int) -> bool:
        """Tell whether the slave has been silent for too long."""
        return now - self.last_heard > self._settings.housekeeping_interval
