"""A slave's end of the connection to its master."""

from __future__ import annotations

from pocketmq.broker.controller.epoch_log import CutRefused, EpochLog
from pocketmq.broker.controller.ha_frames import BadFrame, Handshake, MasterEpochs, Transfer
from pocketmq.broker.controller.settings import ReplicaSettings
from pocketmq.store.epochs import Epochs

RECONNECT_MS = 1_000
"""Pause after a connection failed or ended; the reference waits 5 s."""


class UnfitMaster(Exception):
    """This log cannot be continued with the master's; the text says what to do."""


class MasterLink:
    """A slave's knowledge of its master's log. Times are milliseconds of one clock.

    `epochs` are the epochs of this log; they stay unchanged if UnfitMaster is raised.

    Attributes:
        epochs: the epochs of this log; a new epoch is saved before its bytes are written.
        confirmed: the master's confirmOffset, or the end of this log if that is less.
        last_heard: when the master last sent something.
        last_reported: when the last report was sent.
    """

    def __init__(
        self,
        settings: ReplicaSettings,
        log: EpochLog,
        epochs: Epochs,
        confirmed: int,
        broker_id: int,
        now: int,
    ) -> None:
        self.epochs = epochs
        self.confirmed = confirmed
        self.last_heard = self.last_reported = now
        self._settings = settings
        self._log = log
        self._broker_id = broker_id
        self._transferring = False
        self._left = 0  # bytes of the last transfer still to be received
        self._told = 0  # the confirmOffset of that transfer
        self._reported = -1
        self._first_due = 0  # the first report waits until the log is flushed up to here

    def handshake(self) -> Handshake:
        """Return the handshake to send first."""
        return Handshake(self._broker_id, self._settings.from_last_file, self._settings.learner)

    def received(self, item: MasterEpochs | Transfer | memoryview, now: int) -> None:
        """Process an item from `MasterFrames`; afterwards a report may be due.

        Raises:
            BadFrame: the connection must be closed; a new one may work.
            UnfitMaster: no connection can work until an operator intervenes.
            OSError: the log cannot be written.
        """
        self.last_heard = now
        if isinstance(item, memoryview):
            self._log.append(item)
            self._left -= len(item)
            if not self._left:
                self._confirm()
        elif isinstance(item, Transfer):
            self._begin(item)
        elif self._transferring:
            raise BadFrame("a second answer to the handshake")
        else:
            self._join(item)

    def place_to_cut(self, master: MasterEpochs) -> int | None:
        """Return the offset at which this log must be truncated to continue as the master's; None
        if it can continue as it is. Raises UnfitMaster."""
        place = self._common(master)
        return place if place is not None and place < self._log.end else None

    def _join(self, master: MasterEpochs) -> None:
        """Truncate the log to the part that the master has."""
        common = self._common(master)
        if common is not None:
            self._cut(common)
        self._transferring = True
        self._first_due = self._log.end

    def _common(self, master: MasterEpochs) -> int | None:
        """Return the offset up to which both logs are the same; None if this one is empty."""
        log = self._log
        if log.end > log.begin and not self.epochs:
            raise UnfitMaster(
                "this store has messages, but none from a member of this group. If it is a copy of "
                "the master's store, copy the file epochFileCheckpoint as well; otherwise empty it "
                "(keep a copy), and start again"
            )
        if not self.epochs:
            return None
        common = self.epochs.common_end(log.end, master.epochs, master.end)
        if common is None and self._never_confirmed(master):
            common = 0
        if common is None or common < log.begin:
            raise UnfitMaster(
                f"this log and the master's have nothing in common: this one has the epochs "
                f"{self.epochs}, the master's {master.epochs}. Stop this broker, empty its store "
                "(keep a copy), and start it again"
            )
        return common

    def _never_confirmed(self, master: MasterEpochs) -> bool:
        """Tell whether no message of this log was ever confirmed: it comes from masters whose
        messages no other replica had, and a later master started with an empty log. If every member
        has only a part of the first record, bytes are confirmed, but no message."""
        own, other = self.epochs.entries, master.epochs.entries
        return (
            (not self.confirmed or self.confirmed < self._log.first_end)
            and bool(other)
            and own[0].start == other[0].start == 0
            and own[-1].epoch < other[0].epoch
        )

    def _cut(self, offset: int) -> None:
        log = self._log
        if offset < log.end:
            try:
                log.cut(offset)
            except CutRefused as error:
                raise UnfitMaster(str(error)) from None
        self.confirmed = min(self.confirmed, offset)
        kept = self.epochs.cut(offset)
        if kept != self.epochs:
            self.epochs = kept
            log.save_epochs(kept)

    def _begin(self, head: Transfer) -> None:
        log = self._log
        if not self._transferring:
            raise BadFrame("a transfer before the answer to the handshake")
        offset, size, epoch, epoch_start, self._told = head
        if offset < 0:
            return
        empty = log.begin == log.end
        if not empty and offset != log.end:
            raise BadFrame(f"it sends the physical offset {offset}, but this log ends at {log.end}")
        if empty and size and offset != log.end:
            if offset % log.file_size:
                raise UnfitMaster(
                    f"it sends the physical offset {offset} to an empty slave, where no file of "
                    f"{log.file_size} bytes begins: set mappedFileSizeCommitLog to the master's "
                    "value"
                )
            log.begin_at(offset)
        if offset % log.file_size + size > log.file_size:
            raise UnfitMaster(
                f"a frame of {size} bytes for the physical offset {offset} passes the end of a "
                f"file of {log.file_size} bytes: set mappedFileSizeCommitLog to the master's "
                "value, empty this store, and start again"
            )
        if size or not empty:
            self._enter(epoch, epoch_start)
        self._left = size
        if not size:
            self._confirm()

    def _enter(self, epoch: int, start: int) -> None:
        begun = self.epochs.begun(epoch, start)
        if begun != self.epochs:
            self._log.save_epochs(begun)
            self.epochs = begun

    def _confirm(self) -> None:
        self.confirmed = max(self.confirmed, min(self._told, self._log.end))

    def report(self, now: int) -> int | None:
        """Return the offset to report now; None if no report is due. The first report is due as
        soon as possible, since the master sends nothing before it."""
        log = self._log
        if not self._transferring:
            return None
        offset = log.end
        if self._settings.ack_flushed:
            if log.flushed < self._first_due:
                return None
            offset = min(log.flushed, offset)
        if offset > self._reported or now - self.last_reported > self._settings.heartbeat_interval:
            self._reported = offset
            self.last_reported = now
            return offset
        return None

    def is_lost(self, now: int) -> bool:
        """Tell whether the master has been silent for too long."""
        return now - self.last_heard > self._settings.housekeeping_interval
