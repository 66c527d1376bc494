"""The slots of timed messages that have passed, and the order in which they are delivered.

Topics alternate. So very many messages of one topic that are due at one moment do not delay those
of others, neither in the same slot nor in later ones. Within a topic, slots are delivered in the
order of time, and the messages of each in the order of arrival.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pocketmq.remoting.serving.rotation import Rotation
from pocketmq.store.timer.timer_log import DELETE, TimerUnit


class TimedMessage(NamedTuple):
    """The name of a message in recalls: the topic that it was sent to, and its unique key."""

    topic: str
    unique_key: str

    def recalled_by(self, *, with_topic: bool) -> str:
        """Return the value of TIMER_DEL_UNIQKEY that recalls the message: of brokers before 5.4
        with its topic."""
        return f"{self.topic}+{self.unique_key}" if with_topic else self.unique_key


class Lane:
    """The messages of one topic in a slot.

    The timer log gives its units newest first, but the oldest is delivered first. So they are
    collected here, with 24 bytes each, and 8 bytes after delivery.
    """

    def __init__(self, slot: DueSlot, topic_hash: int) -> None:
        self.slot = slot
        self.topic_hash = topic_hash
        self.is_queued = False  # in the rotation
        self._waiting = array("q")  # physical offset, magic and time of entry of each unit
        self._done = array("q")  # physical offsets, sorted; they are nearly always in order

    def __len__(self) -> int:
        """Return the number of units that are not delivered."""
        return len(self._waiting) // 3

    @property
    def last_done(self) -> int:
        """The highest physical offset of a delivered message; -1 if there is none."""
        return self._done[-1] if self._done else -1

    @property
    def first(self) -> tuple[int, int, int]:
        """Physical offset, magic and time of entry of the next unit."""
        entered, magic, physical_offset = self._waiting[-3:]
        return physical_offset, magic, entered

    @property
    def first_is_repeated(self) -> bool:
        """Whether the message of the next unit already had another unit. After a kill, the official
        broker reads its queue from the checkpoint on, and enters some messages again."""
        done, physical_offset = self._done, self._waiting[-1]
        if not done or physical_offset > done[-1]:
            return False
        return done[bisect_left(done, physical_offset)] == physical_offset

    def next_units(self, most: int) -> Iterator[tuple[int, int, int]]:
        """Yield the physical offset, magic and time of entry of the next units, at most `most`."""
        waiting = self._waiting
        for end in range(len(waiting), max(len(waiting) - 3 * most, 0), -3):
            entered, magic, physical_offset = waiting[end - 3 : end]
            yield physical_offset, magic, entered

    def note(self, unit: TimerUnit) -> None:
        self._waiting.extend((unit.entered, unit.magic, unit.physical_offset))
        self.slot.left += 1

    def done_first(self) -> None:
        if not self.first_is_repeated:
            insort(self._done, self._waiting[-1])
        del self._waiting[-3:]
        self.slot.left -= 1

    def done(self, count: int) -> None:
        """Record the next units as delivered; their physical offsets increase, and are greater than
        `last_done`."""
        end = len(self._waiting)
        self._done.extend(reversed(self._waiting[end + 2 - 3 * count :: 3]))
        del self._waiting[end - 3 * count :]
        self.slot.left -= count

    def known(self) -> Iterator[int]:
        """Yield the physical offsets of all units."""
        yield from self._waiting[2::3]
        yield from self._done


class DueSlot:
    """A slot that has passed, during the delivery of its messages. `units` are those that are not
    collected; None when all are."""

    def __init__(self, time: int, units: Iterator[TimerUnit]) -> None:
        self.time = time
        self.units: Iterator[TimerUnit] | None = units
        self.lanes: dict[int, Lane] = {}  # by the hash of the topic
        self.left = 0  # collected units that are not delivered
        self.deleted: set[TimedMessage] = set()
        self.messages = 0  # the count of the wheel, which subtracts recalls
        # Recalls by topic whose message was not found yet.
        self.recalls: Counter[str] = Counter()
        self._recalls_met: set[int] = set()
        self.is_searched = False  # the whole timer log and queue were searched for its messages

    def note(self, unit: TimerUnit) -> None:
        lane = self.lanes.get(unit.topic_hash)
        if lane is None:
            lane = self.lanes[unit.topic_hash] = Lane(self, unit.topic_hash)
        lane.note(unit)
        self.messages += -1 if unit.magic & DELETE else 1

    def recall(self, key: TimedMessage, physical_offset: int) -> None:
        self.deleted.add(key)
        self.messages -= 1
        # A search after damage returns it again.
        if physical_offset not in self._recalls_met:
            self._recalls_met.add(physical_offset)
            self.recalls[key.topic] += 1

    def known(self) -> set[int]:
        """The physical offsets of all collected units."""
        return {offset for lane in self.lanes.values() for offset in lane.known()}


class DueSlots:
    """The slots that were begun and are not delivered, the oldest first."""

    def __init__(self) -> None:
        self._slots: deque[DueSlot] = deque()
        self._lanes: Rotation[Lane] = Rotation()
        self._collecting: list[DueSlot] = []

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def oldest(self) -> int:
        """The time of the oldest slot."""
        return self._slots[0].time

    @property
    def newest(self) -> int:
        """The time of the newest slot."""
        return self._slots[-1].time

    @property
    def left(self) -> int:
        """The number of collected units that are not delivered."""
        return sum(slot.left for slot in self._slots)

    @property
    def collecting(self) -> DueSlot | None:
        """The slot whose units have to be collected next. If it `is_searched`, nothing may be
        delivered before."""
        return self._collecting[-1] if self._collecting else None

    def delivered_until(self, topic_hash: int) -> int | None:
        """Return the time of the first slot that may have an undelivered message of a topic; None
        if there is none."""
        times = [slot.time for slot in self._collecting]
        lane = self._lanes.first_of(topic_hash)
        if lane is not None:
            times.append(lane.slot.time)
        return min(times, default=None)

    def begin(self, slot: DueSlot) -> None:
        """Add a slot, which is later than the others."""
        self._slots.append(slot)
        self._collecting.append(slot)

    def collect_again(self, slot: DueSlot) -> None:
        """Collect what a search for the messages of a slot has found."""
        if slot not in self._collecting:
            self._collecting.append(slot)

    def collected(self) -> None:
        """All units of the slot `collecting` are collected."""
        slot = self._collecting.pop()
        # The log gave the newest first.
        self._give([lane for lane in reversed(slot.lanes.values()) if not lane.is_queued])

    def take(self) -> Lane | None:
        """Take the lane that has its turn; `give_back` it after its delivery."""
        if not self._lanes:
            return None
        lane = self._lanes.take()
        lane.is_queued = False
        return lane

    def give_back(self, lanes: Sequence[Lane]) -> None:
        """Give back the lanes that were taken, in the order in which they were taken."""
        self._give(lanes[::-1], first=True)

    def _give(self, lanes: Sequence[Lane], *, first: bool = False) -> None:
        for lane in lanes:
            if lane:
                lane.is_queued = True
                self._lanes.add(lane.topic_hash, lane, first=first)

    def take_delivered(self) -> DueSlot | None:
        """Take the oldest slot if all its messages are delivered."""
        if self._slots and self._slots[0].units is None and not self._slots[0].left:
            return self._slots.popleft()
        return None
