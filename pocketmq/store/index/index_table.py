"""The index files of a store, oldest first, each named by its creation time.

Their content is derived from the commit log. After a crash a file that was not full, or that the
checkpoint does not vouch for, is dropped with all later ones; keys are then entered again from
`end_offset` on. If the machine has been running since, all files are kept, and what the last
process had begun to enter is finished. Reference: IndexService.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pocketmq.store.encoding.key_hash import key_hash
from pocketmq.store.files import Files, Retirement
from pocketmq.store.index.index_file import IndexFile
from pocketmq.store.index.index_layout import file_size
from pocketmq.store.log.checkpoint import Checkpoint

if TYPE_CHECKING:
    from pocketmq.store.encoding.index_keys import KeyBatch

log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[0-9]{17}")


class IndexTable:
    """Enters keys and finds them. One thread enters, of this process or, for a while, of another;
    any may find.

    Attributes:
        mapped: the files in order. Replaced, never changed in place.
        directory: their directory.
        slots, capacity: of each.
    """

    def __init__(
        self,
        files: Files,
        directory: Path,
        slots: int,
        capacity: int,
        checkpoint: Checkpoint,
        retired: Retirement,
        clock: Callable[[], int],
    ) -> None:
        """`clock` (ms) names the files."""
        self.mapped: tuple[IndexFile, ...] = ()
        self._files = files
        self.directory = directory
        self.slots = slots
        self.capacity = capacity
        self._checkpoint = checkpoint
        self._retired = retired
        self._clock = clock
        self._is_linked = True

    @property
    def end_offset(self) -> int:
        """Physical offset of the last message entered; -1 in an empty index."""
        return self.mapped[-1].end_offset if self.mapped else -1

    @property
    def end_timestamp(self) -> int:
        """Store timestamp (ms) of the last message entered; 0 in an empty index."""
        return self.mapped[-1].end_timestamp if self.mapped else 0

    def load(self, *, clean: bool, written: bool = False) -> None:
        """Map the files that can be relied on, `clean` after a clean stop. `written`: the process
        was killed, but everything that it wrote is there. Raises OSError."""
        self._is_linked = not written
        whole = True
        paths = []
        for path in self._paths():
            if _NAME.fullmatch(path.name):
                paths.append(path)
            else:
                log.warning("%s is not part of the store and is left alone", path)
        for path in paths:
            file = self._open(path) if whole else None
            if file is None:
                whole = False
                self._files.remove(path)
            elif not clean and not (
                file.is_whole and (file.full or path is paths[-1]) if written
                else file.full and file.end_timestamp <= self._checkpoint.index_timestamp
            ):  # fmt: skip
                log.info("%s may not be whole after the crash: building it again", path)
                whole = False
                self._drop(file)
            else:
                self.mapped = (*self.mapped, file)
        if not whole:
            self._files.sync_directory(self.directory)

    def link(self, reach: int) -> None:
        """Before anything is entered: finish what a process that was killed had begun. It entered
        keys of messages within `reach` bytes of the log at once."""
        if not self._is_linked:
            if self.mapped:
                self.mapped[-1].link(reach)
            self._is_linked = True

    def _open(self, path: Path) -> IndexFile | None:
        size, expected = path.stat().st_size, file_size(self.slots, self.capacity)
        if size != expected:
            log.warning(
                "%s has %d bytes, but maxHashSlotNum and maxIndexNum make %d: building it again",
                path, size, expected,
            )  # fmt: skip
            return None
        mapped = self._files.open(path, 0, size)
        try:
            return IndexFile(mapped, self.slots, self.capacity)
        except ValueError as error:
            log.warning("index file is damaged, building it again: %s", error)
            self._retired.add(mapped)
            return None

    def refresh(self) -> None:
        """Take note of what another process entered, which now waits. Raises OSError, and
        ValueError when it makes no sense."""
        known = self.mapped
        if known:
            known[-1].refresh()
        added = [
            IndexFile(
                self._files.open(path, 0, file_size(self.slots, self.capacity)),
                self.slots,
                self.capacity,
            )
            for path in self._unknown()
        ]
        if added:
            self._files.sync_directory(self.directory)
            self.mapped = (*known, *added)
            # A file that others follow was synced when it was full.
            for file in self.mapped[max(0, len(known) - 1) : -1]:
                self._vouch(file)
            self._checkpoint.sync()

    def roll_back(self) -> None:
        """Forget what another process, which has ended, entered after the last `refresh`.
        Raises OSError."""
        if self.mapped:
            self.mapped[-1].roll_back()
        for path in self._unknown():
            self._files.remove(path)

    def cut(self, knows: Callable[[int], bool]) -> None:
        """Drop the last files until one ends with a message that the commit log `knows`, for good:
        one that came back after a power failure would fit a log that went on. Raises OSError."""
        before = self.mapped
        while self.mapped and not knows(self.mapped[-1].end_offset):
            last = self.mapped[-1]
            log.warning("%s is not of this commit log: building it again", last.file.path)
            self.mapped = self.mapped[:-1]
            self._drop(last)
        if self.mapped != before:
            self._files.sync_directory(self.directory)

    def append(self, keys: KeyBatch) -> None:
        """Enter keys, in new files where the last one is full. Those that are in already, after
        a failure or a restart, are left out.

        Raises DiskFull, OSError; some of the keys may have been entered then.
        """
        if len(keys) and keys.physical[0] <= self.end_offset:
            keys = keys.without(self.end_offset, self._entered_of_last())
        while len(keys):
            last = self.mapped[-1] if self.mapped else None
            if last is None or last.full:
                if last is not None:
                    self._seal(last)
                last = IndexFile.create(
                    self._files, self._next_path(), self.slots, self.capacity, last
                )
                self.mapped = (*self.mapped, last)
            keys = keys.slice(last.append(keys))

    def search(
        self, topic: str, key: str, begin: int, end: int
    ) -> Generator[int | None, None, None]:
        """Iterate over the physical offsets where messages of a topic with a key may lie that were
        stored from `begin` to `end` (ms), the newest first. A message with another key of the same
        hash may be among them. None comes after a little work, as from a file. Follows chains
        through the mapped files, so it may wait for the disk."""
        wanted = key_hash(topic, key)
        last = None  # with several keys of this hash, a message may be in two files
        for file in reversed(self.mapped):
            if file.matches_time(begin, end):
                for physical in file.search(wanted, begin, end):
                    if physical is None:
                        yield None
                    elif physical != last:
                        last = physical
                        yield physical
            yield None
            if file.begin_timestamp < begin:
                break

    def remove_before(self, min_physical: int) -> None:
        """Remove files whose messages the commit log no longer has; the last one stays. To be
        called where keys are entered, off the event loop. Raises OSError."""
        while len(self.mapped) > 1 and self.mapped[0].end_offset < min_physical:
            first = self.mapped[0]
            self.mapped = self.mapped[1:]
            self._drop(first)
            log.info("%s is removed: its messages have expired", first.file.path)

    def sync(self) -> None:
        """Wait until the last file is on the disk; those before it are. Raises OSError."""
        if self.mapped:
            last = self.mapped[-1]
            last.sync()
            if last.full:
                self._vouch(last)

    def close(self) -> None:
        """Close all files."""
        for file in self.mapped:
            self._retired.add(file.file)
        self.mapped = ()

    def _entered_of_last(self) -> int:
        """Return how many keys of the last message are in."""
        count = 0
        for file in reversed(self.mapped):
            of_file = file.trailing(self.end_offset)
            count += of_file
            if of_file < file.count - 1:
                break
        return count

    def _seal(self, file: IndexFile) -> None:
        """A file is full: once it is on the disk it survives any crash."""
        file.sync()
        self._vouch(file)
        self._checkpoint.sync()

    def _vouch(self, file: IndexFile) -> None:
        self._checkpoint.index_timestamp = max(self._checkpoint.index_timestamp, file.end_timestamp)

    def _next_path(self) -> Path:
        now = self._clock()
        name = time.strftime("%Y%m%d%H%M%S", time.localtime(now / 1000)) + f"{now % 1000:03d}"
        if self.mapped:
            # Names must rise, also where clocks do not.
            name = max(name, f"{int(self.mapped[-1].file.path.name) + 1:017d}")
        return self.directory / name

    def _paths(self) -> list[Path]:
        if not self.directory.is_dir():
            return []
        return sorted(path for path in self.directory.iterdir() if path.is_file())

    def _unknown(self) -> list[Path]:
        """Return the files that were made after the last one."""
        last = self.mapped[-1].file.path.name if self.mapped else ""
        return [path for path in self._paths() if _NAME.fullmatch(path.name) and path.name > last]

    def _drop(self, file: IndexFile) -> None:
        self._files.remove(file.file.path)
        self._retired.add(file.file)
