"""The files in `timerlog/`: a unit for each timed message, chained by slot from newest to oldest.

Units of 52 bytes, one after another in a run of files::

    size i32 = 52 · previous position i64 (-1: none) · magic i32 · time of entry i64 ·
    slot minus time of entry i32 · physicalOffset i64 · message size i32 ·
    hash of the real topic i32 · 0 i64

A file's last bytes, too few for another unit, begin with a blank (length, 0, `BLANK_MAGIC`).
Positions count from the first file ever. Reference: TimerLog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from pocketmq.store.errors import StoreCorrupt
from pocketmq.store.files import Files, MappedFile, Retirement
from pocketmq.store.log.mapped_file_queue import MappedFileQueue

#: Bits of a unit's magic.
DEFAULT: Final = 1
ROLL: Final = 2  # not due yet in its slot: to be stored again
DELETE: Final = 4  # names a message of the same slot that is not to be delivered
MOST_MAGIC: Final = 0xF

NOWHERE: Final = -1
BLANK_MAGIC: Final = (0xBBCCDDEE ^ (1880681586 + 8)) - (1 << 32)
_UNIT: Final = Struct(">iqiqiqiiq")
UNIT_SIZE: Final = _UNIT.size
_BLANK: Final = Struct(">iqi")
_SETTING: Final = "mappedFileSizeTimerLog"


class TimerUnit(NamedTuple):
    """One unit; times are Unix ms, offsets and sizes those of the message's record, and the hash is
    that of the topic that it was sent to."""

    previous: int
    magic: int
    entered: int
    slot: int
    physical_offset: int
    size: int
    topic_hash: int


class TimerLog:
    """The timer log in `directory`. `end` is the position of the next unit."""

    def __init__(self, files: Files, directory: Path, file_size: int) -> None:
        self._retired = Retirement()
        self._files = MappedFileQueue(files, directory, file_size, _SETTING, self._retired)
        self._expired: list[MappedFile] = []  # taken out, perhaps still on the disk
        self.end = 0

    @property
    def begin(self) -> int:
        """The position of the oldest unit."""
        return self._files.first_offset

    def open(self, flushed: int, fits: Callable[[TimerUnit], bool]) -> None:
        """Map the files and find the end.

        It is at the position `flushed`, up to which the log is on the disk, or later: at the first
        place without a unit, or with one that does not fit its message, as when the commit log has
        lost that. Later bytes are removed: the messages enter again. Raises FileSizeMismatch,
        StoreCorrupt.
        """
        directory = self._files.directory
        # After a kill nobody knows whether the names are on the disk.
        self._files.load((directory, directory.parent), rebuilt_from=flushed)
        if not self._files.mapped or self.begin > flushed:
            self._check_end(flushed)
            self._files.remove_all()  # a power cut took the names of those before them
            return
        mapped = self._files.mapped
        last = mapped[-1].base_offset + self._files.file_size
        self.end = flushed if flushed <= last else self.begin
        within = self.end % self._files.file_size
        if within % UNIT_SIZE:
            self.end -= within
        for position, unit in self.units(self.end):
            if not fits(unit):
                break
            self.end = position + UNIT_SIZE
        self._check_end(flushed)
        # Later bytes are left from a crash: half a unit, or units without their predecessors.
        self._files.truncate(self.end)
        file = self._files.find(self.end)
        if file is not None:
            file.allocate()
            at = self.end - file.base_offset
            if file.has_data(at):
                file.zero_from(at)
                # Or the next power cut brings it back, after the units that are written now.
                file.sync()

    def _check_end(self, flushed: int) -> None:
        if self.end < flushed - flushed % self._files.file_size % UNIT_SIZE:
            raise StoreCorrupt(
                self._files.path_of(self.end // self._files.file_size * self._files.file_size), 0,
                f"the timer log ends at {self.end}, but it had been flushed up to {flushed}",
            )  # fmt: skip

    def append(self, unit: TimerUnit) -> int:
        """Append a unit and return its position. Raises DiskFull."""
        size = self._files.file_size
        file = self._files.find(self.end)
        if file is None:
            file = self._files.create(self.end // size * size)
            self.end = file.base_offset
        room = file.base_offset + size - self.end
        if room < UNIT_SIZE + _BLANK.size:
            following = self._files.create(file.base_offset + size)
            _BLANK.pack_into(file.map, self.end - file.base_offset, room, 0, BLANK_MAGIC)
            file = following
            self.end = file.base_offset
        position = self.end
        _UNIT.pack_into(
            file.map, position - file.base_offset, UNIT_SIZE, unit.previous, unit.magic,
            unit.entered, unit.slot - unit.entered, unit.physical_offset, unit.size,
            unit.topic_hash, 0,
        )  # fmt: skip
        self.end = position + UNIT_SIZE
        return position

    def unit(self, position: int) -> TimerUnit | None:
        """Return the unit at a position; None if the log has none there."""
        file = self._files.find(position)
        if file is None or position + UNIT_SIZE > file.base_offset + file.size:
            return None
        size, previous, magic, entered, delay, physical, length, topic, _ = _UNIT.unpack_from(
            file.map, position - file.base_offset
        )
        # The length is the last that is written: without it, the disk has the begin of the unit.
        if size != UNIT_SIZE or not 0 < magic <= MOST_MAGIC or length <= 0:
            return None
        return TimerUnit(previous, magic, entered, entered + delay, physical, length, topic)

    @property
    def files(self) -> tuple[MappedFile, ...]:
        """The files, oldest first."""
        return self._files.mapped

    def units_in(self, file: MappedFile) -> int:
        """Return how many units one of the files has room for, up to the end of the log."""
        room = min(file.size - _BLANK.size, self.end - file.base_offset)
        return max(0, room // UNIT_SIZE)

    def units(self, start: int) -> Iterator[tuple[int, TimerUnit]]:
        """Positions and units from the position `start` on, up to the first that is not a unit."""
        position = start
        while (file := self._files.find(position)) is not None:
            unit = self.unit(position)
            if unit is not None:
                yield position, unit
                position += UNIT_SIZE
                continue
            # If no other unit fits, a blank follows.
            if _has_room(file, position):
                return
            position = file.base_offset + file.size

    def check(self) -> None:
        """Raise StoreCorrupt if a unit is missing before the end."""
        at = self.begin
        for position, _ in self.units(at):
            at = position + UNIT_SIZE
        file = self._files.find(at)
        if file is not None and not _has_room(file, at):
            at = file.base_offset + file.size
            file = self._files.find(at)
        if file is not None and at < self.end:
            raise StoreCorrupt(
                file.path, at - file.base_offset,
                f"there is no unit here, but the timer log goes on up to position {self.end}",
            )  # fmt: skip

    def take_expired(self, entered_before: int) -> list[MappedFile]:
        """Take out the files, except the last one, whose units were all entered before that time,
        for `discard`; those that it did not get rid of come again."""
        self._retired.sweep()
        room = self._files.file_size - _BLANK.size
        for file in self._files.mapped[:-1]:
            last = self.unit(file.base_offset + (room - room % UNIT_SIZE) - UNIT_SIZE)
            if last is None or last.entered >= entered_before:
                break
            self._expired.append(self._files.take_first())
        return self._expired.copy()

    def discard(self, files: Iterable[MappedFile]) -> None:
        """Remove files that were taken out; off the event loop. Raises OSError; then the later ones
        stay, since a gap would keep the log from being opened."""
        for file in files:
            self._files.discard(file)
            self._expired.remove(file)

    def sync(self, start: int) -> None:
        """Wait until the units from the position `start` on are on the disk; off the event loop.
        Raises OSError."""
        for file in self._files.mapped:
            if file.base_offset + file.size > start:
                file.sync()

    def close(self) -> None:
        """Close the files."""
        for file in self._expired:
            self._retired.add(file)
        self._expired.clear()
        self._files.close()
        self._retired.sweep()


def _has_room(file: MappedFile, position: int) -> bool:
    """Return whether another unit is written into the file at this position."""
    return position - file.base_offset + UNIT_SIZE + _BLANK.size <= file.size
