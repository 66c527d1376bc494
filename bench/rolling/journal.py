"""What a consumer handled, in a file that survives its SIGKILL.

The file is mapped, so a record is with the kernel as soon as it is written, and memory does not
grow with it.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from struct import Struct
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["RECORD", "Journal", "read"]

#: One handled message: CLOCK_MONOTONIC ns (the same in all processes), offset in its queue, queue
#: (number of the broker × 256 + queue id), producer, its sequence numbers in the topic and in the
#: key, the key, and how often the message was sent back before.
RECORD = np.dtype(
    [
        ("time", "<i8"),
        ("offset", "<u4"),
        ("queue", "<u2"),
        ("producer", "<u2"),
        ("seq", "<u4"),
        ("key", "<u4"),
        ("key_seq", "<u4"),
        ("sent_back", "<u4"),
    ]
)
_RECORD = Struct("<qIHHIIII")
#: The file grows by so many bytes: whole records and whole pages.
CHUNK = 1 << 20


class Journal:
    """Appends records to a new file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0

    def __enter__(self) -> Self:
        self._file = self._path.open("x+b")
        self._grow()
        return self

    def __exit__(self, *error: object) -> None:
        self._chunk.close()
        self._file.close()

    def _grow(self) -> None:
        self._file.truncate(self._size + CHUNK)
        self._chunk = mmap.mmap(self._file.fileno(), CHUNK, offset=self._size)
        self._size += CHUNK
        self._at = 0

    def add(self, *record: int) -> None:
        """One record, its fields as in RECORD."""
        if self._at == CHUNK:
            self._chunk.close()
            self._grow()
        _RECORD.pack_into(self._chunk, self._at, *record)
        self._at += _RECORD.size


def read(path: Path) -> NDArray[Any]:
    """The records of a file, as an array of RECORD."""
    records: NDArray[Any] = np.fromfile(path, RECORD)
    written: NDArray[Any] = records[records["time"] != 0]
    return written
