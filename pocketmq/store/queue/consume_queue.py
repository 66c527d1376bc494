"""A consume queue: the commit-log positions of the messages of one topic and queue id.

Entries have 20 bytes (`store.queue.queue_entry`); that of queue offset n is at byte 20·n of the run
of files.
A queue that starts past 0, since the log before it is gone, begins its first file with fillers
(0, 2^31-1, 0), as the reference does. Zeros follow the last entry. The queue is always derived from
the commit log: recovery rebuilds what a crash took. Reference: ConsumeQueue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pocketmq.message.limits import LIGHT_QUEUE_PREFIX, SCHEDULE_TOPIC
from pocketmq.store.encoding.queue_entry import CONSUME_QUEUE_UNIT as UNIT
from pocketmq.store.encoding.queue_entry import (
    Entry,
    iter_entries,
    pack_entry,
    unpack_entry,
    unpack_places,
)
from pocketmq.store.encoding.record_encoder import TopicField
from pocketmq.store.files import Files, MappedFile, Retirement
from pocketmq.store.log.mapped_file_queue import MappedFileQueue
from pocketmq.store.log.queue_mappings import QueueMappings
from pocketmq.store.queue.queue_bounds import Bounds

if TYPE_CHECKING:
    from pocketmq.store.encoding.entry_array import EntryArray

FILLER_SIZE: Final = 0x7FFFFFFF
MOST_OFFSET: Final = 2**63 // UNIT
"""The place of an entry is a signed 64-bit number."""
_FILLER: Final = pack_entry(0, FILLER_SIZE, 0)
_SETTING: Final = "mappedFileSizeConsumeQueue"
_FIRST_BLOCKS: Final = 4096  # bytes that the first entries of a file get; then as many again

#: Called for each message that becomes readable: queue offset, tags code, store timestamp (ms).
ArrivalListener = Callable[[int, int, int], None]


class ConsumeQueue:
    """One queue of one topic. Offsets are queue offsets unless called physical.

    Attributes:
        topic_field: the topic as the records of this queue hold it.
        min_offset: of the oldest message that the commit log still has.
        max_offset: after the newest entry; what consumers can read ends here.
        next_offset: what the next message gets. Ahead of `max_offset` by the messages that are
            stored but must be flushed before they may be read.
        room: offsets below this have a file, and blocks on the disk in it.
        max_physical: physical offset after the last entry's record, -1 without an entry.
        least_physical: no entry has a lower physical offset; 0 if nothing is known.
        lost_physical: physical offset after the record of the last entry that was on the disk
            after a crash, if a hole preceded that entry; else -1. Recovery compares it with what it
            could enter again.
        listeners: called by the store for each arrival.
        delayed: entries hold the time of delivery instead of a tags code.
        is_light: its messages are records of other topics (`pocketmq.message.multi_dispatch`).
        removed: the topic was deleted; this object must not be written to any more.
        is_mixed: an entry led to a message of another queue, so others may: each is looked at.
    """

    def __init__(
        self, files: Files, directory: Path, topic: str, queue_id: int, file_size: int,
        retired: Retirement, mappings: QueueMappings,
    ) -> None:  # fmt: skip
        self.topic = topic
        self.queue_id = queue_id
        self.topic_field = TopicField.of(topic)
        self.files = MappedFileQueue(files, directory, file_size, _SETTING, retired, mappings)
        self.min_offset = 0
        self.max_offset = 0
        self.next_offset = 0
        self.room = 0
        self.max_physical = -1
        self.least_physical = 0
        self.lost_physical = -1
        self.listeners: tuple[ArrivalListener, ...] = ()
        self.removed = False
        self.is_light = self.is_mixed = topic.startswith(LIGHT_QUEUE_PREFIX)
        self.delayed = topic == SCHEDULE_TOPIC
        self._file: MappedFile | None = None  # the one that is appended to
        self._file_begin = 0  # the queue offsets that it holds
        self._file_end = 0
        self._files_end = 0  # the queue offset at which the last file ends
        self._flushed = 0  # entries below this are on the disk
        # Whether the last file is known to have nothing but zeros after `max_offset`.
        self._zero_behind = False
        # With offsets skipped at the end: what `room` is once they have their fillers.
        self._room_behind: int | None = None

    @property
    def bounds(self) -> Bounds:
        """Where it begins and ends now."""
        if not self.files.mapped:
            return Bounds(-1, 0, -1, self.next_offset)
        begin = self.files.first_offset // UNIT
        return Bounds(begin, self.max_offset, self.max_physical, self.next_offset)

    @property
    def has_waiting(self) -> bool:
        """Whether messages are stored that are not entered yet."""
        skipped = self._room_behind is not None
        return self.next_offset != self.max_offset and not skipped

    # --- writing ------------------------------------------------------------------------------

    def make_room(self, count: int = 1) -> None:
        """Make sure the next `count` messages have a file to be entered in. Raises DiskFull.

        Call it before the commit log is written, so that entering the messages cannot fail. A file
        gets its blocks little by little: most of many queues have few messages.
        """
        if self._room_behind is not None:
            self._fill_skipped()
        while self.room < self.next_offset + count:
            if self.room < self._files_end:
                file = self.files.mapped[-1]
                begin = file.base_offset // UNIT
                blocks = min(max(2 * (self.room - begin) * UNIT, _FIRST_BLOCKS), file.size)
                file.allocate(blocks)
                self.room = begin + blocks // UNIT
            else:
                self._add_file()

    def _add_file(self) -> None:
        size = self.files.file_size
        first = not self.files.mapped
        base = self.next_offset * UNIT // size * size if first else self._files_end * UNIT
        fillers = max(self.max_offset * UNIT - base, 0) if first else 0
        blocks = min(max(fillers, _FIRST_BLOCKS), size)
        file = self.files.create(base, allocated=blocks)
        if first:
            file.unsynced_directories = self._names
        if fillers:
            _fill(file, 0, fillers)
            self.least_physical = 0
        self.room = (base + blocks) // UNIT
        self._files_end = (base + size) // UNIT

    def append(self, entries: bytes) -> None:
        """Enter the next messages, at least one, as `pack_entries` gives them; `make_room` has been
        called.

        Raises OSError when the file was unmapped and cannot be mapped again. Then the messages
        before `max_offset` are entered, and the others can be entered later.
        """
        offset = self.max_offset
        length = len(entries)
        end = offset + length // UNIT
        file = self._file
        if end > self._file_end or not file.used:  # type: ignore[union-attr]
            self._append_by_file(entries)
            return
        at = (offset - self._file_begin) * UNIT
        file.map[at : at + length] = entries  # type: ignore[union-attr]
        physical_offset, size, _ = unpack_entry(entries, length - UNIT)
        self.max_offset = end
        self.max_physical = physical_offset + size

    def _append_by_file(self, entries: bytes) -> None:
        while entries:
            self._switch(self.max_offset)
            room = (self._file_end - self.max_offset) * UNIT
            self.append(entries[:room])
            entries = entries[room:]

    def replace(self, offset: int, entry: Entry) -> None:
        """Overwrite the damaged entry of one offset."""
        file = self._file_of(offset)
        at = offset * UNIT - file.base_offset
        file.map[at : at + UNIT] = pack_entry(*entry)
        if offset == self.max_offset - 1:
            self.max_physical = entry[0] + entry[1]
        self._flushed = min(self._flushed, offset)
        self.least_physical = 0

    def start_at(self, offset: int) -> None:
        """Let an empty queue begin at `offset`: the log before it is gone."""
        self.min_offset = self.max_offset = self.next_offset = offset
        self._flushed = offset

    def fill_until(self, offset: int) -> None:
        """Enter fillers up to `offset`, in place of messages that are lost. Raises DiskFull."""
        self.make_room(offset - self.next_offset)
        self.least_physical = 0
        while self.max_offset < offset:
            file = self._file_of(self.max_offset)
            begin = self.max_offset * UNIT - file.base_offset
            end = min(offset * UNIT - file.base_offset, file.size)
            _fill(file, begin, end)
            self.max_offset += (end - begin) // UNIT
        self.next_offset = offset

    def skip_until(self, offset: int) -> None:
        """Do not give the offsets from the end to `offset` again: their messages are lost. They get
        fillers with the next message, since the reference takes a filler at the end for an entry of
        a record far away."""
        if not self.files.mapped:
            self.start_at(offset)
            return
        if self._room_behind is None:
            self._room_behind, self.room = self.room, 0
        self.next_offset = offset

    def _fill_skipped(self) -> None:
        offset, room = self.next_offset, self._room_behind
        assert room is not None
        self.room, self._room_behind, self.next_offset = room, None, self.max_offset
        try:
            self.fill_until(offset)
        except BaseException:
            self._room_behind, self.room, self.next_offset = self.room, 0, offset
            raise

    def truncate(self, offset: int) -> None:
        """Forget the entries from `offset` on. Raises DiskFull."""
        if self._room_behind is not None:
            self.room, self._room_behind = self._room_behind, None
        if offset * UNIT < self.files.first_offset:
            self.clear()
            self.start_at(offset)
            return
        last = self.files.mapped[-1]
        self.files.truncate(offset * UNIT)
        file = self.files.mapped[-1]
        self.files.use(file)
        begin = offset * UNIT - file.base_offset
        if file is last and self._zero_behind:
            # No system calls: ten thousand queues may be cut one after another.
            entries = (self.max_offset - offset) * UNIT
            file.map[begin : begin + entries] = bytes(entries)
        else:
            file.zero_from(begin)
        self._set_end(offset, room=self.room if file is last else None)
        self.min_offset = min(self.min_offset, offset)
        self.least_physical = 0
        # The zeros wait for a flush, too: a stop says that the queue ends here.
        self._flushed = min(self._flushed, offset - 1)

    def clear(self) -> None:
        """Forget all entries, and where they began."""
        self.files.remove_all()
        self.room = self._files_end = 0
        self._room_behind = None
        self.max_physical = -1
        self.least_physical = 0
        self._file_begin = self._file_end = 0
        self.start_at(0)

    # --- reading ------------------------------------------------------------------------------

    def read(self, offset: int, count: int) -> Iterator[Entry]:
        """Up to `count` entries from `offset` on, up to the end of their file.

        `offset` must lie in [min_offset, max_offset). No entries when its file is gone.
        """
        return iter_entries(self.raw(offset, count))

    def raw(self, offset: int, count: int) -> memoryview:
        """Return the bytes of the entries that `read` gives."""
        file = self.files.find(offset * UNIT)
        if file is None:
            return memoryview(b"")
        begin = offset * UNIT - file.base_offset
        stop = min(begin + count * UNIT, self.max_offset * UNIT - file.base_offset, file.size)
        return file.view[begin:stop]

    def places(self, offset: int, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the physical offsets and the sizes of the entries that `read` gives."""
        flat = unpack_places(self.raw(offset, count))
        return flat[0::2], flat[1::2]

    def entry(self, offset: int) -> Entry | None:
        """Return the entry of one offset; None outside [min_offset, max_offset)."""
        if not self.min_offset <= offset < self.max_offset:
            return None
        file = self.files.find(offset * UNIT)
        if file is None:
            return None
        return unpack_entry(file.map, offset * UNIT - file.base_offset)

    def entries(self, start: int, stop: int) -> Iterator[tuple[int, EntryArray]]:
        """Entries [start, stop) as numpy arrays over the mapped files: one array per file, each
        with the offset of its first entry. An array keeps its file mapped."""
        from pocketmq.store.encoding.entry_array import entry_array

        for offset, view in self.views(start, stop):
            yield offset, entry_array(view)

    def views(self, start: int, stop: int) -> Iterator[tuple[int, memoryview]]:
        """Return the bytes of the same entries, file by file, with the offset of the first one."""
        start = max(start, self.files.first_offset // UNIT)
        stop = min(stop, self.max_offset)
        while start < stop:
            file = self.files.find(start * UNIT)
            if file is None:
                return
            begin = start * UNIT - file.base_offset
            end = min(stop * UNIT - file.base_offset, file.size)
            yield start, file.view[begin:end]
            start += (end - begin) // UNIT

    def first_where(self, holds: Callable[[int, int], bool], stop: int | None = None) -> int:
        """Return the lowest offset whose entry (physical offset, size) satisfies `holds`, which
        must be false up to some entry and true from there on; `stop`, by default `max_offset`, if
        no entry before that does.

        Fillers count as neither and are never returned.
        """
        low, high = self.min_offset, self.max_offset if stop is None else stop
        end = high
        while low < high:
            middle = (low + high) // 2
            at = self._skip_fillers(middle, high)
            entry = self.entry(at) if at < high else None
            if entry is None or holds(entry[0], entry[1]):
                high = middle
            else:
                low = at + 1
        return self._skip_fillers(low, end)

    def _skip_fillers(self, offset: int, stop: int) -> int:
        while offset < stop and (entry := self.entry(offset)) and entry[1] == FILLER_SIZE:
            offset += 1
        return offset

    # --- opening, flushing, closing -----------------------------------------------------------

    def load(self, *, clean: bool) -> None:
        """Map the files and find the end of the entries.

        After a clean stop the entries are a gapless run, so the end is searched by halving. After
        a crash, pages may be missing in the middle: the last three files with entries are looked
        through, as the reference does, and what follows the first hole is forgotten.
        """
        extents: list[list[tuple[int, int]]] = []
        if clean:
            self.files.load()
        else:
            self.files.load(
                self._names,
                rebuilt_from=0,
                look=lambda file: extents.append(file.data_extents(0)),
            )
        mapped = self.files.mapped
        if not mapped:
            return
        self.min_offset = mapped[0].base_offset // UNIT
        if clean:
            end = self._end_after_stop()
            self._set_end(end)
            self._flushed = end
            for file in mapped:
                if self.max_physical < 0 or file.base_offset >= end * UNIT:
                    file.unsynced_directories = self._names  # it has never been flushed
        else:
            end, whole = self._end_after_crash(extents)
            self._set_end(end, room=end if whole else None)
            # What the last process wrote, and its zeros after the end, may be in memory only.
            self._flushed = min(self.min_offset, end - 1)
            self._zero_behind = whole
            if not whole:
                self.truncate(end)

    def _end_after_stop(self) -> int:
        for file in reversed(self.files.mapped):
            self.files.use(file)
            count = _count_by_halving(file)
            if count:  # else made ahead, but not yet written to
                return file.base_offset // UNIT + count
        return self.min_offset

    def _end_after_crash(self, extents: list[list[tuple[int, int]]]) -> tuple[int, bool]:
        """Return the end of the entries, and whether all before it is known to have blocks and all
        after it to be zeros. That is so in most stores of many queues: each has one file. `extents`
        are those of the files that have data."""
        from pocketmq.store.encoding.entry_array import EntryRun

        end = self.min_offset
        whole = False
        seen = 0
        for file, found in zip(reversed(self.files.mapped), reversed(extents), strict=True):
            self.files.use(file)
            data_end = min(-(-found[-1][1] // UNIT) * UNIT, file.size) if found else 0
            file.expect_whole(data_end)
            run = EntryRun.of(file.view[:data_end])
            begin = file.base_offset // UNIT
            if not seen and not run.behind_last_valid:
                continue  # made ahead, but not yet written to
            if not seen:
                last = unpack_entry(file.map, (run.behind_last_valid - 1) * UNIT)
                if last[1] != FILLER_SIZE:
                    self.lost_physical = last[0] + last[1]
            # Going backwards, the last hole met is the first one in the queue.
            if not seen or run.first_invalid * UNIT < file.size:
                end = begin + run.first_invalid
                rest = bytes(file.view[run.first_invalid * UNIT : data_end])
                # A block with an entry is on the disk.
                whole = len(self.files.mapped) == 1 and rest.count(0) == len(rest)
                if whole:
                    self.least_physical = run.least_physical
            seen += 1
            if seen == 3:
                break
        return end, whole

    def correct_min_offset(self, min_physical: int) -> None:
        """Skip fillers, and entries of records that the commit log no longer has."""
        if self.files.mapped:
            self.min_offset = self.files.first_offset // UNIT
        if self.least_physical > 0 and self.least_physical >= min_physical:
            return
        begin = self.min_offset

        def is_there(physical: int, size: int) -> bool:
            damaged = physical < 0 or size <= 0
            return size != FILLER_SIZE and (physical >= min_physical or damaged)

        oldest = self.entry(begin)
        if oldest is not None and is_there(*oldest[:2]):
            return
        first = self.first_where(is_there)
        # A damaged entry may have misled the search; then the entry before it exists already.
        while first - 2 >= begin and (before := self.entry(first - 2)) and is_there(*before[:2]):
            first = self.first_where(is_there, stop=first - 1)
        self.min_offset = first

    def expire(self, min_physical: int) -> list[MappedFile]:
        """Skip what the commit log no longer has, and take out the files that held nothing else,
        for `files.discard`. The last file stays: it knows the queue's next offset."""
        self.correct_min_offset(min_physical)
        taken = []
        while len(self.files.mapped) > 1:
            first = self.files.mapped[0]
            if first.base_offset + first.size > self.min_offset * UNIT:
                break
            taken.append(self.files.take_first())
        return taken

    def behind_end(self) -> Iterator[tuple[int, Entry]]:
        """Return offset and entry of what looks like an entry after the end. Only damage leaves
        entries there."""
        end = self.max_offset * UNIT
        for file in self.files.mapped:
            begin = max(0, end - file.base_offset)
            if begin < file.size and file.has_data(begin):
                self.files.use(file)
                first = (file.base_offset + begin) // UNIT
                data = file.view[begin : -(-file.data_end() // UNIT) * UNIT]
                for offset, entry in enumerate(iter_entries(data), first):
                    if entry[1] > 0:
                        yield offset, entry

    def dirty(self, least_bytes: int) -> bool:
        """Return whether at least one entry, or the lack of one, and `least_bytes` of them, wait
        for a flush."""
        waiting = (self.max_offset - self._flushed) * UNIT
        return waiting > 0 and waiting >= least_bytes

    def flush(self) -> None:
        """Wait until the entries are on the disk; off the event loop. Raises OSError."""
        target = self.max_offset
        for file in self.files.mapped:
            if file.base_offset <= target * UNIT and file.base_offset + file.size > (
                self._flushed * UNIT
            ):
                file.sync()
        self._flushed = target

    def remove(self) -> tuple[MappedFile, ...]:
        """Be written to no more, since the topic is deleted; return the files, which the caller
        must remove."""
        self.removed = True
        return self.files.take_all()

    # --- details ------------------------------------------------------------------------------

    @property
    def _names(self) -> tuple[Path, ...]:
        """The directories with the names of a file, of the queue's directory, and of the topic's.
        Whatever made these may never have been synced: another queue that was deleted, or a process
        that was killed."""
        directory = self.files.directory
        topic = directory.parent
        return directory, topic, topic.parent

    def _file_of(self, offset: int) -> MappedFile:
        file = self.files.find(offset * UNIT)
        assert file is not None, "make_room was not called"
        return file

    def _switch(self, offset: int) -> None:
        """Append to the file that holds `offset` from now on."""
        file = self._file_of(offset)
        self._file = file
        self._file_begin = file.base_offset // UNIT
        self._file_end = (file.base_offset + file.size) // UNIT

    def _set_end(self, end: int, *, room: int | None = None) -> None:
        """Make `end` the end of the entries: the next append goes there. `room`: the offset before
        which the last file has blocks, if that is known."""
        last_file = self.files.mapped[-1]
        begin = last_file.base_offset // UNIT
        self._files_end = (last_file.base_offset + last_file.size) // UNIT
        if room is not None:
            self.room = room
        elif end >= begin:
            # Existing bytes have blocks unless the file was copied. `make_room` asks for the rest.
            self.room = end
            if end > begin:
                last_file.allocate((end - begin) * UNIT)
        else:
            for file in self.files.mapped:
                if file.base_offset + file.size > end * UNIT:
                    file.allocate()
            self.room = self._files_end
        self.max_offset = self.next_offset = end
        self._file_begin = self._file_end = 0
        self.max_physical = -1
        for offset in range(end - 1, self.files.first_offset // UNIT - 1, -1):
            file = self._file_of(offset)
            physical, size, _ = unpack_entry(file.map, offset * UNIT - file.base_offset)
            if size != FILLER_SIZE:
                self.max_physical = physical + size
                break


def _fill(file: MappedFile, begin: int, end: int) -> None:
    file.map[begin:end] = _FILLER * ((end - begin) // UNIT)


def _count_by_halving(file: MappedFile) -> int:
    """Entries at the start of a file whose rest is zeros."""
    low, high = 0, -(-file.data_end() // UNIT)
    while low < high:
        middle = (low + high) // 2
        if unpack_entry(file.map, middle * UNIT)[1] > 0:
            low = middle + 1
        else:
            high = middle
    return low
