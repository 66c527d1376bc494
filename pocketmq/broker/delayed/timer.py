"""Delivers timed messages when they are due.

They wait in queue 0 of rmq_sys_wheel_timer, with the slot of their delivery in the property
TIMER_OUT_MS. `store.timer.timer_index` maps slots to messages, in the official broker's files. The
service enters new messages of the queue into the index, and delivers the messages of a slot when it
has passed: at the requested time rounded up to timerPrecisionMs, never earlier. `due_slots` says in
which order. In between, it sleeps until the next slot with messages. A broker that never had a
timed message does not have the files.

A message with TIMER_DEL_UNIQKEY recalls the message with that `topic+unique key` in the same slot,
or with that unique key, as from 5.4 on.
A message that has to wait longer than timerRollWindowSlot is rolled: it is stored again meanwhile.

The progress is written every timerFlushIntervalMs, after the delivered messages are on the disk, so
a crash loses no message. A clean stop writes the progress last, so no message is delivered twice.
After a kill, the slots since the last write are delivered again, as with the official broker.
Recalled messages are not delivered, however long the broker was down. This broker and the official
one can continue with each other's files. After a kill, the official broker may enter a message
twice, and then delivers it twice; this broker delivers it once.

A message whose queue cannot be written (the store has no file for it) is also stored again, and
waits twice as long each time. It does not block the others; with the official broker it would.
Reference: TimerMessageStore.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

from pocketmq.broker.background import Alarm, CallLater
from pocketmq.broker.delayed.due_run import TURN, TURN_BYTES, store_in_order
from pocketmq.broker.delayed.due_slots import DueSlot, DueSlots, Lane, TimedMessage
from pocketmq.broker.delayed.waiting_message import put_of, read_waiting, returned, waiting_at
from pocketmq.broker.inner_message import InnerMessage, PutHooks, inner_message_of
from pocketmq.broker.statistics.statistics import Statistics
from pocketmq.limited_log import LimitedLog
from pocketmq.message import properties as names
from pocketmq.message.limits import TIMER_TOPIC
from pocketmq.message.properties import find
from pocketmq.message.record import Record
from pocketmq.message.tags import string_hash
from pocketmq.remoting.bodies.timer import TimerCheckpointBody
from pocketmq.store.errors import StoreError
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.results import PutResult, PutStatus
from pocketmq.store.timer.timer_index import BrokenChain, TimerIndex
from pocketmq.store.timer.timer_log import DEFAULT, DELETE, NOWHERE, ROLL, TimerUnit
from pocketmq.store.writer import Put

log = logging.getLogger(__name__)

AGAIN_MS: Final = 1_000  # retry after the store refused a message
# A message that is due this soon is not rolled, even if its slot is delivered late: it would then
# follow the message that it recalls, or that recalls it.
SOON_MS: Final = 1_000
LATE_MS: Final = 60_000  # the longest time that a late message waits at a master
DOUBLINGS: Final = 12  # of AGAIN_MS for a queue that stays unwritable: a little over an hour
STEP: Final = TURN // 2  # messages to deliver, and to enter, before the other is done
MOST_NOTED: Final = 512  # units to collect in one turn: 1 ms
# Slots that are begun before the oldest is delivered, and undelivered messages in them.
MOST_SLOTS: Final = 1_024
MOST_DUE: Final = 1 << 20


class TimerBehind(NamedTuple):
    """The lag of the service: unread messages of its queue, the age of the first of them in ms, and
    the time since the next message was due in ms."""

    unread: int
    unread_ms: int
    late_ms: int


class TimerService:
    """The timed messages of one broker. `clock` gives milliseconds."""

    def __init__(
        self,
        store: MessageStore,
        put_hooks: PutHooks,
        statistics: Statistics,
        clock: Callable[[], int],
        call_later: CallLater,
    ) -> None:
        self.index = TimerIndex(store.config)
        self._store = store
        self._log = LimitedLog(log)
        self._put_hooks = put_hooks
        self._statistics = statistics
        self._clock = clock
        self._alarm = Alarm(clock, call_later, self._work)
        self._due = DueSlots()
        # Messages whose slot is before this time are due. Only `_set_back` decreases it.
        self._now_slot = 0
        # It was decreased, and the progress with the new value is not on the disk yet.
        self._is_set_back = False
        self._late_slot = 0
        self._next: Record | None = None  # the next message of the queue
        self._saved: tuple[int, int, int] | None = None
        self._is_slave = False
        self._master = (0, 0)  # the progress of the master: read time, queue offset

    def follow(self) -> None:
        """Start as a slave: enter new messages, but deliver nothing. `master_at` gives the progress
        of the master, which delivers. Blocks; raises StoreError."""
        self._is_slave = True
        self.start()

    async def retire(self) -> None:
        """Become a slave, after the slots that were begun."""
        self._alarm.cancel()
        try:
            await self._finish()
        except _NotStored:
            self._due = DueSlots()  # the new master delivers them
            self.index.give_up()
        self._is_slave = True
        self._statistics.timers.begin({})
        self._alarm.set(0)

    def take_over(self) -> None:
        """Become the master, which delivers."""
        self._is_slave = False
        self._now_slot = self.index.read_time
        self._next = None
        if self.index.opened:
            self._statistics.timers.begin(self.index.waiting_by_topic())
        self._alarm.set(0)

    def was_cut(self) -> None:
        """Continue at the new end of the queue: it may have been truncated."""
        self._next = None
        if self.index.opened:
            end = self._store.max_offset(TIMER_TOPIC, 0)
            self.index.queue_offset = min(self.index.queue_offset, end)

    def master_at(self, read_time: int, queue_offset: int) -> None:
        """Set the progress of the master: of the messages before `queue_offset`, it has delivered
        those with slots before `read_time` (ms)."""
        self._master = read_time, queue_offset
        if self._is_slave and self.index.opened:
            self._alarm.set(0)

    def checkpoint(self) -> TimerCheckpointBody | None:
        """Return the progress of delivery, for slaves; None while there are no timed messages."""
        index = self.index
        if not index.opened:
            return None
        offset = index.queue_offset
        return TimerCheckpointBody(
            index.read_time, index.log_end, offset, offset, 0, self._clock(), 0
        )

    def start(self) -> None:
        """Start to deliver, at the saved progress. Blocks; raises StoreError."""
        if self.index.exists or self._store.max_offset(TIMER_TOPIC, 0):
            self._open()
            self._alarm.set(0)
        self._store.listen(TIMER_TOPIC, 0, self._on_arrival)

    async def stop(self) -> None:
        """Stop delivering, after the slots that were begun: the progress counts whole slots. Call
        `save` and then `close` afterwards."""
        self._alarm.cancel()
        self._store.unlisten(TIMER_TOPIC, 0, self._on_arrival)
        try:
            await self._finish()
        except _NotStored as refused:
            log.error(
                "timed messages: those of %d slots will be delivered again: %s",
                len(self._due),
                refused,
            )

    async def _finish(self) -> None:
        """Deliver the slots that were begun. Raises _NotStored."""
        while self._due:
            self._deliver_next(TURN)
            await asyncio.sleep(0)

    async def save(self) -> None:
        """Write the progress, if it changed, after the delivered messages are on the disk."""
        progress, is_set_back = self.index.progress(), self._is_set_back
        if not self.index.opened or (progress == self._saved and not is_set_back):
            return
        try:
            if await self._store.all_flushed():
                expired = self.index.take_expired()
                await asyncio.to_thread(self.index.checkpoint, progress, self._clock(), expired)
                self._saved = progress
                if is_set_back:
                    self._is_set_back = False
                    self._alarm.set(0)
        except OSError as error:
            log.error("timed messages: cannot save the progress: %s", error)

    def figures(self) -> dict[str, int]:
        """Return the figures for brokerStatus: the lag in seconds and in messages, and the number
        of waiting messages.
        """
        behind = self.behind()
        return {
            "timerReadBehind": behind.late_ms // 1000,
            "timerOffsetBehind": behind.unread,
            "timerCongestNum": self.index.waiting,
        }

    def behind(self) -> TimerBehind:
        """Return the lag of the service."""
        index = self.index
        slot = index.next_slot()
        late = 0 if slot is None else max(0, self._clock() - slot - index.precision)
        if not index.opened:
            return TimerBehind(0, 0, late)
        unread = self._store.max_offset(TIMER_TOPIC, 0) - index.queue_offset
        waits_since = self._store.store_time_at(TIMER_TOPIC, 0, index.queue_offset)
        unread_ms = max(0, self._clock() - waits_since) if unread and waits_since > 0 else 0
        return TimerBehind(unread, unread_ms, late)

    def delivered_until(self, topic: str) -> int:
        """Return a time (Unix ms): all messages to `topic` that were stored and due before it are
        delivered."""
        index, end = self.index, self._clock()
        if not index.opened:
            return 0 if self._store.max_offset(TIMER_TOPIC, 0) else index.floor(end)
        record = self._next = self._next or self._read_next(self._queue())
        if record is not None:
            end = min(end, record.store_timestamp)
        for slot in (index.next_to_begin, self._due.delivered_until(string_hash(topic))):
            if slot is not None:
                end = min(end, slot)
        return index.floor(end)

    def close(self) -> None:
        """Close the files; seal them if they contain the latest progress."""
        if self.index.opened and self.index.progress() == self._saved:
            try:
                self.index.seal()
            except OSError as error:
                log.error("timed messages: cannot save the progress: %s", error)
        self.index.close()

    def _open(self) -> None:
        store = self._store
        self.index.open(
            self._clock(), store.commit_log, ours=store.was_ours, closed=store.was_closed
        )
        if not self._is_slave:
            self._statistics.timers.begin(self.index.waiting_by_topic())
        # Even if the clock was set back since: new messages show whether that matters.
        self._now_slot = self.index.read_time

    def _on_arrival(self, offset: int, tags_code: int, store_timestamp: int) -> None:
        self._alarm.set(0)

    # --- a turn -------------------------------------------------------------------------------

    def _work(self) -> None:
        """Deliver due messages and enter new ones, within the limits of one turn."""
        index = self.index
        if not index.opened:
            self._open()
        if self._is_slave:
            self._follow_turn()
            return
        try:
            left = TURN
            while left > 0:
                self._begin_next()
                # Both: neither what is due nor what is new waits for the end of the other.
                done = self._deliver_next(STEP) + self._enter_next(STEP)
                if not done:
                    break
                left -= done
            else:
                self._alarm.set(0)
                return
        except _NotStored as refused:
            self._log.error("timed messages: the store refuses messages, trying again: %s", refused)
            self._alarm.set(self._clock() + AGAIN_MS)
            return
        slot = index.next_slot()
        if slot is None:
            return
        at = slot + index.precision
        # A slot may be due and wait for the next message, which is not entered before `save`.
        if not self._is_set_back or at > self._clock():
            self._alarm.set(at)

    def _follow_turn(self) -> None:
        """Enter new messages like the master."""
        read_time, entered = self._master
        index = self.index
        index.delivered_before(read_time)
        try:
            queue = self._queue()
            size = 0
            for _ in range(TURN):
                if size >= TURN_BYTES:
                    break
                record = self._next or self._read_next(queue)
                self._next = None
                if record is None:
                    index.entered_all()
                    return
                if not index.entered_before(record.physical_offset):
                    self._enter_copied(record, by_master=index.queue_offset < entered)
                index.queue_offset += 1
                size += record.size
        except _NotStored as refused:
            self._log.error("timed messages: the store refuses messages, trying again: %s", refused)
            self._alarm.set(self._clock() + AGAIN_MS)
        else:
            self._alarm.set(0)

    def _enter_copied(self, record: Record, *, by_master: bool) -> None:
        """Enter a message copied from a master, unless the master has delivered it or stored it
        again. `by_master`: the master has entered it."""
        index = self.index
        deliver = _slot_of(record)
        if deliver < 0:
            return
        stored = index.floor(record.store_timestamp)
        slot, _ = index.place(max(deliver, stored), stored)
        if slot >= index.read_time:
            self._add(record, max(deliver, stored), stored)
        elif not by_master or slot >= index.read_time - LATE_MS:
            # It was late at the master, too, which may not have delivered it yet.
            self._add(record, max(deliver, index.read_time), index.read_time)

    def _tell_time(self) -> None:
        """Update the current slot, at most to the time at which the next unread message was stored:
        that message may recall others that were due later. So a broker that reads its queue again
        after a kill, or that is late, delivers the same messages as it would have in time."""
        record = self._next = self._next or self._read_next(self._queue())
        self._now_slot = max(self._now_slot, self._time_until(record))

    def _time_until(self, record: Record | None) -> int:
        """Return the slot of the current time, or of the time at which `record` was stored, if that
        is earlier."""
        now = self._clock()
        return self.index.floor(now if record is None else min(now, record.store_timestamp))

    def _begin_next(self) -> None:
        """Begin the next slot that has passed, if there is one. Its messages do not wait for those
        of the slots that were begun before."""
        self._tell_time()
        index, due = self.index, self._due
        time = index.next_to_begin
        if time is None or time >= self._now_slot or due.collecting is not None:
            return
        if due and (
            len(due) >= MOST_SLOTS
            # What waits there only to be stored again must find that its own slot is not begun.
            or time - due.oldest >= index.least_roll
            or due.left + index.congestion(time) > MOST_DUE
        ):
            return
        index.begin()
        due.begin(DueSlot(time, index.units(time)))

    def _deliver_next(self, most: int) -> int:
        """Execute the next step of delivery, for at most `most` messages. Return the number of
        messages; 0 if none is due."""
        count = 0
        slot = self._due.collecting
        if slot is not None:
            is_searched = slot.is_searched
            count += self._note_next(slot)
            if is_searched:
                return count
        count += self._deliver_run(most)
        while (done := self._due.take_delivered()) is not None:
            self.index.delivered(done.time)
            for topic, recalls in done.recalls.items():
                for _ in range(recalls):
                    self._statistics.timers.leave(topic, is_recall=True)
            count += 1
        return count

    def _note_next(self, due: DueSlot) -> int:
        """Collect the next units of the slot `collecting`."""
        count = size = 0
        try:
            for unit in islice(due.units or (), MOST_NOTED):
                size += self._note(due, unit)
                count += 1
                if size >= TURN_BYTES:
                    return TURN
        except BrokenChain as broken:
            self._search(due, str(broken), broken.position)
        else:
            if count == MOST_NOTED:
                return count
            if due.messages != self.index.congestion(due.time):
                self._search(due, "the timer wheel counts other messages than the timer log has")
            else:
                due.units = None
        if due.units is None:
            self._due.collected()
        return count + 1

    def _deliver_run(self, most: int) -> int:
        """Deliver the next messages in turn."""
        puts: list[Put | None] = []
        owners: list[Lane] = []
        taken: list[Lane] = []
        size = 0

        def done(first: int, end: int) -> None:
            for lane, count in Counter(owners[first:end]).items():
                lane.done(count)
            self._statistics.timer_dequeued += end - first
            for put in puts[first:end]:
                assert put is not None
                self._statistics.timers.deliver(put[0])

        def alone(at: int) -> bool:
            lane = owners[at]
            self._deliver_first(lane)
            lane.done_first()
            return lane.slot.units is None

        try:
            # Each run ends with the first message that `_deliver_first` must handle.
            while len(puts) < most and size < TURN_BYTES and (not puts or puts[-1] is not None):
                lane = self._due.take()
                if lane is None:
                    break
                taken.append(lane)
                more, more_size = self._next_puts(lane, most - len(puts), TURN_BYTES - size)
                puts += more
                size += more_size
                owners += [lane] * len(more)
            store_in_order(puts, self._put_hooks, self._statistics, done, alone)
        finally:
            self._due.give_back(taken)
        return len(puts) if size < TURN_BYTES else TURN

    def _next_puts(self, lane: Lane, most: int, most_size: int) -> tuple[list[Put | None], int]:
        """Return the puts that deliver the oldest messages of a lane, and their bytes. The puts end
        with None at the first message that `_deliver_first` must handle."""
        puts: list[Put | None] = []
        size = 0
        before = lane.last_done
        dequeued = self._clock()
        for physical_offset, magic, entered in lane.next_units(most):
            record = waiting_at(self._store, physical_offset)
            put = None
            if record is not None:
                size += record.size
                if magic == DEFAULT and physical_offset > before:
                    put = self._put_of(lane.slot, record, entered, dequeued)
            puts.append(put)
            if put is None or size >= most_size:
                break
            before = physical_offset
        return puts, size

    def _put_of(self, due: DueSlot, record: Record, entered: int, dequeued: int) -> Put | None:
        """Return the put for an ordinary message; None if `_deliver_first` must handle it."""
        text = record.properties_text
        slot = self.index.floor(_as_number(find(text, names.TIMER_OUT_MS), -1))
        if (
            record.topic != TIMER_TOPIC
            # It was late, or it belongs to another slot.
            or (slot != due.time and (slot > due.time or entered <= slot))
            or (due.deleted and timed_message(record.properties) in due.deleted)
            # It was stored again: the properties from that time must be replaced, not repeated.
            or names.TIMER_ENQUEUE_MS in text
            or names.TIMER_DEQUEUE_MS in text
        ):
            return None
        return put_of(
            record,
            text,
            self._put_hooks.destinations,
            f"{names.TIMER_ENQUEUE_MS}\x01{entered}\x02{names.TIMER_DEQUEUE_MS}\x01{dequeued}\x02",
        )

    def _deliver_first(self, lane: Lane) -> None:
        """Deliver the oldest undelivered message of a lane."""
        due = lane.slot
        physical_offset, magic, entered = lane.first
        if lane.first_is_repeated:
            self._search(due, f"there are two units for the message at {physical_offset}")
            return
        record = read_waiting(self._store, physical_offset, None, self._log)
        if record is None or record.topic != TIMER_TOPIC:
            if not 0 <= physical_offset < self._store.commit_log.min_offset:
                self._search(due, f"there is no timed message at {physical_offset}")
            return
        slot = _slot_of(record)
        if entered <= self.index.floor(slot) < due.time:
            self._search(due, f"the message at {physical_offset} is of an earlier slot")
            return
        # A message that is in an earlier slot because of damage must wait longer.
        roll = bool(magic & ROLL) or self.index.floor(slot) > due.time
        if roll and due.time < slot < self._clock() + SOON_MS:
            self._add(record, max(slot, self._due.newest + self.index.precision), due.time)
        else:
            self._deliver(record, entered, due, roll=roll)

    def _note(self, due: DueSlot, unit: TimerUnit) -> int:
        """Note a message to deliver, or a recall; return the bytes that were read for it."""
        if not unit.magic & DELETE or unit.magic & ROLL:
            due.note(unit)
            return 0
        record = read_waiting(self._store, unit.physical_offset, None, self._log)
        recalled = "" if record is None else record.properties.get(names.TIMER_DEL_UNIQKEY, "")
        if record is None or not recalled:
            due.note(unit)  # damaged: its delivery detects that
            return 0
        # A recall applies only to messages of its own topic, where its sender has permission.
        topic = record.properties.get(names.REAL_TOPIC, "")
        key = TimedMessage(topic, recalled.removeprefix(f"{topic}+"))
        due.recall(key, unit.physical_offset)
        return record.size

    def _search(self, due: DueSlot, damage: str, position: int = NOWHERE) -> None:
        """Search, once, for all messages of a slot with a damaged unit, which may be the one at
        `position`. The results replace the collected units; delivered messages are skipped."""
        due.units = None
        if due.is_searched:
            return
        due.is_searched = True
        found = self.index.search(due.time) + self._without_unit(due.time, position)
        found.sort(key=lambda unit: unit.physical_offset, reverse=True)
        more = len({unit.physical_offset for unit in found} - due.known())
        if more:
            self._due.collect_again(due)
            self._log.error(
                "timed messages: %s; a search of the whole timer log and of the queue of %s found "
                "%d more messages of that slot",
                damage,
                TIMER_TOPIC,
                more,
            )
            due.units = iter(found)

    def _without_unit(self, slot: int, damaged: int) -> list[TimerUnit]:
        """Return units for the messages of a slot that have no unit, or only the `damaged` one."""
        index = self.index
        queue = self._queue()
        if queue is None:
            return []
        found = []
        parts = queue.entries(queue.min_offset, index.queue_offset)
        for physical in index.without_unit((entries for _, entries in parts), damaged):
            record = read_waiting(self._store, physical, None, self._log)
            if record is None or record.topic != TIMER_TOPIC:
                continue
            stored = index.floor(record.store_timestamp)
            place, rolls = index.place(max(_slot_of(record), stored), stored)
            if place == slot:
                is_recall = names.TIMER_DEL_UNIQKEY in record.properties
                magic = DEFAULT | (ROLL if rolls else 0) | (DELETE if is_recall else 0)
                topic_hash = string_hash(record.properties.get(names.REAL_TOPIC, ""))
                found.append(
                    TimerUnit(NOWHERE, magic, stored, slot, physical, record.size, topic_hash)
                )
        return found

    def _queue(self) -> ConsumeQueue | None:
        return self._store.queues.get(TIMER_TOPIC, {}).get(0)

    def _read_next(self, queue: ConsumeQueue | None) -> Record | None:
        """Return the next message of the queue; skip missing messages, at most TURN of them."""
        index = self.index
        if queue is None:
            return None
        index.queue_offset = min(max(index.queue_offset, queue.min_offset), queue.max_offset)
        for _ in range(TURN):
            entry = queue.entry(index.queue_offset)
            if entry is None:
                return None
            record = read_waiting(self._store, entry[0], entry[1], self._log)
            if record is not None:
                return record
            index.queue_offset += 1
        return None

    def _enter_next(self, most: int) -> int:
        """Enter the next messages of the queue into the index, at most `most`, and stop before one
        that lets others become due. Return their number, TURN if they are large; 0 if there is
        none."""
        if self._is_set_back or not self.index.has_room(self._now_slot):
            return 0
        queue = self._queue()
        entered = size = 0
        while (record := self._next) is not None and entered < most:
            if entered and self._time_until(record) > self._now_slot:
                break
            if self._is_behind(record):
                if self._due:
                    return entered
                self._set_back()
                break
            self._enter(record)
            self._next = None
            self.index.queue_offset += 1
            entered += 1
            size += record.size
            self._next = self._read_next(queue)
            if size >= TURN_BYTES:
                return TURN
        if entered or self._next is not None or self._is_set_back:
            return entered
        if self.index.queue_offset < self._store.max_offset(TIMER_TOPIC, 0):
            return most  # all messages that were looked up are missing
        self.index.entered_all()
        return 0

    def _is_behind(self, record: Record) -> bool:
        """Tell whether a message would be delivered late because the clock was set back: its slot,
        or the slot of late messages, was already delivered by the former time. (It is delivered
        late if the clock was set back by a week or more while other messages wait.)"""
        now = self.index.floor(self._clock())
        return max(_slot_of(record), now) < self._now_slot and self.index.can_set_back(now)

    def _set_back(self) -> None:
        """Adopt the time of the clock, and enter no messages until that is on the disk."""
        time = self.index.floor(self._clock())
        log.warning(
            "timed messages: the clock was set back by more than %d ms, and deliveries follow it",
            self._now_slot - time - self.index.precision,
        )
        self.index.set_back(time)
        self._now_slot = time
        self._late_slot = 0
        self._is_set_back = True

    def _enter(self, record: Record) -> None:
        if self.index.entered_before(record.physical_offset):
            return
        slot = _slot_of(record)
        if slot < 0:
            self._log.error(
                "topic %s: a message has no time: TIMER_OUT_MS=%r",
                TIMER_TOPIC,
                record.properties.get(names.TIMER_OUT_MS, "")[:40],
            )
        else:
            in_time = slot >= self._now_slot
            self._add(record, slot if in_time else self._slot_of_late_ones(), self._now_slot)
            properties = record.properties
            topic = properties.get(names.REAL_TOPIC, "")
            is_recall = names.TIMER_DEL_UNIQKEY in properties
            timers = self._statistics.timers
            timers.enter(topic, is_recall=is_recall)
            if not is_recall and names.TIMER_ROLL_TIMES not in properties:
                timers.sent(topic, slot - record.store_timestamp)
        self._statistics.timer_enqueued += 1

    def _add(self, record: Record, slot: int, now_slot: int) -> None:
        """Enter a message into a slot. Raises _NotStored."""
        properties = record.properties
        try:
            self.index.add(
                slot,
                now_slot,
                record.physical_offset,
                record.size,
                properties.get(names.REAL_TOPIC, ""),
                names.TIMER_DEL_UNIQKEY in properties,
            )
        except (StoreError, OSError) as error:
            raise _NotStored(str(error)) from error

    def _slot_of_late_ones(self) -> int:
        """Return the slot for messages that were due before they were entered. All messages in the
        queue at one time get the same slot, since some may recall others."""
        if self._late_slot < self._now_slot:
            self._late_slot = max(self._now_slot, self.index.floor(self._clock()))
        return self._late_slot

    # --- a message ----------------------------------------------------------------------------

    def _deliver(
        self,
        record: Record,
        entered: int,
        due: DueSlot,
        *,
        roll: bool,
    ) -> None:
        """Store a message in the topic that it was sent to or, with `roll`, in the timer topic
        again.

        Raises _NotStored if it must be tried again; a message that can never be stored is dropped
        and logged as an error.
        """
        properties = record.properties
        timers = self._statistics.timers
        topic = properties.get(names.REAL_TOPIC, "")
        is_recall = names.TIMER_DEL_UNIQKEY in properties
        if due.deleted and timed_message(properties) in due.deleted:
            if due.recalls[topic]:
                due.recalls[topic] -= 1  # the message and its recall are both removed
            else:
                timers.leave(topic)
            return
        inner = returned(record, self._put_hooks.destinations, self._log)
        if inner is None:
            timers.leave(topic, is_recall=is_recall)
            return
        if roll:
            inner = inner_message_of(record)
        stamps = {
            names.TIMER_ENQUEUE_MS: str(entered),
            names.TIMER_DEQUEUE_MS: str(self._clock()),
        }
        if roll:
            stamps[names.TIMER_ROLL_TIMES] = str(_rolled(record) + 1)
        result = self._put(inner, stamps)
        if result.status is PutStatus.PUT_OK:
            self._statistics.timer_dequeued += 1
            if roll:
                timers.leave(topic, is_recall=is_recall)
            else:
                timers.deliver(topic)
            size = result.end_offset - result.physical_offset
            self._statistics.count_put(inner.topic, size, inner.properties)
        elif result.status is PutStatus.MESSAGE_ILLEGAL:
            timers.leave(topic, is_recall=is_recall)
            self._log.error("topic %s: a timed message is dropped: %s", inner.topic, result.remark)
        elif roll or not self._waits_again(record):
            raise _NotStored(result.remark)
        else:
            timers.leave(topic, is_recall=is_recall)
            self._log.error(
                "topic %s: a timed message was not stored: %s", inner.topic, result.remark
            )

    def _put(self, inner: InnerMessage, stamps: dict[str, str]) -> PutResult:
        """Store a message with `stamps` added to its properties, or without them if they do not
        fit: they are only informative, and the message was accepted."""
        own = inner.properties
        inner.properties = {**own, **stamps}
        result = self._put_hooks.put(inner, direct=True)
        if result.status is PutStatus.MESSAGE_ILLEGAL:
            inner.properties = own
            result = self._put_hooks.put(inner, direct=True)
        return result

    def _waits_again(self, record: Record) -> bool:
        """Store a message in the timer topic again, for a later time; return False if the store
        refuses it."""
        inner = inner_message_of(record)
        rolled = _rolled(record)
        later = self._clock() + (AGAIN_MS << min(rolled, DOUBLINGS))
        inner.properties[names.TIMER_OUT_MS] = str(self.index.floor(later))
        inner.properties[names.TIMER_ROLL_TIMES] = str(rolled + 1)
        return self._put_hooks.put(inner, direct=True).ok


def timed_message(properties: dict[str, str]) -> TimedMessage:
    """Return the name in recalls of the message with `properties`."""
    return TimedMessage(properties.get(names.REAL_TOPIC, ""), properties.get(names.UNIQ_KEY, ""))


def _slot_of(record: Record) -> int:
    """Return TIMER_OUT_MS of a waiting message; -1 if it is missing."""
    return _number(record, names.TIMER_OUT_MS, -1)


def _rolled(record: Record) -> int:
    """Return TIMER_ROLL_TIMES: how often a message was stored again."""
    return _number(record, names.TIMER_ROLL_TIMES, 0)


def _number(record: Record, name: str, default: int) -> int:
    """Return a property as an integer; the default if it is missing or not a number."""
    return _as_number(record.properties.get(name), default)


def _as_number(text: str | None, default: int) -> int:
    number = text and text.isascii() and text.isdecimal() and len(text) < 19
    return int(text) if text and number else default


class _NotStored(Exception):
    """The store refuses messages now."""
