"""Consume-queue entries as a numpy structured array over the mapped file.

A separate module, because importing numpy costs an idle broker 16 MB: only scans and recovery
after a crash come here.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from pocketmq.message.record_layout import MIN_RECORD

ENTRY_DTYPE: Final = np.dtype([("physical", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
"""The 20 bytes of an entry, unaligned and big-endian as in the file."""

EntryArray: TypeAlias = npt.NDArray[Any]


class SoundPlace(NamedTuple):
    """Where the records of entries must be, and what their heads must say."""

    view: memoryview
    """A commit-log file, ..."""
    base_offset: int
    """... and the physical offset of its first byte."""
    magic: int
    queue_id: int
    queue_offset: int
    """Of the first entry."""


def entry_array(view: memoryview) -> EntryArray:
    """Return the entries in `view`, without a copy; the array keeps what it came from mapped."""
    return np.frombuffer(view, ENTRY_DTYPE)


def count_sound(entries: EntryArray, place: SoundPlace) -> int:
    """Return the number of entries from the first on that agree with the heads of their records,
    which must be in one file."""
    view, base, magic, queue_id, offset = place
    physicals = entries["physical"].astype(np.int64)
    sizes = entries["size"].astype(np.int64)
    at = physicals - base
    inside = (at >= 0) & (at + sizes <= len(view)) & (sizes >= MIN_RECORD)
    at[~inside] = 0
    # The eight bytes from each byte on, as a number.
    words = np.ndarray((len(view) - 7,), ">i8", view, strides=(1,))
    sound = (
        inside
        & (words[at] == (sizes << 32 | magic))
        & (words[at + 8] & 0xFFFFFFFF == queue_id)
        & (words[at + 20] == np.arange(offset, offset + len(at)))
        & (words[at + 28] == physicals)
    )
    return len(at) if sound.all() else int(sound.argmin())


class EntryRun(NamedTuple):
    """What one file of a consume queue holds, counted in entries."""

    first_invalid: int
    """Before it every entry has a physical offset and a size."""
    behind_last_valid: int
    """Differs from `first_invalid` when pages are missing in the middle."""
    least_physical: int
    """The lowest physical offset before `first_invalid`: 0 with a filler, or without an entry."""

    @classmethod
    def of(cls, view: memoryview) -> EntryRun:
        """Look through a whole file."""
        entries = entry_array(view)
        # As bytes: with few entries, numpy's own searches cost more than all of them.
        physicals = entries["physical"]
        valid = ((physicals >= 0) & (entries["size"] > 0)).tobytes()
        first_invalid = valid.find(b"\0")
        if first_invalid < 0:
            first_invalid = len(valid)
        least = int(physicals[:first_invalid].min()) if first_invalid else 0
        return cls(first_invalid, valid.rfind(b"\1") + 1, least)
