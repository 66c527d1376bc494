"""The interface of a commit log to the rules of a controller group."""

from __future__ import annotations

from typing import Protocol

from pocketmq.store.epochs import Epochs


class CutRefused(Exception):
    """The log cannot be truncated there; the text says why, and what to do."""


class EpochLog(Protocol):
    """The log of one member, and the list of its epochs. Offsets are physical offsets."""

    @property
    def begin(self) -> int:
        """The offset of the first byte; equal to `end` in an empty log."""

    @property
    def end(self) -> int:
        """The offset after the last byte."""

    @property
    def first_end(self) -> int:
        """The end of the first record, even if it is incomplete; `end` in an empty log."""

    @property
    def flushed(self) -> int:
        """Everything before this offset survives a power cut."""

    @property
    def file_size(self) -> int:
        """mappedFileSizeCommitLog."""

    def append(self, data: memoryview) -> None:
        """Write bytes at `end`. They do not cross the end of a file. Raises OSError."""

    def begin_at(self, offset: int) -> None:
        """Make an empty log begin at `offset`, where a file begins."""

    def cut(self, offset: int) -> None:
        """Remove everything from `offset` on, so that it cannot reappear after a power cut.

        Raises CutRefused if no record begins there, and OSError.
        """

    def cut_torn(self) -> None:
        """Truncate the log after the last complete record. Raises OSError."""

    def save_epochs(self, epochs: Epochs) -> None:
        """Write the list, so that it survives a power cut. Raises OSError."""
