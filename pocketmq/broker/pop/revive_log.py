"""The state of one queue of the revive log: which popped messages were not acknowledged. No I/O.

Checkpoints and acknowledgements are added in the order of the log, each checkpoint before its
acknowledgements. A checkpoint can be settled when its invisible time is over and every
acknowledgement from before that is read. Acknowledgements are timed messages, so the timer must
have delivered all messages due until then, and the log must be read up to its end at that time.
There is no need to wait for a checkpoint that did not pass through the timer since the broker
started: `ack` has marked its acknowledgements.

Of the checkpoints that can be settled, groups have one in turn: those of a group with a hundred
thousand of them take half a minute.

After a crash, the timer delivers again the messages that it had delivered since its last save. So
the log remembers the checkpoints that were settled recently, and skips them.

The progress is the first open checkpoint. Reference: PopReviveService, which reads all of this
again every second and uses the latest due time that it has seen.
"""

from __future__ import annotations

import heapq
from typing import Final

from pocketmq.broker.pop.check_point import AckMessage, CheckPoint, CheckPointId
from pocketmq.remoting.serving.rotation import Rotation

MOST_SETTLED: Final = 4_096
"""The number of settled checkpoints that are remembered."""
_MOVED: Final = 64
"""The number of checkpoints that `take` sorts by groups at most: 0.1 ms."""


class ReviveLog:
    """The open checkpoints of one queue of the revive log, read up to the offset `read_to`."""

    def __init__(self, read_to: int) -> None:
        self.read_to = read_to
        # In the order of the log.
        self._open: dict[CheckPointId, CheckPoint] = {}
        self._settled: dict[CheckPointId, None] = {}
        # Not known to be due: time, offset in the log, checkpoint.
        self._timed: list[tuple[int, int, CheckPointId]] = []
        self._direct: list[tuple[int, int, CheckPointId]] = []
        self._due: Rotation[CheckPoint] = Rotation()  # by group
        self._end = read_to
        self._delivered_until = 0  # the timer's progress when the log ended at `_end`
        self._complete_until = 0

    def __len__(self) -> int:
        """Return the number of open checkpoints."""
        return len(self._open)

    @property
    def settled_to(self) -> int:
        """The offset of the first record that a restart has to read again."""
        first = next(iter(self._open.values()), None)
        return self.read_to if first is None else first.revive_offset

    def extends(self, end: int, delivered_until: int) -> None:
        """Record that the log now ends at the offset `end`, and that the timer has delivered all
        messages due until `delivered_until` (Unix ms).

        Values are ignored until the log is read up to the `end` recorded before. So progress is
        made even while the log grows faster than it is read.
        """
        if self.read_to >= self._end:
            self._complete_until = self._delivered_until
            self._end, self._delivered_until = end, delivered_until

    def add(self, record: CheckPoint | AckMessage | None, offset: int, *, direct: bool) -> None:
        """Add the record at `offset` of the queue; None for an unknown record.

        `direct`: a checkpoint that did not pass through the timer, and was put since the broker
        started.
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
            # After a crash, the timer delivers messages again: keep only one of the checkpoints.
            known.bit_map |= point.bit_map
            return
        point.revive_offset = offset
        self._open[id] = point
        heap = self._direct if direct else self._timed
        heapq.heappush(heap, (point.revive_time, offset, id))

    def ack(self, id: CheckPointId, offset: int) -> bool:
        """Mark a message as acknowledged at once; return False if its checkpoint is not open."""
        point = self._open.get(id)
        return point is not None and point.ack(offset)

    def take(self, now: int) -> CheckPoint | None:
        """Return a checkpoint that can be settled at `now` (Unix ms); None if there is none. The
        result stays the same until `settled` is called."""
        if self.read_to >= self._end:
            self._complete_until = self._delivered_until
        moved = 0
        for heap, time in ((self._direct, now), (self._timed, min(now, self._complete_until))):
            while heap and heap[0][0] <= time and moved < _MOVED:
                point = self._open[heapq.heappop(heap)[2]]
                self._due.add(point.group, point)
                moved += 1
        return self._due.next

    def settled(self, point: CheckPoint) -> bool:
        """Close a checkpoint returned by `take`. Return whether an earlier checkpoint in the log is
        open: then a restart reads both again."""
        id = point.id
        self._due.take()
        del self._open[id]
        self.remember(id)
        return self.settled_to < point.revive_offset

    def remember(self, id: CheckPointId) -> None:
        """Record that a checkpoint was settled, since the broker started or before."""
        self._settled.pop(id, None)  # move it to the end
        self._settled[id] = None
        if len(self._settled) > MOST_SETTLED:
            del self._settled[next(iter(self._settled))]

    def next_time(self) -> int | None:
        """Return when the invisible time of the next open checkpoint is over (Unix ms)."""
        times = [heap[0][0] for heap in (self._direct, self._timed) if heap]
        if (due := self._due.next) is not None:
            times.append(due.revive_time)
        return min(times, default=None)
