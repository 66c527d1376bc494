"""Follows a commit log that is copied from a master: checks each record, and enters it.

The copying path writes bytes unchecked. Here each record must then have the right magic, its own
physical offset, a possible size and the right CRC: the protocol has no other sign that two logs
have diverged. The first wrong record ends the copying. The received bytes may end in the middle of
a record; the rest will come.

A few records are decoded one after another. Of many, numpy makes the entries, some thousand at a
time, since a slave has to keep up with the batches of its master.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pocketmq.message.record import decode
from pocketmq.message.record_crc import DIFFERS, is_altered
from pocketmq.message.record_layout import (
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    MIN_BLANK,
    MIN_RECORD,
    CorruptRecord,
    TruncatedRecord,
    peek,
)
from pocketmq.store.delay_level import DelayLevels
from pocketmq.store.errors import ForeignBytes
from pocketmq.store.files import MappedFile
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queue.consume_queue_table import ConsumeQueueTable
from pocketmq.store.queue.pending_entries import PendingEntries
from pocketmq.store.queue.queue_builder import EntriesWait, QueueBuilder

if TYPE_CHECKING:
    from pocketmq.store.queue.block_builder import BlockBuilder

_TURN: Final = 512 * 1024  # bytes looked at before the loop serves others: about 5 ms
_MANY: Final = 16 * 1024  # bytes that make numpy worth its fixed cost
_FEW: Final = 256  # records decoded in one turn
_FEW_BYTES: Final = 4096


class LogFollower:
    """Moves `whole` of a slave's log up to the received bytes, turn by turn."""

    def __init__(
        self,
        commit_log: CommitLog,
        table: ConsumeQueueTable,
        pending: PendingEntries,
        delay_levels: DelayLevels,
        *,
        whole_crc: bool = False,
    ) -> None:
        """With `whole_crc`, a record that differs from its own checksum is no continuation."""
        self._log = commit_log
        self._pending = pending
        self._builder = QueueBuilder(table, pending, delay_levels)
        self._blocks: BlockBuilder | None = None
        self._whole_crc = whole_crc
        self._buffer = bytearray(_FEW_BYTES)

    def turn(self) -> bool:
        """Check and enter the next records; return whether there may be more to do at once.

        Raises:
            ForeignBytes: the received bytes do not continue this log.
            DiskFull, OSError: a queue gets no file; try again later.
        """
        log = self._log
        begin = log.whole
        file = log.files.find(begin)
        if file is None or log.end - begin < MIN_BLANK:
            return False
        at = begin - file.base_offset
        stop = min(log.end - file.base_offset, file.size)
        size = self._size_of_next(file, at, stop)
        if size is None:
            return False
        if at + size == file.size:  # a blank
            log.checked(file.base_offset + file.size, log.store_timestamp)
            return True
        received = self._read(file, at, min(stop - at, max(size, _TURN)))
        if len(received) >= _MANY and self._enter_block(received, begin):
            return True
        return self._enter_few(file, received, begin)

    @property
    def has_next(self) -> bool:
        """Whether the whole next record, or blank, is received. Raises ForeignBytes."""
        log = self._log
        begin = log.whole
        file = log.files.find(begin)
        if file is None or log.end - begin < MIN_BLANK:
            return False
        at = begin - file.base_offset
        return self._size_of_next(file, at, min(log.end - file.base_offset, file.size)) is not None

    def _read(self, file: MappedFile, at: int, size: int) -> memoryview:
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        received = memoryview(self._buffer)[:size]
        file.read_into(at, received)
        return received

    def _size_of_next(self, file: MappedFile, at: int, stop: int) -> int | None:
        """Return the size of the next record, or of the blank that fills the file; None while it is
        not all received. Raises ForeignBytes."""
        size, magic = peek(self._read(file, at, MIN_BLANK))
        if magic == BLANK_MAGIC:
            if size != file.size - at:
                raise _misfit(file, at, f"a blank of {size} bytes, {file.size - at} are left")
        elif magic not in (MAGIC_V1, MAGIC_V2):
            raise _foreign(file, at, f"magic {magic:#010x} is not a record's")
        elif not MIN_RECORD <= size <= file.size - at - MIN_BLANK:
            raise _misfit(file, at, f"a record of {size} bytes, {file.size - at} are left")
        return size if at + size <= stop else None

    def _enter_few(self, file: MappedFile, received: memoryview, begin: int) -> bool:
        """Enter the records of `received`, the first of which is at the physical offset `begin`."""
        timestamp = self._log.store_timestamp
        at = number = 0
        try:
            while number < _FEW and at < len(received):
                record = decode(received, at)
                if record.physical_offset != begin + at:
                    raise CorruptRecord(at, f"it belongs to offset {record.physical_offset}")
                if self._whole_crc and is_altered(received[at : at + record.size]):
                    raise CorruptRecord(at, DIFFERS)
                self._builder.enter(record)
                at += record.size
                timestamp = record.store_timestamp
                number += 1
        except TruncatedRecord:
            return at > 0  # the next turn reads on
        except EntriesWait:
            return at > 0  # those before it are entered after this turn
        except CorruptRecord as error:
            if peek(received, at)[1] != BLANK_MAGIC:
                raise _foreign(file, begin + at - file.base_offset, error.reason) from None
        finally:
            if at:
                self._log.checked(begin + at, timestamp)
        return True

    def _enter_block(self, received: memoryview, begin: int) -> bool:
        """Enter many records at once; False when they have to be looked at one after another."""
        if self._blocks is None:
            # Only now: importing numpy costs an idle broker 16 MB.
            from pocketmq.store.queue.block_builder import BlockBuilder

            self._blocks = BlockBuilder(
                self._builder.queue_of, self._pending, whole_crc=self._whole_crc
            )
        entered = self._blocks.enter(received, begin)
        if entered is None:
            return False
        self._log.checked(*entered)
        return True


def _misfit(file: MappedFile, at: int, reason: str) -> ForeignBytes:
    """Return the error for what would fit into a file of another size."""
    return _foreign(
        file, at,
        f"{reason}; if mappedFileSizeCommitLog, {file.size} here, is not the master's value, "
        "correct it first",
    )  # fmt: skip


def _foreign(file: MappedFile, at: int, reason: str) -> ForeignBytes:
    return ForeignBytes(file.path, at, file.base_offset + at, reason)
