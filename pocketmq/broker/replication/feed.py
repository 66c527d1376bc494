"""What a classic master sends to one slave, and when. No sockets, no clock.

The slave's first report is its request: from that offset on it gets the log, in frames that never
cross the end of a file. An empty slave gets the newest file only, as in the reference. An
impossible report ends the connection: a slave that is ahead of its master has another log, and
would mix the two as soon as the master has passed that offset. (The official master accepts such a
report, and treats all messages as replicated from then on.)
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pocketmq.broker.replication.frames import Head
from pocketmq.broker.replication.replica_waits import CopyStarts

NOT_YET: Final = -1


class LogSpan(NamedTuple):
    """The part of a commit log that can be sent.

    Attributes:
        begin: physical offset of the first byte.
        end: physical offset after the last byte that can be sent.
        file_size: mappedFileSizeCommitLog.
    """

    begin: int
    end: int
    file_size: int


class UnfitSlave(Exception):
    """The slave's log cannot be continued with this one; the text says what to do."""


class Feed:
    """The state of one slave's connection; times are seconds of one clock. `starts` is shared by
    all connections of a master.

    Attributes:
        acked: physical offset up to which the slave has the log; NOT_YET before its first report.
        next: physical offset of the next byte to send; NOT_YET before the first report.
        began: physical offset at which the transfer began.
        holds_from: physical offset before which the slave is not known to have anything.
        last_heard, last_sent: when the slave last sent something, and when it was last sent
            something.
    """

    def __init__(
        self,
        starts: CopyStarts,
        *,
        batch_size: int,
        heartbeat_interval: float,
        housekeeping_interval: float,
        now: float,
    ) -> None:
        self.acked = self.next = self.began = NOT_YET
        self.holds_from = 0
        self.last_heard = self.last_sent = now
        self._starts = starts
        self._batch_size = batch_size
        self._heartbeat = heartbeat_interval
        self._housekeeping = housekeeping_interval

    def report(self, offset: int, log: LogSpan, now: float) -> None:
        """Process a report of the slave. Raises UnfitSlave."""
        if offset > log.end:
            raise UnfitSlave(
                f"it reports the physical offset {offset}, but this log ends at {log.end}: it has "
                "bytes that are not from here, or it is not a slave. If it is one, stop it, empty "
                "its store (keep a copy), and start it again"
            )
        if self.next == NOT_YET:
            self._begin(offset, log)
        self.acked = max(self.acked, offset)
        self.last_heard = now

    def _begin(self, offset: int, log: LogSpan) -> None:
        if offset == 0:
            offset = max(log.end - log.end % log.file_size, log.begin)
            self.holds_from = self._starts.of_empty(offset)
        elif offset < log.begin:
            raise UnfitSlave(
                f"its log ends at the physical offset {offset}, but this one begins at "
                f"{log.begin}: the log in between has expired. Stop the slave, empty its store, "
                "and start it again"
            )
        else:
            self.holds_from = self._starts.of_other(offset)
        self.next = self.began = offset

    def next_frame(self, log: LogSpan, now: float) -> Head | None:
        """Return the range of bytes to send now, and count it as sent; None if there are none and
        no heartbeat is due."""
        begin = self.next
        if begin == NOT_YET:
            return None
        file_end = begin - begin % log.file_size + log.file_size
        size = min(log.end, file_end, begin + self._batch_size) - begin
        if size > 0:
            self.next = begin + size
            self.last_sent = now
            return Head(begin, size)
        if now - self.last_sent > self._heartbeat:
            self.last_sent = now
            return Head(begin, 0)
        return None

    def is_lost(self, now: float) -> bool:
        """Tell whether the slave has been silent for too long."""
        return now - self.last_heard > self._housekeeping

    def in_sync(self, end: int, most_gap: int) -> bool:
        """Tell whether the slave lags behind the physical offset `end` by less than `most_gap`
        bytes."""
        return self.acked != NOT_YET and end - self.acked < most_gap
