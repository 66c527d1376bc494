"""Which timed messages are due in which slot of time, in the official broker's own files.

The messages are in the commit log and in the queue of the timer topic; this is the index over them.
The timer log has a unit for each. The wheel links to the newest unit of a slot, each unit to the
one before it, and the checkpoint says how far slots are delivered and the queue is indexed. The
files are `timerwheel`, `timerlog/` and `config/timercheck`, as the official broker writes them, so
either broker goes on where the other one stopped. Pending messages take no memory here but a few
bytes per slot.

A message enters when it is read from the queue. Slots are delivered in the order of time and stay
in the wheel; `read_time` tells which are done, and goes back when the clock is set back. After a
kill the queue is read again from where the checkpoint says, and messages that have a unit already
do not enter twice. If the machine stopped, the wheel may know units that the log lost; then it is
rebuilt from the log, as a missing one is. Reference: TimerMessageStore.

A start must be possible from the files on the disk at any moment. So the checkpoint is created
before the others, log and wheel are synced before it says so, and the seal is broken before any of
them changes.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pocketmq.message.tags import string_hash
from pocketmq.store.config import StoreConfig
from pocketmq.store.errors import FileSizeMismatch, StoreCorrupt, with_remedy
from pocketmq.store.files import Files, MappedFile
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.timer.timer_checkpoint import TimerCheckpoint
from pocketmq.store.timer.timer_log import DEFAULT, DELETE, NOWHERE, ROLL, TimerLog, TimerUnit
from pocketmq.store.timer.timer_wheel import RING, TimerWheel
from pocketmq.store.timer.unit_check import fits_its_message

if TYPE_CHECKING:
    from pocketmq.store.encoding.entry_array import EntryArray

log = logging.getLogger(__name__)

SLOTS: Final = RING // 2  # the furthest slot that can be entered
BLANK_SLOTS: Final = 60
LEAST_WINDOW: Final = 2


class BrokenChain(Exception):
    """The timer log has no unit of a slot at a `position` that another unit, or the wheel, names:
    one of them is damaged."""

    def __init__(self, directory: Path, slot: int, position: int) -> None:
        super().__init__(f"{directory}: there is no unit of slot {slot} at {position}")
        self.position = position


class TimerIndex:
    """The index of one store. Times are Unix ms, offsets queue offsets of the timer topic.

    Attributes:
        read_time: the slots before it are delivered.
        queue_offset: the next message of the timer topic to enter.
        waiting: how many messages wait; those that take another back count less.
    """

    def __init__(self, config: StoreConfig, files: Files | None = None) -> None:
        files = files or Files()
        root = self._root = config.root
        self._log_directory = root / "timerlog"
        self.precision = config.timer_precision
        self.read_time = 0
        self.queue_offset = 0
        self.waiting = 0
        self._wheel = TimerWheel(files, root / "timerwheel", self.precision)
        self._log = TimerLog(files, self._log_directory, config.mapped_file_size_timer_log)
        self._checkpoint = TimerCheckpoint(files, root / "config" / "timercheck")
        self._checkpoint_path = root / "config" / "timercheck"
        window = config.timer_roll_window_slot
        if not LEAST_WINDOW <= window <= SLOTS - BLANK_SLOTS:
            window = SLOTS - BLANK_SLOTS
        self._window = window * self.precision
        # The slots that have messages and are not delivered: those that were begun, the oldest
        # first, and a heap of the others.
        self._begun: deque[int] = deque()
        self._waiting: list[int] = []
        # Units from before a kill that the checkpoint does not cover, by their messages' physical
        # offsets, and where they are in the timer log.
        self._entered: dict[int, int] = {}
        self.opened = False

    @property
    def exists(self) -> bool:
        """Whether this store ever had timed messages."""
        return self._checkpoint_path.exists() or self._wheel.exists or self._log_directory.exists()

    def open(
        self, now: int, commit_log: CommitLog, *, ours: bool = False, closed: bool = False
    ) -> None:
        """Map the files, or create them, and find out where to go on, with the commit log as
        recovery left it. `ours`: no broker of another kind has used the store since the last
        pocketmq process; `closed`: that process stopped cleanly. Blocks.

        Raises DiskFull, FileSizeMismatch, StoreCorrupt.
        """
        try:
            self._open(now, commit_log, ours=ours, closed=closed)
        except (StoreCorrupt, FileSizeMismatch) as error:
            self.close()
            raise with_remedy(error, self._root) from error
        except BaseException:
            self.close()
            raise
        self.opened = True

    def seal(self) -> None:
        """Let the next start see whether the timers are as they are now, unless it has to read the
        queue again anyway. To be called last, when `progress` is on the disk. Raises OSError."""
        if self._entered:
            return
        self._wheel.sync()
        self._checkpoint.set_seal(self._digest())
        self._checkpoint.flush()

    def close(self) -> None:
        """Close the files; `checkpoint` before, or they are as after a kill."""
        self.opened = False
        self._wheel.close()
        self._log.close()
        self._checkpoint.close()

    def add(
        self, deliver: int, now_slot: int, physical_offset: int, size: int, topic: str, delete: bool
    ) -> None:
        """Enter a message whose slot is `deliver`, which must not be before `now_slot`.

        One that is further away than the roll window enters a slot within it, marked to be stored
        again then. Raises DiskFull.
        """
        slot, rolls = self.place(deliver, now_slot)
        magic = DEFAULT | ROLL if rolls else DEFAULT
        if delete:
            magic |= DELETE
        known = self._wheel.get(slot)
        previous = NOWHERE if known is None else known.last
        unit = TimerUnit(previous, magic, now_slot, slot, physical_offset, size, string_hash(topic))
        position = self._log.append(unit)
        messages = -1 if delete else 1
        self._wheel.link(slot, position, messages)
        self.waiting += messages
        if known is None:
            heapq.heappush(self._waiting, slot)

    def place(self, deliver: int, now_slot: int) -> tuple[int, bool]:
        """Return the slot of a message that enters at `now_slot`, and whether it is only to be
        stored again then."""
        slot = self.floor(deliver)
        ahead = slot - now_slot - self._window
        if ahead < 0:
            return slot, False
        # Half the window, if it would be left with a short rest otherwise.
        short = ahead < self.least_roll
        return self.floor(now_slot + (self._window // 2 if short else self._window)), True

    def entered_before(self, physical_offset: int) -> bool:
        """Return whether a message of the queue already has its unit, from before a kill."""
        return self._entered.pop(physical_offset, None) is not None

    def entered_all(self) -> None:
        """The queue was read to its end: what still seems to come from it is gone."""
        self._entered.clear()

    def next_slot(self) -> int | None:
        """Return the earliest slot that has messages and is not delivered."""
        return self._begun[0] if self._begun else self.next_to_begin

    @property
    def next_to_begin(self) -> int | None:
        """The earliest slot that has messages and was not begun. It is later than those that were:
        until they are delivered, nothing may enter a slot that is not later than they are."""
        return self._waiting[0] if self._waiting else None

    def begin(self) -> None:
        """Begin to deliver `next_to_begin`."""
        self._begun.append(heapq.heappop(self._waiting))

    def give_up(self) -> None:
        """Another broker delivers the slots that were begun."""
        for slot in self._begun:
            heapq.heappush(self._waiting, slot)
        self._begun.clear()

    def slots(self) -> list[int]:
        """Return all slots that have messages and are not delivered, in no order."""
        return [*self._begun, *self._waiting]

    def units(self, slot: int) -> Iterator[TimerUnit]:
        """Return the units of a slot, the newest first. Raises BrokenChain where damage ends it."""
        known = self._wheel.get(slot)
        position = NOWHERE if known is None else known.last
        while position != NOWHERE:
            unit = self._log.unit(position)
            if unit is None or self.floor(unit.slot) != slot or unit.previous >= position:
                raise BrokenChain(self._log_directory, slot, position)
            yield unit
            position = unit.previous

    def waiting_by_topic(self) -> dict[int, int]:
        """Return how many messages wait by the hash of their topic; recalls count less."""
        if self.next_slot() is None:
            return {}
        # Loads numpy, which an idle broker does without.
        from pocketmq.store.timer.slot_search import waiting_by_topic

        counts = waiting_by_topic(self._log, self.read_time)
        if sum(counts.values()) == self.waiting:
            return counts
        # The clock was set back, and the log has units of slots that were delivered before.
        counts = {}
        for time in self.slots():
            slot = self._wheel.get(time)
            position = NOWHERE if slot is None else slot.last
            while position != NOWHERE and (unit := self._log.unit(position)) is not None:
                more = -1 if unit.magic & DELETE else 1
                counts[unit.topic_hash] = counts.get(unit.topic_hash, 0) + more
                position = unit.previous if unit.previous < position else NOWHERE
        return counts

    def search(self, slot: int) -> list[TimerUnit]:
        """Return the units of a slot that the whole timer log has."""
        from pocketmq.store.timer.slot_search import units_of_slot

        return units_of_slot(self._log, slot, self.precision)

    def without_unit(self, messages: Iterable[EntryArray], damaged: int) -> list[int]:
        """Return the physical offsets of the messages, given by parts of their queue, whose unit is
        not there, since it is old and they are delivered, or is damaged, as the one at the position
        `damaged`."""
        from pocketmq.store.timer.slot_search import without_unit

        return without_unit(self._log, messages, damaged)

    def delivered(self, slot: int) -> None:
        """All messages of the earliest slot, which was begun, are delivered."""
        self._begun.popleft()
        self.waiting -= self.congestion(slot)
        self.read_time = slot + self.precision

    def delivered_before(self, time: int) -> None:
        """All messages of the slots before `time` were delivered, by another broker."""
        while self._waiting and self._waiting[0] < time:
            self.begin()
            self.delivered(self._begun[0])
        self.read_time = max(self.read_time, self.floor(time))

    def has_room(self, now_slot: int) -> bool:
        """Tell whether messages may enter at `now_slot`: the wheel has a place for each slot, which
        has to be delivered before another slot gets it."""
        slot = self.next_slot()
        return slot is None or now_slot - slot <= SLOTS * self.precision

    def can_set_back(self, time: int) -> bool:
        """Tell whether all slots with messages would still fit into the wheel."""
        return max(self._waiting, default=time) < time + SLOTS * self.precision

    def set_back(self, time: int) -> None:
        """Let the slots from `time` on be used again, of which some were delivered: the clock was
        set back. Nothing may enter them before a `checkpoint`: after a kill, slots before the read
        time that it holds count as delivered.
        """
        self._wheel.forget(time, self.read_time)
        self.read_time = time

    def congestion(self, deliver: int) -> int:
        """Return how many messages wait for a slot."""
        known = self._wheel.get(deliver) if self.opened else None
        return 0 if known is None else known.messages

    @property
    def least_roll(self) -> int:
        """The least time in ms from the slot in which a message waits to be stored again to its own
        slot."""
        return self._window // 3

    @property
    def log_end(self) -> int:
        """Position after the last unit of the timer log."""
        return self._log.end

    def progress(self) -> tuple[int, int, int]:
        """Return what `checkpoint` is to write: read time, position in the timer log, queue offset.

        The units before that position belong to the messages before that offset. After a kill it is
        not the end of the log until the queue is read up to where it was.
        """
        position = next(iter(self._entered.values()), self._log.end)
        return self.read_time, position, self.queue_offset

    def take_expired(self) -> list[MappedFile]:
        """Take out the timer-log files of messages that are all delivered, for `checkpoint`."""
        return self._log.take_expired(self.read_time - SLOTS * self.precision)

    def checkpoint(
        self, progress: tuple[int, int, int], now: int, expired: list[MappedFile]
    ) -> None:
        """Wait until the index is on the disk, then write `progress`, then remove what expired;
        off the event loop.

        What `progress` says is delivered must be on the disk. Raises OSError.
        """
        self._log.sync(self._checkpoint.log_flushed)
        self._wheel.sync()
        self._checkpoint.sync(*progress, now)
        self._log.discard(expired)

    def _open(self, now: int, commit_log: CommitLog, *, ours: bool, closed: bool) -> None:
        checkpoint, units, wheel = self._checkpoint, self._log, self._wheel
        if ours and self.exists and not self._checkpoint_path.exists():
            raise StoreCorrupt(self._checkpoint_path, 0, "the file is missing")
        checkpoint.open()
        has_wheel = wheel.exists
        if not has_wheel:
            checkpoint.flush()
        flushed = checkpoint.log_flushed
        latest = now + self.precision

        def fits(unit: TimerUnit) -> bool:
            # Another broker's checkpoint may be older than entries which that broker will not
            # make again.
            if not ours:
                return unit.physical_offset < commit_log.end
            return self._continues(unit) and fits_its_message(unit, commit_log, latest)

        units.open(flushed, fits)
        is_lost = not has_wheel and flushed > units.begin
        if is_lost:
            log.warning("%s is missing and is rebuilt", self._root / "timerwheel")
            self._before_relink(now)
        wheel.open()
        if checkpoint.seal:
            self.read_time, self.queue_offset = checkpoint.read_time, checkpoint.queue_offset
            if ours and closed and has_wheel and checkpoint.seal != self._digest():
                raise StoreCorrupt(
                    self._root / "timerwheel", 0,
                    f"it and {self._checkpoint_path} are not as they were when they were closed",
                )  # fmt: skip
            checkpoint.set_seal(0)
            checkpoint.flush()
        # However long ago that was: slots know their time, and overdue messages go before new
        # ones. Only without a checkpoint the wheel may have many that were delivered.
        oldest = self.floor(now) - (SLOTS - BLANK_SLOTS) * self.precision
        self.read_time = checkpoint.read_time or oldest
        self.queue_offset = checkpoint.queue_offset
        for position, unit in units.units(max(flushed, units.begin)):
            # Before the first checkpoint nothing shows that a message this old was delivered: it
            # enters again.
            if checkpoint.read_time or unit.slot >= self.read_time:
                wheel.link(unit.slot, position, 0)
                self._entered[unit.physical_offset] = position
        waiting = wheel.occupied(self.read_time)
        is_ahead = any(slot.last >= units.end for _, slot in waiting)
        if is_ahead:
            log.warning("timer wheel is ahead of the timer log and is rebuilt")
            self._before_relink(now)
        if is_ahead or is_lost:
            self._relink()
            waiting = wheel.occupied(self.read_time)
        self._waiting = [time for time, _ in waiting]
        self.waiting = sum(slot.messages for _, slot in waiting)

    def _continues(self, unit: TimerUnit) -> bool:
        """Return whether a unit leads to an older one of its slot, or is the first that is left."""
        if unit.previous < self._log.begin:
            return unit.previous >= NOWHERE  # those before it were in a file that expired
        if unit.previous >= self._log.end:
            return False
        previous = self._log.unit(unit.previous)
        return previous is not None and self.floor(previous.slot) == self.floor(unit.slot)

    def _digest(self) -> int:
        """Return a digest, which is never 0, of the progress and of the pending slots."""
        waiting = self._wheel.occupied(self.read_time)
        content = repr((self.read_time, self.queue_offset, self._log.end, waiting)).encode()
        digest = blake2b(content, digest_size=8).digest()
        return int.from_bytes(digest, signed=True) or 1

    def _before_relink(self, now: int) -> None:
        """Let each start link all units up to the next `checkpoint`: a power cut may leave any part
        of the rebuilt wheel."""
        self._log.check()
        checkpoint = self._checkpoint
        checkpoint.sync(checkpoint.read_time, self._log.begin, checkpoint.queue_offset, now)

    def _relink(self) -> None:
        self._wheel.clear()
        for position, unit in self._log.units(self._log.begin):
            if unit.slot >= self.read_time:
                self._wheel.link(unit.slot, position, -1 if unit.magic & DELETE else 1)

    def floor(self, time: int) -> int:
        """Return the slot of a time."""
        return time // self.precision * self.precision
