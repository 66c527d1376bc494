"""Consume-queue entries as a numpy structured array over the mapped file.

A separate module, because importing numpy costs an idle broker 16 MB: only scans and recovery
after a crash come here.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

ENTRY_DTYPE: Final = np.dtype([("physical", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
"""The 20 bytes of an entry, unaligned and big-endian as they lie in the file."""

EntryArray: TypeAlias = npt.NDArray[Any]


def entry_array(view: memoryview) -> EntryArray:
    """Return the entries in `view`, without a copy; the array keeps what it came from mapped."""
    return np.frombuffer(view, ENTRY_DTYPE)


class EntryRun(NamedTuple):
    """What one file of a consume queue holds, counted in entries."""

    first_invalid: int
    """Before it every entry has a physical offset and a size."""
    behind_last_valid: int
    """Differs from `first_invalid` when pages are missing in the middle."""

    @classmethod
    def of(cls, view: memoryview) -> EntryRun:
        """Look through a whole file."""
        entries = entry_array(view)
        valid = np.flatnonzero((entries["physical"] >= 0) & (entries["size"] > 0))
        if not len(valid):
            return cls(0, 0)
        holes = np.flatnonzero(valid != np.arange(len(valid)))
        first_invalid = int(holes[0]) if len(holes) else len(valid)
        return cls(first_invalid, int(valid[-1]) + 1)
