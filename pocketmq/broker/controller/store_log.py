"""Adapts the commit log of a store to `EpochLog`, for the rules of a controller group."""

from __future__ import annotations

from struct import Struct
from typing import Final

from pocketmq.broker.controller.epoch_log import CutRefused
from pocketmq.store.epochs import EpochFile, Epochs
from pocketmq.store.message_store import MessageStore

_SIZE: Final = Struct(">i")  # the first field of a record


class StoreLog:
    """The log of an open store, and the file of its epochs.

    Truncating a store takes longer than the rules can wait. So the caller does it first, and `cut`
    and `cut_torn` only check that it was done.
    """

    def __init__(self, store: MessageStore, file: EpochFile) -> None:
        self._store = store
        self._log = store.commit_log
        self._file = file

    @property
    def begin(self) -> int:
        """The offset of the first byte."""
        return self._log.min_offset if self._log.files.mapped else self._log.end

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return self._log.written

    @property
    def first_end(self) -> int:
        """The end of the first record, even if it is incomplete; `end` in an empty log."""
        head = self._log.read(self.begin, _SIZE.size)
        return self.end if head is None else self.begin + int(_SIZE.unpack(head)[0])

    @property
    def flushed(self) -> int:
        """Everything before this offset survives a power cut."""
        return self._store.flushed_offset

    @property
    def file_size(self) -> int:
        """mappedFileSizeCommitLog."""
        return self._log.file_size

    def append(self, data: memoryview) -> None:
        """Write bytes at `end`. Raises OSError, StoreError."""
        self._store.replica.append(self._log.end, data)

    def begin_at(self, offset: int) -> None:
        """Make an empty log begin at `offset`, where a file begins. Raises OSError."""
        if self._log.files.mapped:  # the log was truncated completely
            self._log.files.remove_all()
            self._log.cut(offset)
        else:
            self._log.begin_at(offset)

    def cut(self, offset: int) -> None:
        """Check that the log was truncated at `offset`. Raises CutRefused if it was not."""
        if offset < self._log.end:
            raise CutRefused(f"the log ends at {self._log.end} and was not cut at {offset}")

    def cut_torn(self) -> None:
        """Check that no incomplete record is left. Raises CutRefused if one is."""
        if self._log.whole < self._log.end:
            raise CutRefused(f"the log has a part of a record at {self._log.whole}")

    def save_epochs(self, epochs: Epochs) -> None:
        """Write the list. Raises OSError."""
        self._file.save(epochs)
