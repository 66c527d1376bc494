"""Revives popped messages that were not acknowledged in time: they go to a retry topic.

The service reads the revive log as it grows. When the invisible time of a message is over, it
stores the message in the retry topic of its group and topic, with reconsumeTimes increased by one
unless the checkpoint is suspended. With `useSeparateRetryQueue`, the retry topic has as many queues
as the topic, and a message keeps the number of its queue, which is its level in a topic of priority
messages.
The progress in each queue is saved as the consumer offset of CID_RMQ_SYS_REVIVE_GROUP: the last
record that a restart does not have to read. Deleted topics and groups are skipped. Reference:
PopReviveService.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from pocketmq.broker.background import Alarm, CallLater
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delayed.due_run import TURN_BYTES
from pocketmq.broker.inner_message import PutHooks, inner_message_of
from pocketmq.broker.pop.check_point import (
    REVIVE_GROUP,
    AckMessage,
    CheckPoint,
    CheckPointId,
    batch_ack,
    decode_revive_record,
)
from pocketmq.broker.pop.in_flight import InFlight
from pocketmq.broker.pop.revive_log import ReviveLog
from pocketmq.broker.pop.revive_writer import ReviveWriter
from pocketmq.broker.statistics.pop_counts import ACK, CHECK_POINT
from pocketmq.broker.statistics.statistics import Statistics
from pocketmq.broker.tables.consumer_offset import ConsumerOffsets
from pocketmq.broker.tables.subscription_group import SubscriptionGroups
from pocketmq.broker.tables.topic_config import TopicConfigs
from pocketmq.limited_log import LimitedLog
from pocketmq.message import properties as names
from pocketmq.message.limits import RETRY_PREFIX, one_more
from pocketmq.message.record import Record, decode, iter_records
from pocketmq.message.record_layout import RecordError
from pocketmq.message.retry_topic import normal_topic, pop_retry_topic
from pocketmq.remoting.errors import BodyError
from pocketmq.store.message_store import MessageStore
from pocketmq.store.results import PutStatus

log = logging.getLogger(__name__)

READ_AT_ONCE: Final = 32
ALL: Final = 1 << 31
LOOK_BACK: Final = 1_024  # records before the first unprocessed one
TURN: Final = 64  # the most records or messages in one turn of the event loop
WEIGHT: Final = TURN_BYTES // TURN  # a message counts once more for so many bytes
AGAIN_MS: Final = 1_000  # retry after the store refused a message
TIMER_LATE_MS: Final = 100  # pause between two checks of a timer that is late
RETRY_QUEUES: Final = 1  # without useSeparateRetryQueue


class ReviveLag(NamedTuple):
    """The unprocessed part of a queue of the revive log: the number of records, and the age of the
    first one in milliseconds."""

    queue_id: int
    records: int
    milliseconds: int


class ReviveService:
    """Reads the revive log of one broker. `delivered_until()` returns the time (Unix ms) up to
    which the timer has delivered due messages of the log."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        put_hooks: PutHooks,
        writer: ReviveWriter,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        in_flight: InFlight,
        statistics: Statistics,
        delivered_until: Callable[[], int],
        clock: Callable[[], int],
        call_later: CallLater,
    ) -> None:
        self._config = config
        self._store = store
        self._put_hooks = put_hooks
        self._writer = writer
        self._topic = writer.topic
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._in_flight = in_flight
        self._statistics = statistics
        self._delivered_until = delivered_until
        self._clock = clock
        self._log = LimitedLog(log)
        self._alarm = Alarm(clock, call_later, self._work)
        self._logs: list[ReviveLog] = []
        self._ends_at_start: list[int] = []
        self._first = 0

    def start(self) -> None:
        """Start to read at the consumer offsets."""
        store = self._store
        for queue_id in range(self.queues):
            committed = self._offsets.query(REVIVE_GROUP, self._topic, queue_id)
            end = self._end(queue_id)
            # An offset after the end means that the log lost its last records: start at the end.
            revive_log = ReviveLog(min(committed + 1, end))
            self._recall(queue_id, revive_log)
            self._logs.append(revive_log)
            self._ends_at_start.append(end)
            store.listen(self._topic, queue_id, self._on_arrival)
        self._alarm.set(0)

    def stop(self) -> None:
        """Stop reviving messages."""
        self._alarm.cancel()
        for queue_id in range(len(self._logs)):
            self._store.unlisten(self._topic, queue_id, self._on_arrival)
        self._logs.clear()
        self._ends_at_start.clear()

    @property
    def queues(self) -> int:
        """The number of queues of the revive log."""
        topic = self._topics.get(self._topic)
        return max(self._config.revive_queue_num, topic.read_queue_nums if topic else 0)

    @property
    def open(self) -> int:
        """The number of checkpoints that were read and are not due yet."""
        return sum(map(len, self._logs))

    def behind(self) -> Iterator[ReviveLag]:
        """Yield the lag of each queue; none on a broker that revives no messages."""
        for queue_id, revive_log in enumerate(self._logs):
            first = revive_log.settled_to
            records = max(self._store.max_offset(self._topic, queue_id) - first, 0)
            time = self._store.store_time_at(self._topic, queue_id, first) if records else 0
            age = max(self._clock() - time, 0) if time > 0 else 0
            yield ReviveLag(queue_id, records, age)

    def ack(self, queue_id: int, id: CheckPointId, offset: int) -> None:
        """Mark a message whose acknowledgement is being written, if its checkpoint is open."""
        if queue_id < len(self._logs):
            revive_log = self._logs[queue_id]
            # Read first: the checkpoint may be in the log already, but not read yet.
            self._read(queue_id, revive_log, ALL)
            revive_log.ack(id, offset)

    def _end(self, queue_id: int) -> int:
        """Return the offset after the last record of a queue, also if that cannot be read yet: it
        may wait for the disk or for other replicas."""
        queue = self._store.queues.get(self._topic, {}).get(queue_id)
        return 0 if queue is None else queue.next_offset

    def _on_arrival(self, offset: int, tags_code: int, store_timestamp: int) -> None:
        self._alarm.set(0)

    # --- a turn -------------------------------------------------------------------------------

    def _work(self) -> None:
        """Read new records and revive due messages, within the limits of one turn."""
        left = TURN
        # Start with another queue each time, so that a busy queue does not block the others.
        self._first = (self._first + 1) % len(self._logs)
        try:
            for n in range(len(self._logs)):
                queue_id = (self._first + n) % len(self._logs)
                revive_log = self._logs[queue_id]
                revive_log.extends(self._end(queue_id), self._delivered_until())
                left -= self._read(queue_id, revive_log, left)
                try:
                    left -= self._settle(queue_id, revive_log, max(1, left))
                finally:
                    self._commit(queue_id, revive_log)
                if left <= 0:
                    self._alarm.set(0)
                    return
        except _NotStored as refused:
            self._log.error("pop: unacknowledged messages cannot be revived yet: %s", refused)
            self._alarm.set(self._clock() + AGAIN_MS)
            return
        self._set_alarm()

    def _set_alarm(self) -> None:
        times = [time for one in self._logs if (time := one.next_time()) is not None]
        if not times:
            return
        now, precision = self._clock(), self._config.timer_precision
        time = min(times)
        # The timer delivers the acknowledgements at the end of its slot, or later if it is busy.
        self._alarm.set(time if time > now else now + min(precision, TIMER_LATE_MS))

    def _commit(self, queue_id: int, revive_log: ReviveLog) -> None:
        settled = revive_log.settled_to - 1
        if settled != self._offsets.query(REVIVE_GROUP, self._topic, queue_id):
            self._offsets.commit(REVIVE_GROUP, self._topic, queue_id, settled)

    def _read(self, queue_id: int, revive_log: ReviveLog, most: int) -> int:
        """Read about `most` new records at most; return their number."""
        store, count = self._store, 0
        while count < most and revive_log.read_to < store.max_offset(self._topic, queue_id):
            offset = revive_log.read_to
            found = store.get(self._topic, queue_id, offset, READ_AT_ONCE)
            for buffer in found.buffers:
                for record in iter_records(buffer):
                    count += 1
                    direct = (
                        names.TIMER_OUT_MS not in record.properties
                        and record.queue_offset >= self._ends_at_start[queue_id]
                    )
                    decoded = self._decoded(record)
                    if decoded is not None:
                        kind = CHECK_POINT if isinstance(decoded, CheckPoint) else ACK
                        counts = self._statistics.pops.read
                        counts[decoded.topic, decoded.group, queue_id, kind] += 1
                    revive_log.add(decoded, record.queue_offset, direct=direct)
            # Skip records that no longer exist or cannot be read.
            revive_log.read_to = max(found.next_begin_offset, offset + 1)
        return count

    def _recall(self, queue_id: int, revive_log: ReviveLog) -> None:
        """Tell the log which checkpoints were settled most recently."""
        low, end = self._store.min_offset(self._topic, queue_id), revive_log.read_to
        offset = max(low, end - LOOK_BACK)
        while offset < end:
            found = self._store.get(self._topic, queue_id, offset, min(READ_AT_ONCE, end - offset))
            for buffer in found.buffers:
                for record in iter_records(buffer):
                    settled = self._decoded(record)
                    if isinstance(settled, CheckPoint):
                        revive_log.remember(settled.id)
            offset = max(found.next_begin_offset, offset + 1)

    def _decoded(self, record: Record) -> CheckPoint | AckMessage | None:
        try:
            return decode_revive_record(record.properties.get(names.TAGS, ""), record.body)
        except BodyError as error:
            self._log.error(
                "queue %s/%d: the record at %d is skipped: %s",
                self._topic,
                record.queue_id,
                record.queue_offset,
                error,
            )
            return None

    # --- messages -----------------------------------------------------------------------------

    def _settle(self, queue_id: int, revive_log: ReviveLog, most: int) -> int:
        """Revive about `most` due messages at most; return their number. Raises _NotStored.

        A checkpoint is settled as a whole, so that a stop does not repeat a part of it. Large
        messages count more.
        """
        count = 0
        while count < most and (point := revive_log.take(self._clock())) is not None:
            count += 1
            revived = point.unacknowledged() if self._is_wanted(point) else []
            for offset in revived:
                count += 1 + self._revive(point, offset) // WEIGHT
                point.ack(offset)
            if revive_log.settled(point) and revived:
                # If this cannot be written, these messages are revived again after a restart.
                ack = batch_ack(point.id, revived, point.broker_name or self._config.broker_name)
                self._writer.ack(ack, queue_id, point.revive_time)
        return count

    def _is_wanted(self, point: CheckPoint) -> bool:
        topic = normal_topic(point.topic, point.group)
        if point.created is not None and point.created < self._topics.created(topic):
            self._put_hooks.destinations.drop(topic, "pops")
            return False
        # A group may be unknown after a kill or a change of master, although it was not deleted.
        return self._topics.get(topic) is not None and not self._groups.is_deleted(
            point.group, point.pop_time
        )

    def _revive(self, point: CheckPoint, offset: int) -> int:
        """Store a message in the retry topic; return the bytes that it takes."""
        record = self._message(point.topic, point.queue_id, offset)
        if record is None:
            self._log.warning(
                "queue %s/%d: the message at %d was not acknowledged by group %s, and no longer "
                "exists",
                point.topic,
                point.queue_id,
                offset,
                point.group,
            )
            return 0
        inner = inner_message_of(record)
        destinations = self._put_hooks.destinations
        if destinations.is_gone(normal_topic(point.topic, point.group), record.physical_offset):
            # A retry of a deleted message, in a retry topic that an official broker left.
            destinations.drop(point.topic, "pops")
            return 0
        inner.topic = self._retry_topic(point)
        inner.queue_id = self._retry_queue(inner.topic, point, record.queue_id)
        if not point.suspend:
            inner.reconsume_times = one_more(record.reconsume_times)
        is_first = record.topic == normal_topic(point.topic, point.group)
        if is_first or names.FIRST_POP_TIME not in inner.properties:
            inner.properties[names.FIRST_POP_TIME] = str(point.pop_time)
        result = self._put_hooks.put(inner, direct=True)
        if result.status is PutStatus.MESSAGE_ILLEGAL:
            # With the added property, the message may be too long.
            inner.properties.pop(names.FIRST_POP_TIME, None)
            result = self._put_hooks.put(inner, direct=True)
        topic = normal_topic(point.topic, point.group)
        self._statistics.pops.retried[topic, point.group, result.status.value] += 1
        if result.status is PutStatus.MESSAGE_ILLEGAL:
            self._log.error("topic %s: a retry is dropped: %s", point.topic, result.remark)
            return 0
        if not result.ok:
            raise _NotStored(result.remark)
        size = result.end_offset - result.physical_offset
        self._statistics.count_put(inner.topic, size, inner.properties)
        self._in_flight.subtract((point.topic, point.group, point.queue_id), 1)
        return size

    def _retry_topic(self, point: CheckPoint) -> str:
        """Return the retry topic of a checkpoint; create it if it is missing."""
        name = point.topic
        if not name.startswith(RETRY_PREFIX):
            name = pop_retry_topic(name, point.group, v2=self._config.enable_retry_topic_v2)
        if self._groups.is_retry_of_another(name, point.group):
            name = pop_retry_topic(normal_topic(name, point.group), point.group, v2=True)
        if self._topics.get(name) is None:
            self._topics.create_if_absent(name, RETRY_QUEUES)
            self._start_at_zero(point.group, name, RETRY_QUEUES)
        return name

    def _retry_queue(self, name: str, point: CheckPoint, origin: int) -> int:
        """Return the queue of a retry topic for a message from the queue `origin`; add queues if
        the topic has too few.

        The official broker also takes queues away if the topic itself has fewer, and with them the
        messages that are still there.
        """
        if not self._config.use_separate_retry_queue:
            return 0
        topic = self._topics.get(normal_topic(name, point.group))
        retries = self._topics.get(name)
        if topic is None or retries is None:
            return 0
        queues = min(topic.read_queue_nums, topic.write_queue_nums)
        if origin >= queues:  # the topic has lost this queue
            return 0
        if min(retries.read_queue_nums, retries.write_queue_nums) < queues:
            wide = msgspec.structs.replace(
                retries,
                attributes={},  # no change of them
                read_queue_nums=max(queues, retries.read_queue_nums),
                write_queue_nums=max(queues, retries.write_queue_nums),
            )
            self._topics.update([wide])
            self._start_at_zero(point.group, name, queues)
        return origin

    def _start_at_zero(self, group: str, topic: str, queues: int) -> None:
        for queue_id in range(queues):
            if self._offsets.query(group, topic, queue_id) < 0:
                self._offsets.commit(group, topic, queue_id, 0)

    def _message(self, topic: str, queue_id: int, offset: int) -> Record | None:
        found = self._store.get(topic, queue_id, offset, 1)
        for buffer in found.buffers:
            try:
                record = decode(buffer)
            except RecordError:
                return None
            return record if record.queue_offset == offset else None
        return None


class _NotStored(Exception):
    """The store refuses messages now."""
