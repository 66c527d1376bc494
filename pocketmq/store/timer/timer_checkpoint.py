"""The file `config/timercheck`: how far timed messages are indexed and delivered.

4096 bytes, of which the first 56 are used: seven i64 in the order of the attributes, then the data
version (state version, timestamp, counter). After these, where the official broker does not look,
pocketmq keeps three i64: `seal`, the counter at the time of writing, and the CRC-32 of the 56
bytes. Reference: TimerCheckpoint.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import Final

from pocketmq.message.checksum import crc32
from pocketmq.store.errors import StoreCorrupt
from pocketmq.store.files import Files, MappedFile

SIZE: Final = 4096
_FIELDS: Final = Struct(">7q")
_OURS: Final = Struct(">3q")
_MOST: Final = 2**63 - 1


class TimerCheckpoint:
    """Progress that survives the end of the process.

    Attributes:
        read_time: messages of all slots before this time (Unix ms) are delivered.
        log_flushed: the timer log is on the disk up to this position.
        queue_offset: messages of the timer topic before this queue offset are in the timer log, or
            were delivered at once.
        seal: a digest of the timers as the last process left them; 0 if it did not close them, or
            if another broker has written the file since.
    """

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        self._file: MappedFile | None = None
        self._state_version = 0
        self._counter = 0
        self.read_time = 0
        self.log_flushed = 0
        self.queue_offset = 0
        self.seal = 0

    def open(self) -> None:
        """Read the file, or create it with zeros.

        Raises DiskFull, FileSizeMismatch, StoreCorrupt.
        """
        # After a kill nobody knows whether its name is on the disk.
        directory = self._path.parent
        self._file = self._files.open_or_create(
            self._path, SIZE, "checkpoint", (directory, directory.parent)
        )
        (
            self.read_time,
            self.log_flushed,
            queue_offset,
            master_queue_offset,
            self._state_version,
            _,
            self._counter,
        ) = _FIELDS.unpack_from(self._file.map)
        # The second is a replica's copy of its master's progress: the lower one counts.
        self.queue_offset = min(queue_offset, master_queue_offset)
        seal, counter, checksum = _OURS.unpack_from(self._file.map, _FIELDS.size)
        if counter != self._counter:  # another broker has counted on
            return
        if checksum and checksum != self._checksum():
            self.close()
            raise StoreCorrupt(self._path, 0, "its checksum is wrong")
        self.seal = seal

    def set_seal(self, seal: int) -> None:
        """Write the seal, or with 0 break it; the next sync brings it to the disk."""
        if self._file is not None:
            self.seal = seal
            self._write_ours()

    def sync(self, read_time: int, log_flushed: int, queue_offset: int, now: int) -> None:
        """Write these values and wait until they are on the disk; off the event loop.

        Raises OSError. Does nothing when the file is closed.
        """
        if self._file is None:
            return
        self.read_time, self.log_flushed, self.queue_offset = read_time, log_flushed, queue_offset
        # It starts again as Java's does.
        self._counter = self._counter + 1 if self._counter < _MOST else -_MOST - 1
        _FIELDS.pack_into(
            self._file.map, 0, read_time, log_flushed, queue_offset, queue_offset,
            self._state_version, now, self._counter,
        )  # fmt: skip
        self.seal = 0
        self._write_ours()
        self._file.sync()

    def _write_ours(self) -> None:
        assert self._file is not None
        # In one piece: a kill in between would leave a checksum that is wrong.
        self._file.map[_FIELDS.size : _FIELDS.size + _OURS.size] = _OURS.pack(
            self.seal, self._counter, self._checksum()
        )

    def _checksum(self) -> int:
        assert self._file is not None
        return crc32(self._file.map[: _FIELDS.size])

    def flush(self) -> None:
        """Wait until what was written is on the disk. Raises OSError."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Close the file without writing to it."""
        if self._file is not None:
            self._file.close()
            self._file = None
