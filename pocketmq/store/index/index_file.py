"""One file of the index: it finds the commit-log offsets of the messages with a key.

It is a hash table (`index_layout`). A key is `topic#key`, and the file holds only its hash, so the
caller of `search` must compare the keys of the messages found. One thread appends, any may select;
the appending thread may be in another process (`index_worker`). Reference: IndexFile.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Final

from pocketmq.store.files import Files, MappedFile
from pocketmq.store.index.index_layout import (
    COUNT_AT,
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    entries_at,
    file_size,
)

if TYPE_CHECKING:
    from pocketmq.store.encoding.index_keys import KeyBatch

_HEADER: Final = Struct(">4q2i")
_slot: Final = Struct(">i").unpack_from
_entry: Final = Struct(">iqii").unpack_from
# Blocks of the disk are asked for in such steps: a file of the default size has 420 MB.
_STEP: Final = 4 * 1024 * 1024
ENTRIES_OF_STEP: Final = 256
_LONGEST_CHAIN: Final = 128 * ENTRIES_OF_STEP
"""Entries of a chain that are followed; usual chains have a few."""
_ENTRIES_OF_SCAN: Final = 64 * 1024


class IndexFile:
    """An index file, mapped.

    Attributes:
        slots, capacity: how many slots and entries it has.
        begin_timestamp, end_timestamp: store timestamps (ms) of its first and last message.
        begin_offset, end_offset: their physical offsets. In a file without entries all four are
            those of the last message in the previous file.
        used_slots: slots that are not empty.
        count: number of the next entry; one more than the number of entries.
    """

    def __init__(self, file: MappedFile, slots: int, capacity: int) -> None:
        """Raises ValueError when the header makes no sense."""
        self.file = file
        self.slots = slots
        self.capacity = capacity
        self._entries_at = entries_at(slots)
        self._allocated = 0  # bytes that certainly have blocks
        self.refresh()
        file.expect_random()

    def refresh(self) -> None:
        """Read the header again: another process entered keys, which now waits.

        Raises ValueError when it makes no sense.
        """
        self.begin_timestamp: int
        self.end_timestamp: int
        self.begin_offset: int
        self.end_offset: int
        self.used_slots: int
        (
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.used_slots,
            count,
        ) = _HEADER.unpack_from(self.file.map)
        self.count: int = max(1, count)
        used = self.used_slots
        if self.count > self.capacity or self.end_offset < 0 or not 0 <= used <= self.slots:
            raise ValueError(f"{self.file.path} has {count} entries and {used} used slots")

    def roll_back(self) -> None:
        """Forget what another process, which has ended, entered after the last `refresh`."""
        from pocketmq.store.index.index_entries import unlink_entries

        # Slots lead to entries that the header counts, at most: the header was written first.
        counted = min(_slot(self.file.map, COUNT_AT)[0], self.capacity)
        unlink_entries(self.file.view, self.slots, self.count, counted)
        self._write_header()

    @property
    def is_whole(self) -> bool:
        """Whether its header describes its entries, and it has some."""
        return (
            self.count > 1
            and self.begin_offset == self._physical(1)
            and self.end_offset == self._physical(self.count - 1)
        )

    def link(self, reach: int) -> None:
        """Make the slots lead to the entries of messages within the last `reach` bytes of the log:
        a process that was killed had written these, and perhaps not the slots."""
        from pocketmq.store.index.index_entries import link_entries

        numbers = range(1, self.count)
        first = 1 + bisect_left(numbers, self.end_offset - reach, key=self._physical)
        link_entries(self.file.view, self.slots, first, self.count)

    def _physical(self, number: int) -> int:
        physical: int = _entry(self.file.map, self._entries_at + number * ENTRY_SIZE)[1]
        return physical

    @classmethod
    def create(
        cls, files: Files, path: Path, slots: int, capacity: int, previous: IndexFile | None
    ) -> IndexFile:
        """Return a new file that continues `previous`. Raises DiskFull, FileExistsError."""
        size = file_size(slots, capacity)
        mapped = files.create(path, 0, size, allocated=min(entries_at(slots) + _STEP, size))
        file = cls(mapped, slots, capacity)
        if previous is not None:
            file.begin_offset = file.end_offset = previous.end_offset
            file.begin_timestamp = file.end_timestamp = previous.end_timestamp
            file._write_header()
        return file

    @property
    def full(self) -> bool:
        """Whether nothing more can be entered."""
        return self.count >= self.capacity

    def append(self, keys: KeyBatch) -> int:
        """Enter the first of `keys`, as many as there is room for; returns how many.

        Raises DiskFull; then nothing was entered.
        """
        # Importing numpy, which `index_entries` uses, costs an idle broker 16 MB.
        from pocketmq.store.index.index_entries import write_entries

        taken = min(len(keys), self.capacity - self.count)
        if not taken:
            return 0
        self._allocate(self._entries_at + (self.count + taken) * ENTRY_SIZE)
        keys = keys.slice(0, taken)
        entries = write_entries(self.file.view, self.slots, self.count, self.begin_timestamp, keys)
        # First the entries, then the header, then the slots that lead to the entries: a reader sees
        # the old chain or the new one.
        self._advance(keys, entries.new_slots)
        entries.link()
        return taken

    def _advance(self, keys: KeyBatch, new_slots: int) -> None:
        """Count the entries that were written after the last one."""
        if self.count <= 1:
            self.begin_offset = int(keys.physical[0])
            self.begin_timestamp = int(keys.timestamp[0])
        self.used_slots += new_slots
        self.count += len(keys)
        self.end_offset = int(keys.physical[-1])
        self.end_timestamp = int(keys.timestamp[-1])
        self._write_header()

    def matches_time(self, begin: int, end: int) -> bool:
        """Return whether the file may hold messages stored from `begin` to `end` (ms)."""
        first, last = self.begin_timestamp, self.end_timestamp
        return (begin < first and end > last) or first <= begin <= last or first <= end <= last

    def search(self, key: int, begin: int, end: int) -> Iterator[int | None]:
        """Iterate over the physical offsets of the messages with this key hash that were stored
        from `begin` to `end` (ms, to the second), the newest first; each once, even if several of
        its keys have this hash. None comes after each `ENTRIES_OF_STEP` entries that were read,
        which take a quarter of a millisecond. It ends when the file is closed.
        """
        try:
            # The slice keeps the file mapped while it is read.
            with self.file.view[:] as view:
                yield from self._follow(view, key, begin, end)
        except ValueError:
            pass  # the file was closed: its messages have expired

    def _follow(self, view: memoryview, key: int, begin: int, end: int) -> Iterator[int | None]:
        number = _slot(view, HEADER_SIZE + key % self.slots * SLOT_SIZE)[0]
        limit = max(self.count, _slot(view, COUNT_AT)[0])  # another process may be entering keys
        # Chains lead to ever older entries; a damaged one must not lead in circles.
        read = 0
        last = -1
        while 0 < number < limit:
            read += 1
            if not read % ENTRIES_OF_STEP:
                yield None
                if read >= _LONGEST_CHAIN:
                    yield from self._scan(view, key, number, begin, end, last)
                    return
            entry_key, physical, seconds, previous = _entry(
                view, self._entries_at + number * ENTRY_SIZE
            )
            if seconds < 0:
                return
            # The seconds of the first entry count from the end of the file before.
            timestamp = self.begin_timestamp + (seconds * 1000 if number > 1 else 0)
            if entry_key == key and begin <= timestamp <= end and physical != last:
                last = physical
                yield physical
            if timestamp < begin:
                return
            limit, number = number, previous

    def _scan(
        self, view: memoryview, key: int, number: int, begin: int, end: int, last: int
    ) -> Iterator[int | None]:
        """Go on from the entry `number` of a long chain through all entries of the file, which is
        quicker for each of them by far: senders can choose keys that make one chain of all."""
        from pocketmq.store.index.index_entries import numbers_of_key

        while number > 0:
            first = max(1, number + 1 - _ENTRIES_OF_SCAN)
            for found in numbers_of_key(view, self.slots, key, first, number + 1):
                _, physical, seconds, _ = _entry(view, self._entries_at + found * ENTRY_SIZE)
                timestamp = self.begin_timestamp + (seconds * 1000 if found > 1 else 0)
                if seconds >= 0 and begin <= timestamp <= end and physical != last:
                    last = physical
                    yield physical
            yield None
            number = first - 1

    def trailing(self, physical_offset: int) -> int:
        """Return how many entries at the end are of the message at a physical offset."""
        number = self.count
        while number > 1:
            at = self._entries_at + (number - 1) * ENTRY_SIZE
            if _entry(self.file.map, at)[1] != physical_offset:
                break
            number -= 1
        return self.count - number

    def sync(self) -> None:
        """Wait until it is on the disk. Raises OSError."""
        self.file.sync()

    def _allocate(self, end: int) -> None:
        if end > self._allocated:
            allocated = min(end + _STEP, self.file.size)
            self.file.allocate(allocated)
            self._allocated = allocated

    def _write_header(self) -> None:
        # In one piece: no reader and no crash ever sees a number half-written.
        self.file.map[:HEADER_SIZE] = _HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.used_slots,
            self.count,
        )
