"""What the rules of a controller group need of a commit log."""

from __future__ import annotations

from typing import Protocol

from pocketmq.store.epochs import Epochs


class CutRefused(Exception):
    """The log cannot be cut there; the text says why, and what to do."""


class EpochLog(Protocol):
    """The log of one member, and the list of its epochs. Offsets are physical."""

    @property
    def begin(self) -> int:
        """The first byte that is there; equal to `end` in an empty log."""

    @property
    def end(self) -> int:
        """Behind the last byte that is written."""

    @property
    def first_end(self) -> int:
        """Behind the first record, even if not all of it is there; `end` in an empty log."""

    @property
    def flushed(self) -> int:
        """What lies before this outlasts a power cut."""

    @property
    def file_size(self) -> int:
        """mappedFileSizeCommitLog."""

    def append(self, data: memoryview) -> None:
        """Write bytes at `end`. They do not pass the end of a file. Raises OSError."""

    def begin_at(self, offset: int) -> None:
        """Let an empty log begin at `offset`, where a file does."""

    def cut(self, offset: int) -> None:
        """Forget everything from `offset` on, so that no power cut brings it back.

        Raises CutRefused when no record begins there; and OSError.
        """

    def cut_torn(self) -> None:
        """Cut behind the last whole record. Raises OSError."""

    def save_epochs(self, epochs: Epochs) -> None:
        """Write the list, so that it outlasts a power cut. Raises OSError."""
