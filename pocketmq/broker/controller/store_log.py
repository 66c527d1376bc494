"""The commit log of a store as the rules of a controller group see it (`EpochLog`)."""

from __future__ import annotations

from struct import Struct
from typing import Final

from pocketmq.broker.controller.epoch_log import CutRefused
from pocketmq.store.epochs import EpochFile, Epochs
from pocketmq.store.message_store import MessageStore

_SIZE: Final = Struct(">i")  # the first field of a record


class StoreLog:
    """The log of an open store, and the file of its epochs.

    Cutting a store takes longer than the rules can wait. So it is done before they ask for it, and
    they find nothing left to cut.
    """

    def __init__(self, store: MessageStore, file: EpochFile) -> None:
        self._store = store
        self._log = store.commit_log
        self._file = file

    @property
    def begin(self) -> int:
        """The first byte that is there."""
        return self._log.min_offset if self._log.files.mapped else self._log.end

    @property
    def end(self) -> int:
        """Behind the last byte that is written."""
        return self._log.written

    @property
    def first_end(self) -> int:
        """Behind the first record, even if not all of it is there; `end` in an empty log."""
        head = self._log.read(self.begin, _SIZE.size)
        return self.end if head is None else self.begin + int(_SIZE.unpack(head)[0])

    @property
    def flushed(self) -> int:
        """What lies before this outlasts a power cut."""
        return self._store.flushed_offset

    @property
    def file_size(self) -> int:
        """mappedFileSizeCommitLog."""
        return self._log.file_size

    def append(self, data: memoryview) -> None:
        """Write bytes at `end`. Raises OSError, StoreError."""
        self._store.replica.append(self._log.end, data)

    def begin_at(self, offset: int) -> None:
        """Let an empty log begin at `offset`, where a file does. Raises OSError."""
        if self._log.files.mapped:  # everything was cut
            self._log.files.remove_all()
            self._log.cut(offset)
        else:
            self._log.begin_at(offset)

    def cut(self, offset: int) -> None:
        """Find that the log was cut at `offset`. Raises CutRefused if it was not."""
        if offset < self._log.end:
            raise CutRefused(f"the log ends at {self._log.end} and was not cut at {offset}")

    def cut_torn(self) -> None:
        """Find that nothing torn is left."""
        if self._log.whole < self._log.end:
            raise CutRefused(f"the log has a part of a record at {self._log.whole}")

    def save_epochs(self, epochs: Epochs) -> None:
        """Write the list. Raises OSError."""
        self._file.save(epochs)
