"""What a classic slave accepts from its master, and when it reports. No sockets, no clock.

The bytes of a frame must continue the slave's log exactly. If they do not, the connection is
closed; a slave never truncates its log by itself. `store.recovery.log_follower` checks each record
in the bytes.
"""

from __future__ import annotations

from pocketmq.broker.replication.frames import BadFrame, Head

RECONNECT_SECONDS = 5.0


class Intake:
    """The state of a slave's connection; times are seconds of one clock.

    `file_size` is the slave's mappedFileSizeCommitLog.

    Attributes:
        reported: the last reported offset.
        last_heard, last_reported: when the master last sent something, and when the last report was
            sent.
        master_end: the last known end of the master's log: the end of its last frame.
    """

    def __init__(
        self, file_size: int, *, heartbeat_interval: float, housekeeping_interval: float, now: float
    ) -> None:
        self.reported = -1
        self.last_heard = self.last_reported = now
        self.master_end = 0
        self._file_size = file_size
        self._heartbeat = heartbeat_interval
        self._housekeeping = housekeeping_interval

    def check(self, head: Head, own_end: int, now: float) -> None:
        """Check the header of a frame before its body arrives; `own_end` is the end of the log.

        Raises BadFrame if the frame does not continue the log.
        """
        self.last_heard = now
        offset, size = head
        if own_end and offset != own_end:
            raise BadFrame(f"it sends the physical offset {offset}, but this log ends at {own_end}")
        if not own_end and size and offset % self._file_size:
            raise BadFrame(
                f"it sends the physical offset {offset} to an empty slave, where no file of "
                f"{self._file_size} bytes begins: set mappedFileSizeCommitLog to the master's value"
            )
        into = offset % self._file_size
        if into + size > self._file_size:
            raise BadFrame(
                f"a frame of {size} bytes for the physical offset {offset} crosses the end of a "
                f"file of {self._file_size} bytes: set mappedFileSizeCommitLog to the master's "
                "value, empty this store, and start again"
            )
        self.master_end = offset + size

    def report(self, own_end: int, now: float) -> int | None:
        """Return the offset to report now; None if no report is due. The first report is due at
        once, since the master sends nothing before it."""
        if own_end > self.reported or now - self.last_reported > self._heartbeat:
            self.reported = own_end
            self.last_reported = now
            return own_end
        return None

    def is_lost(self, now: float) -> bool:
        """Tell whether the master has been silent for too long."""
        return now - self.last_heard > self._housekeeping
