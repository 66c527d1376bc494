"""Delivers delayed messages when they are due.

All messages of a level have the same delay, so its queue in SCHEDULE_TOPIC_XXXX is in the order of
delivery, and its consume-queue entries contain the time of delivery. Only the first undelivered
entry of a level matters. Levels without undelivered messages cost nothing; the others share one
alarm at the earliest time.

A message is delivered when the broker's clock has reached its time. The offset of a level advances
when the delivered message is stored. Every flushDelayOffsetInterval the offsets are written to
delayOffset.json, after the delivered messages are on the disk, so a crash loses no message. A clean
stop writes the offsets last, so no message is delivered twice. After a kill, the messages delivered
since the last write are delivered again, as with the official broker.

A message whose queue cannot be written (the store has no file for it) waits again, with the next
level, and does not block the messages after it. With the official broker it would.
Reference: ScheduleMessageService.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from pocketmq.broker.background import Alarm, CallLater
from pocketmq.broker.delayed.delay_offset import DelayOffsets
from pocketmq.broker.delayed.due_run import TURN, TURN_BYTES, store_in_order
from pocketmq.broker.delayed.waiting_message import put_of, read_waiting, returned, waiting_at
from pocketmq.broker.inner_message import PutHooks, inner_message_of
from pocketmq.broker.statistics.statistics import Statistics
from pocketmq.limited_log import LimitedLog
from pocketmq.message import properties as names
from pocketmq.message.limits import SCHEDULE_TOPIC
from pocketmq.message.record import Record
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.results import PutStatus
from pocketmq.store.writer import Put

log = logging.getLogger(__name__)

AGAIN_MS: Final = 1_000  # retry after the store refused a message


class _Overdue(NamedTuple):
    """A message that is due; sorts in the order of delivery."""

    due: int
    level: int
    offset: int
    physical_offset: int
    size: int


class ScheduleService:
    """The delay levels of one broker. `clock` gives milliseconds."""

    def __init__(
        self,
        store: MessageStore,
        put_hooks: PutHooks,
        offsets: DelayOffsets,
        statistics: Statistics,
        clock: Callable[[], int],
        call_later: CallLater,
    ) -> None:
        self._store = store
        self._log = LimitedLog(log)
        self._put_hooks = put_hooks
        self._offsets = offsets
        self._statistics = statistics
        self._clock = clock
        self._alarm = Alarm(clock, call_later, self._deliver)
        self._levels = store.delay_levels
        # level → due time of its first undelivered message; levels without one are missing.
        self._due: dict[int, int] = {}
        self._now = 0  # time of the last change of `_due`
        self._arrived = {
            level: partial(self._on_arrival, level) for level in range(1, len(self._levels) + 1)
        }

    def start(self) -> None:
        """Start to deliver, at the saved offsets."""
        for level, listener in self._arrived.items():
            self._store.listen(SCHEDULE_TOPIC, level - 1, listener)
            self._look(level)
        self._set_alarm()

    def stop(self) -> None:
        """Stop delivering. Call `save` afterwards."""
        self._alarm.cancel()
        self._due.clear()
        for level, listener in self._arrived.items():
            self._store.unlisten(SCHEDULE_TOPIC, level - 1, listener)

    def was_cut(self) -> None:
        """Continue at the new ends of the queues: they may have been truncated."""
        for level in self._arrived:
            end = self._store.max_offset(SCHEDULE_TOPIC, level - 1)
            if self._offsets.next(level) > end:
                self._offsets.update(level, end)

    async def save(self) -> None:
        """Write the offsets, if they changed, after the delivered messages are on the disk."""
        content = self._offsets.unsaved()
        if content is None:
            return
        try:
            if await self._store.all_flushed():
                await asyncio.to_thread(self._offsets.write, content)
                return
        except OSError as error:
            log.error("delayOffset.json cannot be saved: %s", error)
        self._offsets.not_written()

    def progress(self) -> dict[int, tuple[int, int]]:
        """Return by level the offset of the next message to deliver, and the end of the queue."""
        return {
            level: (offset, self._store.max_offset(SCHEDULE_TOPIC, level - 1))
            for level, offset in sorted(self._offsets.table.items())
        }

    def _on_arrival(self, level: int, offset: int, due: int, store_timestamp: int) -> None:
        if level not in self._due:
            self._due[level] = due
            self._now = store_timestamp
            self._alarm.set(due)

    def _set_alarm(self) -> None:
        if self._due:
            self._alarm.set(min(self._due.values()))

    def _look(self, level: int) -> None:
        """Find the due time of the first undelivered message of a level, if there is one."""
        self._due.pop(level, None)
        queue = self._queue(level)
        if queue is None:
            return
        known = self._offsets.next(level)
        # Messages may have expired, or the queue may be new.
        offset = min(max(known, queue.min_offset), queue.max_offset)
        if offset != known:
            self._log.error(
                "delay level %d was delivered up to %d, continuing at %d", level, known, offset
            )
            self._offsets.update(level, offset)
        entry = queue.entry(offset)
        if entry is not None:
            now = self._now = self._clock()
            latest = now + self._levels.milliseconds(level)
            # It is due later than a message stored now would be: the clock was set back. Deliver
            # it now.
            self._due[level] = entry[2] if entry[2] <= latest else 0

    def _queue(self, level: int) -> ConsumeQueue | None:
        return self._store.queues.get(SCHEDULE_TOPIC, {}).get(level - 1)

    def _deliver(self) -> None:
        """Deliver due messages, the longest overdue first, within the limits of one turn."""
        now = self._clock()
        if now < self._now:
            # The clock was set back: messages stored before may seem to be due much later.
            for level in list(self._due):
                self._look(level)
        levels = [level for level, due in self._due.items() if due <= now]
        overdue = heapq.merge(*(self._overdue(level, now) for level in levels))
        run: list[_Overdue] = []
        puts: list[Put | None] = []
        size = 0
        for one in overdue:
            run.append(one)
            puts.append(self._put_of(one))
            size += one.size
            if len(run) == TURN or size >= TURN_BYTES:
                break

        def done(first: int, end: int) -> None:
            for one in run[first:end]:
                self._offsets.update(one.level, one.offset + 1)

        def alone(at: int) -> bool:
            one = run[at]
            if self._delivered(one.level, one.physical_offset, one.size):
                self._offsets.update(one.level, one.offset + 1)
                return True
            levels.remove(one.level)
            self._due[one.level] = self._clock() + AGAIN_MS
            return False

        store_in_order(puts, self._put_hooks, self._statistics, done, alone)
        for level in levels:
            self._look(level)
        self._set_alarm()

    def _overdue(self, level: int, now: int) -> Iterator[_Overdue]:
        """Yield the first messages of a level that are due by `now`."""
        queue = self._queue(level)
        offset = self._offsets.next(level)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return
        due = self._due[level]
        latest = now + self._levels.milliseconds(level)
        for physical_offset, size, at in queue.read(offset, TURN):
            # The clock may have been set back, but the order of a level stays.
            due = max(due, at if at <= latest else 0)
            if due > now:
                return
            yield _Overdue(due, level, offset, physical_offset, size)
            offset += 1

    def _put_of(self, one: _Overdue) -> Put | None:
        """Return the put for an ordinary message; None if `_delivered` must handle it."""
        record = waiting_at(self._store, one.physical_offset)
        if record is None or record.size != one.size:
            return None
        return put_of(record, record.properties_text, self._put_hooks.destinations)

    def _delivered(self, level: int, physical_offset: int, size: int) -> bool:
        """Deliver one message; return False to try it again.

        A message that can never be delivered is skipped, and one whose queue cannot be written now
        waits in another level, so that the others are not blocked; both are logged as errors.
        """
        record = read_waiting(self._store, physical_offset, size, self._log)
        inner = None
        if record is not None:
            inner = returned(record, self._put_hooks.destinations, self._log)
        if record is None or inner is None:
            return True
        result = self._put_hooks.put(inner, direct=True)
        if result.status is PutStatus.PUT_OK:
            size = result.end_offset - result.physical_offset
            self._statistics.count_put(inner.topic, size, inner.properties)
            return True
        self._log.error(
            "topic %s: a delayed message was not stored: %s", inner.topic, result.remark
        )
        if result.status is PutStatus.MESSAGE_ILLEGAL:
            return True
        # Use the next level, so that the message is retried, and stored, less and less often. If
        # the queue of that level cannot be written either, use the same level.
        return self._waits_again(record, level + 1) or self._waits_again(record, level)

    def _waits_again(self, record: Record, level: int) -> bool:
        """Store a waiting message at the end of `level`; return False if the store refuses it."""
        level = min(level, len(self._levels))
        inner = inner_message_of(record)
        inner.queue_id = level - 1
        inner.properties[names.DELAY] = str(level)
        return self._put_hooks.put(inner, direct=True).ok
