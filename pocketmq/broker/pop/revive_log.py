"""What one queue of the revive log says: which popped messages were not acknowledged. No I/O.

Checkpoints and acknowledgements come as they lie in the log, each checkpoint before what
acknowledges it. A checkpoint can be settled when its time is over and every acknowledgement that
was given before that is read: these are timed messages, so the timer must have delivered what is
due until then, and the log must be read as far as it went at that time. For a checkpoint that did
not pass through the timer, in this life of the broker, there is no need to wait: `ack` has marked
what came since.

After a crash the timer delivers again what it had delivered since its last save. So the log knows
the checkpoints that were settled of late, and skips them.

The log is worked off up to the first checkpoint that is open. Reference: PopReviveService, which
reads the whole of it again every second and goes by the latest due time that it saw.
"""

from __future__ import annotations

import heapq
from typing import Final

from pocketmq.broker.pop.check_point import AckMessage, CheckPoint, CheckPointId

MOST_SETTLED: Final = 4_096
"""Settled checkpoints that are known."""


class ReviveLog:
    """The open checkpoints of one queue of the revive log, read up to the offset `read_to`."""

    def __init__(self, read_to: int) -> None:
        self.read_to = read_to
        # In the order of the log.
        self._open: dict[CheckPointId, CheckPoint] = {}
        self._settled: dict[CheckPointId, None] = {}
        self._timed: list[tuple[int, int, CheckPointId]] = []
        self._direct: list[tuple[int, int, CheckPointId]] = []
        self._end = read_to
        self._delivered_until = 0  # when the log ended at `_end`
        self._complete_until = 0

    def __len__(self) -> int:
        """How many checkpoints are open."""
        return len(self._open)

    @property
    def settled_to(self) -> int:
        """The offset of the first record that a restart has to read again."""
        first = next(iter(self._open.values()), None)
        return self.read_to if first is None else first.revive_offset

    def extends(self, end: int, delivered_until: int) -> None:
        """Note that the log ends at the offset `end` now, and that the timer has delivered what is
        due until `delivered_until` (Unix ms).

        This counts when the log is read up to what was noted before. So it counts now and then,
        also while the log grows faster than it is read.
        """
        if self.read_to >= self._end:
            self._complete_until = self._delivered_until
            self._end, self._delivered_until = end, delivered_until

    def add(self, record: CheckPoint | AckMessage | None, offset: int, *, direct: bool) -> None:
        """Take over the record at `offset` of the queue; None stands for one without meaning.

        `direct`: a checkpoint that did not pass through the timer, and was put in this life of the
        broker.
        """
        self.read_to = offset + 1
        if isinstance(record, CheckPoint):
            self._add(record, offset, direct=direct)
        elif record is not None:
            point = self._open.get(record.id)
            if point is not None:
                for acked in record.offsets:
                    point.ack(acked)

    def _add(self, point: CheckPoint, offset: int, *, direct: bool) -> None:
        if not point.topic or not point.group:
            return
        id = point.id
        if id in self._settled and point.put_again is None:
            return
        known = self._open.get(id)
        if known is not None:
            # After a crash the timer delivers what it delivered before: one of them is enough.
            known.bit_map |= point.bit_map
            return
        point.revive_offset = offset
        self._open[id] = point
        heap = self._direct if direct else self._timed
        heapq.heappush(heap, (point.revive_time, offset, id))

    def ack(self, id: CheckPointId, offset: int) -> bool:
        """Mark a message of an open checkpoint at once; False when that is not open."""
        point = self._open.get(id)
        return point is not None and point.ack(offset)

    def take(self, now: int) -> CheckPoint | None:
        """Return a checkpoint that can be settled at `now` (Unix ms), the same one until `settled`
        is called; None if there is none."""
        if self.read_to >= self._end:
            self._complete_until = self._delivered_until
        for heap, time in ((self._direct, now), (self._timed, min(now, self._complete_until))):
            if heap and heap[0][0] <= time:
                return self._open[heap[0][2]]
        return None

    def settled(self, point: CheckPoint) -> bool:
        """Close a checkpoint that `take` gave. Return whether one before it in the log is open: a
        restart reads both again."""
        id = point.id
        for heap in (self._direct, self._timed):
            if heap and heap[0][2] == id:
                heapq.heappop(heap)
        del self._open[id]
        self.remember(id)
        return self.settled_to < point.revive_offset

    def remember(self, id: CheckPointId) -> None:
        """Note that a checkpoint was settled, in this life of the broker or before."""
        self._settled.pop(id, None)  # to the end
        self._settled[id] = None
        if len(self._settled) > MOST_SETTLED:
            del self._settled[next(iter(self._settled))]

    def next_time(self) -> int | None:
        """Return when the time of the next open checkpoint is over (Unix ms)."""
        return min((heap[0][0] for heap in (self._direct, self._timed) if heap), default=None)
