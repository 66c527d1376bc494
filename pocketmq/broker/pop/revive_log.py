"""What one queue of the revive log says: which popped messages were not acknowledged. No I/O.

Checkpoints and acknowledgements come as they lie in the log, each checkpoint before what
acknowledges it. A checkpoint can be settled when its time is over and every acknowledgement that
was given before that is read: these are timed messages, so the timer must have delivered what is
due until then. For a checkpoint that did not pass through the timer, in this life of the broker,
there is no need to wait: `ack` has marked what came since.

The log is worked off up to the first checkpoint that is open. Reference: PopReviveService, which
reads the whole of it again every second and goes by the latest due time that it saw.
"""

from __future__ import annotations

import heapq

from pocketmq.broker.pop.check_point import AckMessage, CheckPoint, CheckPointId


class ReviveLog:
    """The open checkpoints of one queue of the revive log, read up to the offset `read_to`."""

    def __init__(self, read_to: int) -> None:
        self.read_to = read_to
        # In the order of the log.
        self._open: dict[CheckPointId, CheckPoint] = {}
        self._timed: list[tuple[int, int, CheckPointId]] = []
        self._direct: list[tuple[int, int, CheckPointId]] = []

    def __len__(self) -> int:
        """How many checkpoints are open."""
        return len(self._open)

    @property
    def settled_to(self) -> int:
        """The offset of the first record that a restart has to read again."""
        first = next(iter(self._open.values()), None)
        return self.read_to if first is None else first.revive_offset

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

    def take(self, now: int, delivered_until: int) -> CheckPoint | None:
        """Return a checkpoint that can be settled, the same one until `settled` is called; None if
        there is none. The timer has delivered everything that is due until `delivered_until`.
        Times are Unix ms.
        """
        for heap, time in ((self._direct, now), (self._timed, min(now, delivered_until))):
            if heap and heap[0][0] <= time:
                return self._open[heap[0][2]]
        return None

    def settled(self, point: CheckPoint) -> None:
        """Close a checkpoint that `take` gave."""
        id = point.id
        for heap in (self._direct, self._timed):
            if heap and heap[0][2] == id:
                heapq.heappop(heap)
        del self._open[id]

    def next_time(self) -> int | None:
        """Return when the time of the next open checkpoint is over (Unix ms)."""
        return min((heap[0][0] for heap in (self._direct, self._timed) if heap), default=None)
