"""Messages that were popped and not acknowledged: in memory, in the revive log, or revived.

Pops record the messages that they deliver; acknowledgements end a delivery. Messages popped in
order are in the order table instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from pocketmq.broker.background import Alarm, CallLater
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.pop.buffer import BufferedCheckPoint, PopBuffer, PopQueue
from pocketmq.broker.pop.check_point import CheckPoint, CheckPointId, batch_ack, single_ack
from pocketmq.broker.pop.in_flight import InFlight
from pocketmq.broker.pop.revive import ReviveService
from pocketmq.broker.pop.revive_writer import ReviveWriter
from pocketmq.broker.tables.consumer_offset import ConsumerOffsets
from pocketmq.broker.tables.subscription_group import SubscriptionGroups
from pocketmq.broker.tables.topic_config import TopicConfigs
from pocketmq.message.retry_topic import normal_topic
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError

log = logging.getLogger(__name__)

AGAIN_MS: Final = 1_000  # retry after the store refused a record
TURN: Final = 64  # the most checkpoints in one turn of the event loop


class PopDeliveries:
    """The deliveries of one broker. `clock` gives milliseconds."""

    def __init__(
        self,
        config: BrokerConfig,
        writer: ReviveWriter,
        revive: ReviveService,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        in_flight: InFlight,
        clock: Callable[[], int],
        call_later: CallLater,
    ) -> None:
        self.buffer = PopBuffer(config, self._commit)
        self._config = config
        self._writer = writer
        self._revive = revive
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._in_flight = in_flight
        self._clock = clock
        self._next_revive_queue = 0
        self._alarm = Alarm(clock, call_later, self._write_due)

    def next_revive_queue(self) -> int:
        """Return the queue of the revive log for the next pop: each in turn."""
        queue_id = self._next_revive_queue
        self._next_revive_queue = (queue_id + 1) % self._config.revive_queue_num
        return queue_id

    def hand_out(
        self,
        id: CheckPointId,
        offsets: Sequence[int],
        invisible_time: int,
        revive_queue_id: int,
        next_offset: int,
    ) -> bool:
        """Record the delivery of the messages at `offsets`, and that the queue was read up to
        `next_offset`.

        Return False if that is not possible now: then the messages must not be delivered.
        """
        buffer = self.buffer
        point = BufferedCheckPoint(id, offsets, invisible_time, revive_queue_id, next_offset)
        if buffer.knows(id):
            return False
        if buffer.has_room(point.queue, id.pop_time, invisible_time):
            buffer.keep(point)
            self._alarm.set(point.write_at)
        elif not self._writer.check_point(
            point.check_point(self._config.broker_name, self._created(id)), revive_queue_id
        ):
            return False
        else:
            buffer.pass_by(point)
        self._in_flight.add(point.queue, len(offsets))
        return True

    def acknowledge(
        self,
        id: CheckPointId,
        offsets: Sequence[int],
        revive_queue_id: int,
        due: int,
        broker_name: str,
    ) -> bool:
        """End the delivery of messages that would become visible again at `due` (Unix ms).

        Return whether a record was written, so that the answer must wait for the log.

        Raises:
            RemotingError: SERVICE_NOT_AVAILABLE, the store refuses messages;
                INVALID_PARAMETER, the queue of the revive log does not exist.
        """
        buffer = self.buffer
        queue = (id.topic, id.group, id.queue_id)
        if buffer.knows(id):
            for offset in offsets:
                buffer.ack(id, offset)
            self._in_flight.subtract(queue, len(offsets))
            return False
        self.check_revive_queue(revive_queue_id)
        if len(offsets) == 1:
            ack = single_ack(id, offsets[0], broker_name)
        else:
            ack = batch_ack(id, offsets, broker_name)
        if not self._writer.ack(ack, revive_queue_id, due):
            raise _unwritable()
        for offset in offsets:
            self._revive.ack(revive_queue_id, id, offset)
        self._in_flight.subtract(queue, len(offsets))
        return True

    def renew(
        self,
        id: CheckPointId,
        offset: int,
        revive_queue_id: int,
        due: int,
        broker_name: str,
        now: int,
        invisible_time: int,
        *,
        suspend: bool = False,
    ) -> None:
        """Make a message invisible for `invisible_time` ms from `now` on: write a new checkpoint
        for it, then acknowledge it in the former one. With `suspend`, its next delivery counts as
        no further attempt. Raises like `acknowledge`."""
        self.check_revive_queue(revive_queue_id)
        point = CheckPoint(
            broker_name=broker_name,
            created=self._created(id),
            group=id.group,
            differences=[0],
            invisible_time=invisible_time,
            num=1,
            pop_time=now,
            queue_id=id.queue_id,
            revive_time_as_read=now + invisible_time,
            start_offset=offset,
            suspend=suspend or None,
            topic=id.topic,
        )
        if not self._writer.check_point(point, revive_queue_id):
            raise _unwritable()
        self._in_flight.add((id.topic, id.group, id.queue_id), 1)
        self.acknowledge(id, (offset,), revive_queue_id, due, broker_name)

    def check_revive_queue(self, queue_id: int) -> None:
        """Refuse a handle with a queue of the revive log that does not exist.

        Raises RemotingError (INVALID_PARAMETER).
        """
        if not 0 <= queue_id < self._revive.queues:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER,
                f"the receipt handle names queue {queue_id} of the revive log, which has "
                f"{self._revive.queues}",
            )

    def forget_topic(self, topic: str) -> None:
        """Drop the deliveries of a deleted topic."""
        self._forget(lambda queue: queue[0] == topic)

    def forget_group(self, group: str) -> None:
        """Drop the deliveries of a deleted group."""
        self._forget(lambda queue: queue[1] == group)

    def _forget(self, concerned: Callable[[PopQueue], bool]) -> None:
        self.buffer.forget(concerned)
        self._in_flight.forget(concerned)

    def stop(self) -> None:
        """Write the checkpoints in memory to the revive log, and drop them.

        A broker that is no longer the master of its group cannot write them. They are dropped all
        the same: if it becomes master again, other masters have continued meanwhile, and the old
        checkpoints must not change consumer offsets.
        """
        self._alarm.cancel()
        for point in self.buffer.all():
            if not self._write(point):
                log.error(
                    "pop: %d checkpoints cannot be written, so their messages are delivered again",
                    len(self.buffer),
                )
                break
        self._forget(lambda queue: True)

    # --- writing ------------------------------------------------------------------------------

    def _write_due(self) -> None:
        now, left = self._clock(), TURN
        for point in self.buffer.due(now):
            if not self._write(point):
                self._alarm.set(now + AGAIN_MS)
                return
            left -= 1
            if left <= 0:
                break
        time = self.buffer.next_due()
        if time is not None:
            self._alarm.set(time)

    def _write(self, point: BufferedCheckPoint) -> bool:
        """Write a checkpoint and its acknowledgements; return False if the store refuses them.

        A retry may write the checkpoint twice: the revive log treats both as one.
        """
        name, queue_id = self._config.broker_name, point.revive_queue_id
        check_point = point.check_point(name, self._created(point.id))
        if not self._writer.check_point(check_point, queue_id):
            return False
        for ack in point.acks(name, together=self._config.enable_pop_batch_ack):
            if not self._writer.ack(ack, queue_id, point.revive_time):
                return False
            for offset in ack.offsets:
                # The checkpoint may be written late, and then does not pass through the timer.
                self._revive.ack(queue_id, point.id, offset)
        self.buffer.written(point)
        return True

    def _created(self, id: CheckPointId) -> int:
        """Return the physical offset at which the topic (of a retry topic: its normal topic) was
        created. Checkpoints of an earlier topic with the same name are dropped."""
        return self._topics.created(normal_topic(id.topic, id.group))

    def _commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        # A commit must not restore a deleted topic or group.
        if self._topics.get(topic) is not None and self._groups.known(group):
            self._offsets.commit(group, topic, queue_id, offset)


def _unwritable() -> RemotingError:
    return RemotingError(
        ResponseCode.SERVICE_NOT_AVAILABLE, "the store refuses messages now; try again"
    )
