"""Checkpoints in memory, and the progress of consumer offsets. No I/O.

Most messages are acknowledged soon. So a checkpoint stays in memory for a while, and
acknowledgements are marked in it. If all arrive in time, it is never written. Otherwise it is
written to the revive log after popCkStayBufferTime, or popCkStayBufferTimeOut before its messages
become visible again.

The consumer offset of a queue advances past a checkpoint when this and all earlier checkpoints are
written or completely acknowledged. So after a crash, a group continues before the first checkpoint
that was only in memory: messages are delivered again, but none is lost. Meanwhile, pops read from
`latest_offset` on. Reference: PopBufferMergeService.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.pop.check_point import (
    AckMessage,
    CheckPoint,
    CheckPointId,
    batch_ack,
    single_ack,
)

SPARE_MS: Final = 1_500
"""A checkpoint that must be written within this time is written at once."""
BUCKET_MS: Final = 100

#: Topic, group, queue id.
PopQueue: TypeAlias = tuple[str, str, int]
#: Group, topic, queue id, offset.
Commit: TypeAlias = Callable[[str, str, int, int], None]


class BufferedCheckPoint:
    """A checkpoint and its state in memory.

    Attributes:
        offsets: queue offsets of its messages, ascending.
        waiting: queue offsets that are not acknowledged.
        next_offset: the queue offset after the last message that the pop examined.
        done: the consumer offset may advance past it.
        write_at: when it must be written (Unix ms).
    """

    __slots__ = (
        "done",
        "id",
        "invisible_time",
        "next_offset",
        "offsets",
        "queue",
        "revive_queue_id",
        "waiting",
        "write_at",
    )

    def __init__(
        self,
        id: CheckPointId,
        offsets: Sequence[int],
        invisible_time: int,
        revive_queue_id: int,
        next_offset: int,
    ) -> None:
        self.id = id
        self.queue: PopQueue = (id.topic, id.group, id.queue_id)
        self.offsets = offsets
        self.waiting = set(offsets)
        self.invisible_time = invisible_time
        self.revive_queue_id = revive_queue_id
        self.next_offset = next_offset
        self.done = False
        self.write_at = 0

    @property
    def revive_time(self) -> int:
        """When its messages become visible again (Unix ms)."""
        return self.id.pop_time + self.invisible_time

    def check_point(self, broker_name: str, created: int = 0) -> CheckPoint:
        """Return the record for the revive log, without acknowledgements. `created` is the physical
        offset at which the topic was created."""
        start = self.id.start_offset
        return CheckPoint(
            broker_name=broker_name,
            created=created,
            group=self.id.group,
            differences=[offset - start for offset in self.offsets],
            invisible_time=self.invisible_time,
            num=len(self.offsets),
            pop_time=self.id.pop_time,
            queue_id=self.id.queue_id,
            revive_time_as_read=self.revive_time,
            start_offset=start,
            topic=self.id.topic,
        )

    def acks(self, broker_name: str, *, together: bool) -> list[AckMessage]:
        """Return the acknowledgements for the revive log: one record each, or one for all
        (`together`)."""
        acked = [offset for offset in self.offsets if offset not in self.waiting]
        if not acked:
            return []
        id = self.id
        if together:
            return [batch_ack(id, acked, broker_name)]
        return [single_ack(id, offset, broker_name) for offset in acked]


class PopBuffer:
    """The checkpoints of one broker in memory; `commit` sets a consumer offset.

    A checkpoint either stays here (`keep`) until it is acknowledged or returned by `due`, or is
    written at once (`pass_by`). The caller reports a write with `written`.
    """

    def __init__(self, config: BrokerConfig, commit: Commit) -> None:
        self._config = config
        self._commit = commit
        self._kept: dict[tuple[str, str, int, int, int], BufferedCheckPoint] = {}
        # In the order of pops; the first checkpoint of each queue is not done.
        self._queues: dict[PopQueue, deque[BufferedCheckPoint]] = {}
        self._buckets: dict[int, dict[BufferedCheckPoint, None]] = {}

    def __len__(self) -> int:
        """Return the number of checkpoints in memory."""
        return len(self._kept)

    @property
    def unfinished(self) -> int:
        """The number of checkpoints that keep a consumer offset from advancing."""
        return sum(map(len, self._queues.values()))

    def latest_offset(self, queue: PopQueue) -> int:
        """Return the offset at which the next pop of a queue reads; -1: at the consumer offset."""
        waiting = self._queues.get(queue)
        return waiting[-1].next_offset if waiting else -1

    def has_room(self, queue: PopQueue, pop_time: int, invisible_time: int) -> bool:
        """Tell whether a new checkpoint may stay in memory."""
        config = self._config
        if (
            not config.enable_pop_buffer_merge
            or invisible_time < config.pop_ck_stay_buffer_time_out + SPARE_MS
            or len(self._kept) >= config.pop_ck_max_buffer_size
        ):
            return False
        waiting = self._queues.get(queue)
        return waiting is None or len(waiting) < config.pop_ck_offset_max_queue_size

    def knows(self, id: CheckPointId) -> bool:
        """Tell whether a checkpoint with this id is here. Ids must be unique, but two pops in the
        same millisecond have the same id."""
        return id in self._kept

    def keep(self, point: BufferedCheckPoint) -> None:
        """Keep a checkpoint in memory."""
        config, id = self._config, point.id
        point.write_at = min(
            id.pop_time + config.pop_ck_stay_buffer_time,
            id.pop_time + point.invisible_time - config.pop_ck_stay_buffer_time_out,
        )
        self._kept[id] = point
        self._put_into_bucket(point)
        self._enqueue(point)

    def pass_by(self, point: BufferedCheckPoint) -> None:
        """Add a checkpoint that was written at once."""
        point.done = True
        self._enqueue(point)
        self._advance(point.queue)

    def skip(self, queue: PopQueue, next_offset: int) -> None:
        """Record that a pop found no matching message in a queue before `next_offset`."""
        waiting = self._queues.get(queue)
        if not waiting:
            topic, group, queue_id = queue
            self._commit(group, topic, queue_id, next_offset)
        else:
            # Nothing was popped in between, so this belongs to the last checkpoint.
            waiting[-1].next_offset = next_offset

    def ack(self, id: tuple[str, str, int, int, int], offset: int) -> bool:
        """Mark a message as acknowledged; return False if its checkpoint is not in memory.

        The id is a `CheckPointId`, or a plain tuple, which is faster to create.
        """
        point = self._kept.get(id)
        if point is None:
            return False
        waiting = point.waiting
        waiting.discard(offset)
        if not waiting:
            self._finish(point)
        return True

    def next_due(self) -> int | None:
        """Return when `due` next has a checkpoint (Unix ms); None if there are no checkpoints."""
        return (min(self._buckets) + 1) * BUCKET_MS if self._buckets else None

    def due(self, now: int) -> Iterator[BufferedCheckPoint]:
        """Yield the checkpoints that must be written by now. If the caller does not call `written`
        for one, it is yielded again next time."""
        for bucket in sorted(bucket for bucket in self._buckets if (bucket + 1) * BUCKET_MS <= now):
            yield from tuple(self._buckets.get(bucket, ()))

    def all(self) -> Iterator[BufferedCheckPoint]:
        """Yield all checkpoints, to write them before a stop."""
        yield from tuple(self._kept.values())

    def written(self, point: BufferedCheckPoint) -> None:
        """Drop a checkpoint: it and its acknowledgements are in the revive log."""
        self._finish(point)

    def forget_queue(self, queue: PopQueue) -> None:
        """Detach the consumer offset of a queue from its checkpoints: the offset was set."""
        self._queues.pop(queue, None)

    def forget(self, concerned: Callable[[PopQueue], bool]) -> None:
        """Drop the checkpoints of a deleted topic or group."""
        for queue in [queue for queue in self._queues if concerned(queue)]:
            del self._queues[queue]
        for point in [point for point in self._kept.values() if concerned(point.queue)]:
            self._finish(point)

    def _enqueue(self, point: BufferedCheckPoint) -> None:
        waiting = self._queues.get(point.queue)
        if waiting is None:
            waiting = self._queues[point.queue] = deque()
        waiting.append(point)

    def _finish(self, point: BufferedCheckPoint) -> None:
        del self._kept[point.id]
        self._remove_from_bucket(point)
        point.done = True
        self._advance(point.queue)

    def _advance(self, queue: PopQueue) -> None:
        waiting = self._queues.get(queue)
        if not waiting or not waiting[0].done:
            return
        next_offset = -1
        while waiting and waiting[0].done:
            next_offset = waiting.popleft().next_offset
        if not waiting:
            del self._queues[queue]
        topic, group, queue_id = queue
        self._commit(group, topic, queue_id, next_offset)

    def _put_into_bucket(self, point: BufferedCheckPoint) -> None:
        bucket = point.write_at // BUCKET_MS
        points = self._buckets.get(bucket)
        if points is None:
            points = self._buckets[bucket] = {}
        points[point] = None

    def _remove_from_bucket(self, point: BufferedCheckPoint) -> None:
        bucket = point.write_at // BUCKET_MS
        points = self._buckets[bucket]
        del points[point]
        if not points:
            del self._buckets[bucket]
