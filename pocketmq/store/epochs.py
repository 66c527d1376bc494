"""Which master wrote which bytes of a commit log: the epochs of a replica in controller mode.

Each new master begins an epoch at the end of its log. A replica keeps the list beside its log and
compares it with a master's to find how far both logs are the same. The file `epochFileCheckpoint`
is the official broker's. Reference: EpochFileCache, CheckpointFile.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from pocketmq.message.checksum import CRC_MASK, crc32
from pocketmq.store.errors import StoreError
from pocketmq.store.files import Files

FILE_NAME: Final = "epochFileCheckpoint"
UNCHECKED: Final = 0
"""In place of a checksum: the file counts without one."""
_MOST_LINES: Final = 100_000


class EpochEntry(NamedTuple):
    """From the physical offset `start` on, the log was written by the master of `epoch`."""

    epoch: int
    start: int


class EpochFileDamaged(StoreError):
    """Neither the file of the epochs nor its .bak can be used."""


class Epochs:
    """A list of epochs, oldest first; a value, so each change makes another one.

    Epochs and starts rise. An entry ends where the next one starts, the last one with the log.
    """

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        """Raises ValueError when an epoch or a start does not rise."""
        self.entries = tuple(EpochEntry(*entry) for entry in entries)
        for before, entry in itertools.pairwise(self.entries):
            if entry.epoch <= before.epoch or entry.start <= before.start:
                raise ValueError(f"the epoch {_line(entry)} follows {_line(before)}")

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[EpochEntry]:
        return iter(self.entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Epochs) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __repr__(self) -> str:
        return f"Epochs([{', '.join(map(_line, self.entries))}])"

    @property
    def last(self) -> EpochEntry | None:
        """The newest entry."""
        return self.entries[-1] if self.entries else None

    @property
    def last_epoch(self) -> int:
        """The newest epoch; -1 without any."""
        return self.entries[-1].epoch if self.entries else -1

    def begun(self, epoch: int, start: int) -> Epochs:
        """Return the list with one more entry; unchanged when its epoch or its start is not greater
        than the last one's, as the reference has it."""
        last = self.last
        if last is not None and (epoch <= last.epoch or start <= last.start):
            return self
        return Epochs((*self.entries, EpochEntry(epoch, start)))

    def cut(self, offset: int) -> Epochs:
        """Return the list of a log that is cut at `offset`: without what begins there or later."""
        return Epochs(entry for entry in self.entries if entry.start < offset)

    def until(self, end: int) -> Epochs:
        """Return the list of a log that ends at `end`. Unlike `cut` it keeps an epoch that begins
        there and has no bytes yet."""
        return Epochs(entry for entry in self.entries if entry.start <= end)

    def expired(self, offset: int) -> Epochs:
        """Return the list of a log whose bytes before `offset` are gone: without the entries that
        end there or before. The last one stays."""
        ends = [entry.start for entry in self.entries[1:]]
        kept = [e for e, end in zip(self.entries, ends, strict=False) if end > offset]
        return Epochs((*kept, *self.entries[-1:]))

    def at(self, offset: int) -> EpochEntry | None:
        """Return the entry of the byte at `offset`; None if that is before the first one."""
        found = None
        for entry in self.entries:
            if entry.start > offset:
                break
            found = entry
        return found

    def end_of(self, entry: EpochEntry, log_end: int) -> int:
        """Return where `entry` ends in a log that ends at `log_end`."""
        after = self.entries.index(entry) + 1
        return self.entries[after].start if after < len(self.entries) else log_end

    def common_end(self, end: int, other: Epochs, other_end: int) -> int | None:
        """Return up to which physical offset this log (which ends at `end`) and another one are the
        same: the end of the newest entry that both lists have. None when they share none."""
        others = {entry.epoch: entry for entry in other.entries}
        for entry in reversed(self.entries):
            match = others.get(entry.epoch)
            if match == entry:
                return min(self.end_of(entry, end), other.end_of(entry, other_end))
        return None

    # --- the file -----------------------------------------------------------------------------

    def encode(self) -> bytes:
        """Return the content of the file: the number of entries, a checksum, then a line each."""
        text = "".join(f"{_line(entry)}\n" for entry in self.entries).encode()
        return b"%d\n%d\n%b" % (len(self.entries), crc32(text) & CRC_MASK, text)

    @classmethod
    def decode(cls, content: bytes) -> Epochs:
        """Read the content of the file, with any line ends.

        Raises ValueError, which says what is wrong.
        """
        lines = content.decode("ascii").splitlines()
        if len(lines) < 2:
            raise ValueError("its first two lines are missing")
        if len(lines) > _MOST_LINES:
            raise ValueError(f"it has {len(lines)} lines; at most {_MOST_LINES} are possible")
        count, checksum, entries = int(lines[0]), int(lines[1]), lines[2:]
        if count != len(entries):
            raise ValueError(f"it has {len(entries)} entries and says {count}")
        separator = "\r\n" if b"\r\n" in content else "\n"
        text = "".join(f"{line}{separator}" for line in entries).encode()
        if checksum not in (UNCHECKED, crc32(text) & CRC_MASK):
            raise ValueError("its checksum is wrong")
        return cls(_entry(line) for line in entries)


def _line(entry: EpochEntry) -> str:
    return f"{entry.epoch}-{entry.start}"


def _entry(line: str) -> EpochEntry:
    epoch, dash, start = line.partition("-")
    if not (dash and epoch.isdigit() and start.isdigit()):
        raise ValueError(f"{line!r} is not EPOCH-OFFSET")
    return EpochEntry(int(epoch), int(start))


class EpochFile:
    """The file at `path`, with the content before the last change beside it as NAME.bak.

    All methods block. A crash leaves the old list or the new one.
    """

    def __init__(self, path: Path, files: Files | None = None) -> None:
        self.path = path
        self._backup = path.with_name(path.name + ".bak")
        self._files = files or Files()
        self._usable = False  # what is at `path` may become the backup

    def load(self) -> Epochs:
        """Return the list; from NAME.bak when the file is missing, empty or broken. Without both
        it is empty.

        Raises:
            EpochFileDamaged: there is a file, but nothing that can be read.
            OSError: a file cannot be read.
        """
        faults = []
        for path in (self.path, self._backup):
            content = self._files.read(path)
            if content is None or not content.strip():
                continue
            try:
                epochs = Epochs.decode(content)
            except ValueError as error:
                faults.append(f"{path}: {error}")
                continue
            if epochs:
                self._usable = path == self.path
                return epochs
        if faults:
            raise EpochFileDamaged(
                f"{'; '.join(faults)}. It says which master wrote which part of the commit log. If "
                "another replica of the group has all messages, empty this store and start again; "
                "otherwise restore the file from a backup"
            )
        return Epochs()

    def save(self, epochs: Epochs) -> None:
        """Write the list; an empty one removes both files, so that none of them comes back.

        Raises OSError.
        """
        if not epochs:
            self._files.remove(self.path)
            self._files.remove(self._backup)
            if self.path.parent.is_dir():
                self._files.sync_directory(self.path.parent)
        else:
            backup = self._backup if self._usable else None
            self._files.replace(self.path, epochs.encode(), backup=backup)
        self._usable = bool(epochs)
