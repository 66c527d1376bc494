"""Follows a commit log that is copied from a master: checks each record, and enters it.

The copying path writes bytes and looks at none of them. Here, behind it, each record must have the
right magic, its own physical offset, a possible size and the right CRC: the protocol has no other
sign that two logs have parted. The first wrong one ends the copying. What is received may end in
the middle of a record; the rest will come.

A few records are decoded one after another. Of many, numpy makes the entries, some thousand at a
time, since a slave has to keep up with the batches of its master.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pocketmq.message.record import (
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    MIN_BLANK,
    MIN_RECORD,
    CorruptRecord,
    TruncatedRecord,
    decode,
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
_MANY: Final = 32 * 1024  # bytes that make numpy worth its fixed cost
_FEW: Final = 256  # records decoded in one turn


class LogFollower:
    """Brings `whole` of a slave's log forward to what is received, turn by turn."""

    def __init__(
        self,
        commit_log: CommitLog,
        table: ConsumeQueueTable,
        pending: PendingEntries,
        delay_levels: DelayLevels,
    ) -> None:
        self._log = commit_log
        self._pending = pending
        self._builder = QueueBuilder(table, pending, delay_levels)
        self._blocks: BlockBuilder | None = None

    def turn(self) -> bool:
        """Check and enter the next records; return whether there may be more to do at once.

        Raises:
            ForeignBytes: what was received is not the continuation of this log.
            DiskFull, OSError: a queue gets no file; try again later.
        """
        log = self._log
        begin = log.whole
        file = log.files.find(begin)
        if file is None or log.end - begin < MIN_BLANK:
            return False
        at = begin - file.base_offset
        stop = min(log.end - file.base_offset, file.size)
        if not self._is_next_there(file, at, stop):
            return False
        if peek(file.view, at)[1] == BLANK_MAGIC:
            log.checked(file.base_offset + file.size, log.store_timestamp)
            return True
        if stop - at >= _MANY and self._enter_block(file, at, stop):
            return True
        return self._enter_few(file, at, stop)

    @property
    def has_next(self) -> bool:
        """Whether the whole next record, or blank, is received. Raises ForeignBytes."""
        log = self._log
        begin = log.whole
        file = log.files.find(begin)
        if file is None or log.end - begin < MIN_BLANK:
            return False
        at = begin - file.base_offset
        return self._is_next_there(file, at, min(log.end - file.base_offset, file.size))

    def _is_next_there(self, file: MappedFile, at: int, stop: int) -> bool:
        """Return whether the whole next record, or blank, is received. Raises ForeignBytes."""
        size, magic = peek(file.view, at)
        if magic == BLANK_MAGIC:
            if size != file.size - at:
                raise _foreign(file, at, f"a blank of {size} bytes, {file.size - at} are left")
            return stop == file.size
        if magic not in (MAGIC_V1, MAGIC_V2):
            raise _foreign(file, at, f"magic {magic:#010x} is not a record's")
        if not MIN_RECORD <= size <= file.size - at - MIN_BLANK:
            raise _foreign(file, at, f"a record of {size} bytes, {file.size - at} are left")
        return at + size <= stop

    def _enter_few(self, file: MappedFile, at: int, stop: int) -> bool:
        received = file.view[:stop]
        most = at + _TURN
        timestamp = self._log.store_timestamp
        number = 0
        begin = at
        try:
            while number < _FEW and at < most:
                record = decode(received, at)
                if record.physical_offset != file.base_offset + at:
                    raise _foreign(file, at, f"it belongs to offset {record.physical_offset}")
                self._builder.enter(record)
                at += record.size
                timestamp = record.store_timestamp
                number += 1
        except TruncatedRecord:
            return False
        except EntriesWait:
            return at > begin  # those before it are entered after this turn
        except CorruptRecord as error:
            if peek(file.view, at)[1] != BLANK_MAGIC:
                raise _foreign(file, at, error.reason) from None
        finally:
            if at > begin:
                self._log.checked(file.base_offset + at, timestamp)
        return True

    def _enter_block(self, file: MappedFile, at: int, stop: int) -> bool:
        """Enter many records at once; False when they have to be looked at one after another."""
        if self._blocks is None:
            # Only now: importing numpy costs an idle broker 16 MB.
            from pocketmq.store.queue.block_builder import BlockBuilder

            self._blocks = BlockBuilder(self._builder.queue_of, self._pending)
        size = peek(file.view, at)[0]
        entered = self._blocks.enter(file, at, min(stop, at + max(size, _TURN)))
        if entered is None:
            return False
        self._log.checked(*entered)
        return True


def _foreign(file: MappedFile, at: int, reason: str) -> ForeignBytes:
    return ForeignBytes(file.path, at, file.base_offset + at, reason)
