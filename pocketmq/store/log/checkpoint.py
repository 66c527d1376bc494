"""The `checkpoint` file: up to where everything is certainly on the disk.

It has 4096 bytes. The first 48 are the reference's: five i64 in the order of the attributes and,
from 5.4 on, the physical offset up to which the consume queues are flushed. After a kill an
official broker starts at that offset, or before 5.4, and where it is 0, at the timestamps;
pocketmq uses offsets, because a clock may be set back. The next bytes, which that broker leaves
alone, hold a copy of these 48, `entered_offset`, the boot id of the machine, `queue_bounds`,
`last_write`, and a CRC-32 of all these. While the 48 bytes and their copy are equal, no other
broker has written to the store since. A wrong offset could make a start cut off what was flushed,
so a checkpoint with a wrong checksum is treated as missing.

After them come two places for the *mark*: up to where messages have their entries, on the disk or
not. The broker writes it once in each turn of the event loop, alternating between the places, so a
kill in the middle of a write leaves the other. It counts as long as the machine runs: until then
nothing that a process wrote is lost. It names the boot and the files it belongs to, so it is void
in a copy. Reference: StoreCheckpoint.
"""

from __future__ import annotations

import logging
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from pocketmq.message.buffers import ReadableBuffer
from pocketmq.message.checksum import crc32
from pocketmq.store.errors import FileSizeMismatch
from pocketmq.store.files import Files, MappedFile, read_small

log = logging.getLogger(__name__)

SIZE: Final = 4096
_FIELDS: Final = Struct(">6q")
_OURS: Final = Struct(">48sq16sqq")
_CHECKSUM: Final = Struct(">I")
_TIMESTAMP: Final = Struct(">q")
_WRITTEN: Final = _FIELDS.size + _OURS.size + _CHECKSUM.size
_NO_BOOT: Final = bytes(16)
_OTHER_BOOT: Final = b"\xff" * 16  # in place of an unknown one
# Timestamps are taken before the data they stand for are flushed; the reference allows this much.
_SAFETY_MS: Final = 3_000
_MARK: Final = Struct(">qqI16s")
_PLACES: Final = Struct(">qq")
_MARKS_AT: Final = (1024, 2048)
_READINGS: Final = 3


class FlushedUpTo(NamedTuple):
    """Up to where a commit log is flushed, as the checkpoint of its broker says.

    Attributes:
        offset: physical offset; None when another broker than ours wrote the file last.
        timestamp: store timestamp (ms) of a flushed message, which all brokers write.
    """

    offset: int | None
    timestamp: int


def read_flushed(path: Path) -> FlushedUpTo | None:
    """Return what the checkpoint at `path` says, also while a broker writes to it.

    None without a whole checkpoint. Raises OSError, and as `read_small`.
    """
    timestamp = 0
    for _ in range(_READINGS):
        try:
            raw = read_small(path)
        except FileNotFoundError:
            return None
        if len(raw) < _WRITTEN:
            return None
        timestamp, _, _, _, offset, _ = _FIELDS.unpack_from(raw)
        if _is_exact(raw):
            return FlushedUpTo(offset, timestamp)
        # Another broker's, or damaged, or ours is writing at this moment.
    return FlushedUpTo(None, timestamp)


def _damage(raw: ReadableBuffer) -> str:
    """Return what shows that a checkpoint is damaged; nothing if nothing does."""
    ours = memoryview(raw)[_FIELDS.size : _FIELDS.size + _OURS.size]
    (checksum,) = _CHECKSUM.unpack_from(raw, _WRITTEN - _CHECKSUM.size)
    if checksum != crc32(ours) and (checksum or any(ours)):  # else another broker made the file
        return "its checksum is wrong"
    (timestamp,), (copied,) = _TIMESTAMP.unpack_from(raw), _TIMESTAMP.unpack_from(ours)
    if timestamp < copied:  # another broker writes newer ones
        return f"the first timestamp was {copied} and is {timestamp}"
    return ""


def _is_exact(raw: ReadableBuffer) -> bool:
    """Return whether no other broker than ours has written a checkpoint."""
    first, copy = (memoryview(raw)[at : at + _FIELDS.size] for at in (0, _FIELDS.size))
    return first == copy and not _damage(raw)


class EnteredUpTo(NamedTuple):
    """Up to where messages are in their consume queues, by a pocketmq broker's checkpoint.

    Attributes:
        offset: physical offset.
        queue_bounds: the digest of the file `queuebounds`; 0 without that file.
    """

    offset: int
    queue_bounds: int


def read_entered(path: Path) -> EnteredUpTo | None:
    """Return the checkpoint's statement on the consume queues; None unless a pocketmq broker wrote
    it last. Raises OSError."""
    try:
        raw = read_small(path)
    except FileNotFoundError:
        return None
    if len(raw) < _WRITTEN or not _is_exact(raw):
        return None
    _, entered, _, bounds, _ = _OURS.unpack_from(raw, _FIELDS.size)
    return EnteredUpTo(entered, bounds) if entered > 0 else None


class Mark(NamedTuple):
    """Up to where messages have their entries.

    Attributes:
        entered: physical offset; every message before it has its entry.
        last: physical offset of a message before that, one of the last.
    """

    entered: int
    last: int


class Checkpoint:
    """Timestamps (Unix ms) and offsets that survive a crash.

    Attributes:
        physic_timestamp: of the last message known to be flushed in the commit log.
        logics_timestamp: of the last message known to be flushed in its consume queue.
        index_timestamp: the same for the index.
        master_flushed_offset: physical offset, of replication.
        confirm_physical_offset: up to which the commit log is known to be flushed. The official
            broker reads it in controller mode only, where later messages wait to be confirmed.
        entered_offset: physical offset up to which messages are known to be flushed in their
            consume queues. Official brokers before 5.4 do not have it.
        queue_bounds: the digest of the file `queuebounds` that was written when the store was last
            closed (`queue.queue_bounds`), or repaired; 0 without that file, or if another broker
            has used the store since. Not of the official broker.
        last_write: physical offset at which the write into the commit log began that ends at
            `confirm_physical_offset`, or an earlier one; a record begins there. A start checks that
            the records there can be read. 0 when it is not known. Not of the official broker.
        holds_logics: whether `logics_timestamp` stays as it is, without an offset beside it: there
            may be messages that only the official broker can enter into their queues, and it looks
            for them from that time on.
        must_sync: whether the next flush of the queues, within a second, has to put it on the disk.
        exact: whether the file, when it was opened, was as pocketmq wrote it, so that the two
            offsets can be relied on.
        reliable: whether it was written at all: one of zeros says nothing of what was flushed.
        same_boot: whether the machine has been running since the last process opened the store, so
            that nothing which that process wrote is lost.
        mark: what the last process left on this boot, in these files; None without one.
    """

    def __init__(self, files: Files, path: Path, places: tuple[Path, ...] = ()) -> None:
        """`places` are the directories that the mark is about."""
        self._files = files
        self._path = path
        self._places = places
        self._file: MappedFile | None = None
        self.physic_timestamp = 0
        self.logics_timestamp = 0
        self.index_timestamp = 0
        self.master_flushed_offset = 0
        self.confirm_physical_offset = 0
        self.entered_offset = 0
        self.queue_bounds = 0
        self.last_write = 0
        self.holds_logics = False
        self.must_sync = False
        self.exact = False
        self.reliable = False
        self.same_boot = False
        self.mark: Mark | None = None
        self._boot = self._found_boot = _NO_BOOT
        self._owner = b""  # identifies what the mark is about
        self._mark_at, self._next_mark_at = _MARKS_AT

    def open(self) -> None:
        """Read the file, or create it with zeros. Raises DiskFull, FileSizeMismatch."""
        # After a kill nobody knows whether its name is on the disk.
        self._file = self._files.open_or_create(
            self._path, SIZE, "checkpoint", (self._path.parent,)
        )
        raw = self._file.map[:_WRITTEN]
        damage = _damage(raw)
        if damage:
            log.warning(
                "%s is damaged: %s; its other fields are ignored",
                self._path, damage,
            )  # fmt: skip
            raw = bytes(_WRITTEN)
        (
            self.physic_timestamp,
            self.logics_timestamp,
            self.index_timestamp,
            self.master_flushed_offset,
            self.confirm_physical_offset,
            _,
        ) = _FIELDS.unpack_from(raw)
        _, self.entered_offset, boot, bounds, self.last_write = _OURS.unpack_from(raw, _FIELDS.size)
        self.exact = _is_exact(raw)
        self.queue_bounds = bounds if self.exact else 0
        self._boot = self._files.boot_id()
        # A machine without boot ids writes none.
        self.reliable = not self.exact or boot != _NO_BOOT or self._boot == _NO_BOOT
        self.same_boot = self.exact and boot == self._boot != _NO_BOOT
        self._found_boot = boot if boot != _NO_BOOT else _OTHER_BOOT
        self._owner = self._identity()
        self.mark = self._read_mark() if self.same_boot else None

    def _identity(self) -> bytes:
        places = (self._path, *self._places)
        content = repr((self._boot, [self._files.identity(place) for place in places]))
        return blake2b(content.encode(), digest_size=16).digest()

    def _read_mark(self) -> Mark | None:
        assert self._file is not None
        found = []
        for at in _MARKS_AT:
            entered, last, checksum, owner = _MARK.unpack_from(self._file.map, at)
            if checksum == crc32(_PLACES.pack(entered, last)) and owner == self._owner:
                found.append(Mark(entered, last))
        return max(found, default=None)

    def mark_entered(self, entered: int, last: int) -> None:
        """Write the mark; on the event loop. It survives the end of the process only. Does nothing
        when the file is closed."""
        file = self._file
        if file is not None:
            at = self._mark_at
            self._mark_at, self._next_mark_at = self._next_mark_at, at
            checksum = crc32(_PLACES.pack(entered, last))
            _MARK.pack_into(file.map, at, entered, last, checksum, self._owner)

    def clear_mark(self) -> None:
        """Let the mark count no more: entries are about to be taken away."""
        if self._file is not None:
            for at in _MARKS_AT:
                self._file.map[at : at + _MARK.size] = bytes(_MARK.size)

    @classmethod
    def flushed_of(cls, files: Files, path: Path) -> int | None:
        """Return the physical offset up to which a log is flushed; None when the file at `path`
        does not tell, or another broker has used the store. Raises OSError."""
        checkpoint = cls(files, path)
        try:
            checkpoint.open()
        except FileSizeMismatch:
            return None
        checkpoint.close()
        return checkpoint.confirm_physical_offset if checkpoint.exact else None

    @property
    def confirmed_before(self) -> int:
        """The confirmOffset that a member of a controller group wrote last."""
        return self.master_flushed_offset if self.exact else self.confirm_physical_offset

    @property
    def recover_from(self) -> int:
        """Messages stored up to this time (ms) are certainly in the log and in their queues."""
        return max(0, min(self.physic_timestamp, self.logics_timestamp) - _SAFETY_MS)

    def save(self) -> None:
        """Write the attributes; they survive the end of the process, not yet that of the machine.
        Does nothing when the file is closed."""
        self._save(self._boot)

    def sync_unfinished(self) -> None:
        """Do what `sync` does, before the store is recovered: if this recovery is cut short, the
        next one must know as much as this one of whether the machine has stopped. Raises
        OSError."""
        if self._file is not None:
            self._save(self._found_boot)
            self._file.sync()

    def _save(self, boot: bytes) -> None:
        if self._file is not None:
            fields = _FIELDS.pack(
                self.physic_timestamp,
                self.logics_timestamp,
                self.index_timestamp,
                self.master_flushed_offset,
                self.confirm_physical_offset,
                0 if self.holds_logics else self.entered_offset,
            )
            ours = _OURS.pack(fields, self.entered_offset, boot, self.queue_bounds, self.last_write)
            self._file.map[:_WRITTEN] = fields + ours + _CHECKSUM.pack(crc32(ours))

    def sync(self) -> None:
        """Save, and wait until it is on the disk; off the event loop. Raises OSError."""
        self.must_sync = False
        self.save()
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Close the file without writing to it."""
        if self._file is not None:
            self._file.close()
            self._file = None
