"""Checkpoints in memory, and how far the consumer offsets may move. No I/O.

Most messages are acknowledged soon. So a checkpoint stays in memory for a while, where
acknowledgements are marked in it. If all come in time, nothing of it is ever written. What is left
when it has stayed for popCkStayBufferTime, or when its messages are to be visible again in
popCkStayBufferTimeOut, must be written to the revive log.

The consumer offset of a queue moves behind a checkpoint when that is written or all of its messages
are acknowledged, and all before it are too. So after a crash a group begins before every checkpoint
that was in memory only: messages come again, none is lost. Until then, pops read from
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
"""A checkpoint that would have to be written in so short a time is written at once."""
BUCKET_MS: Final = 100

#: Topic, group, queue id.
PopQueue: TypeAlias = tuple[str, str, int]
#: Group, topic, queue id, offset.
Commit: TypeAlias = Callable[[str, str, int, int], None]


class BufferedCheckPoint:
    """A checkpoint, and what is known of it in memory.

    Attributes:
        offsets: queue offsets of its messages, ascending.
        waiting: those that are not acknowledged.
        next_offset: of the queue behind everything that the pop looked at.
        done: the consumer offset may move behind it.
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
        """When its messages are visible again (Unix ms)."""
        return self.id.pop_time + self.invisible_time

    def check_point(self, broker_name: str, created: int = 0) -> CheckPoint:
        """Return it as the revive log holds it: without what is acknowledged. The topic was
        `created` at that physical offset."""
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
        """Return what was acknowledged, for the revive log: each by itself, or `together`."""
        acked = [offset for offset in self.offsets if offset not in self.waiting]
        if not acked:
            return []
        id = self.id
        if together:
            return [batch_ack(id, acked, broker_name)]
        return [single_ack(id, offset, broker_name) for offset in acked]


class PopBuffer:
    """The checkpoints of one broker that are in memory; `commit` moves a consumer offset.

    A checkpoint either stays here (`keep`) until it is acknowledged or taken by `due`, or is
    written at once (`pass_by`). `written` says that it is written.
    """

    def __init__(self, config: BrokerConfig, commit: Commit) -> None:
        self._config = config
        self._commit = commit
        self._kept: dict[tuple[str, str, int, int, int], BufferedCheckPoint] = {}
        # In the order of pops; the first is not done.
        self._queues: dict[PopQueue, deque[BufferedCheckPoint]] = {}
        self._buckets: dict[int, dict[BufferedCheckPoint, None]] = {}

    def __len__(self) -> int:
        """How many checkpoints stay here."""
        return len(self._kept)

    @property
    def unfinished(self) -> int:
        """How many checkpoints hold up a consumer offset."""
        return sum(map(len, self._queues.values()))

    def latest_offset(self, queue: PopQueue) -> int:
        """Return where the next pop of a queue reads, if not at the consumer offset: -1 then."""
        waiting = self._queues.get(queue)
        return waiting[-1].next_offset if waiting else -1

    def has_room(self, queue: PopQueue, pop_time: int, invisible_time: int) -> bool:
        """Tell whether a checkpoint that is made now may stay here."""
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
        """Tell whether there is such a checkpoint here: two of one time cannot be told apart."""
        return id in self._kept

    def keep(self, point: BufferedCheckPoint) -> None:
        """Let a checkpoint stay here."""
        config, id = self._config, point.id
        point.write_at = min(
            id.pop_time + config.pop_ck_stay_buffer_time,
            id.pop_time + point.invisible_time - config.pop_ck_stay_buffer_time_out,
        )
        self._kept[id] = point
        self._put_into_bucket(point)
        self._enqueue(point)

    def pass_by(self, point: BufferedCheckPoint) -> None:
        """Note a checkpoint that was written at once."""
        point.done = True
        self._enqueue(point)
        self._advance(point.queue)

    def skip(self, queue: PopQueue, next_offset: int) -> None:
        """Note that a pop of a queue found nothing that it wanted before `next_offset`."""
        waiting = self._queues.get(queue)
        if not waiting:
            topic, group, queue_id = queue
            self._commit(group, topic, queue_id, next_offset)
        else:
            # Nothing can be acknowledged between, so the last checkpoint stands for it.
            waiting[-1].next_offset = next_offset

    def ack(self, id: tuple[str, str, int, int, int], offset: int) -> bool:
        """Mark a message as acknowledged; False when its checkpoint is not here (any more).

        The id is a `CheckPointId`, or a plain tuple, which is quicker to make.
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
        """Return when `due` has something to give (Unix ms); None while nothing waits."""
        return (min(self._buckets) + 1) * BUCKET_MS if self._buckets else None

    def due(self, now: int) -> Iterator[BufferedCheckPoint]:
        """Give the checkpoints that must be written by now. One for which the caller does not call
        `written` is given again the next time."""
        for bucket in sorted(bucket for bucket in self._buckets if (bucket + 1) * BUCKET_MS <= now):
            yield from tuple(self._buckets.get(bucket, ()))

    def all(self) -> Iterator[BufferedCheckPoint]:
        """Give all checkpoints, to be written, as before a stop."""
        yield from tuple(self._kept.values())

    def written(self, point: BufferedCheckPoint) -> None:
        """Let a checkpoint go that is in the revive log, with what is acknowledged of it."""
        self._finish(point)

    def forget_queue(self, queue: PopQueue) -> None:
        """Let the consumer offset of a queue not follow its checkpoints: it was set."""
        self._queues.pop(queue, None)

    def forget(self, concerned: Callable[[PopQueue], bool]) -> None:
        """Forget the checkpoints of a topic or group that was deleted."""
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
