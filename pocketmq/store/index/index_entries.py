"""Enters many keys into an index file at once, with the result that one after the other has.

A module of its own, as `entry_array` is, because importing numpy costs an idle broker 16 MB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from pocketmq.store.index.index_file import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE

if TYPE_CHECKING:
    from pocketmq.store.index.index_file import IndexFile
    from pocketmq.store.index.index_keys import KeyBatch

_ENTRY: Final = np.dtype(
    [("key", ">i4"), ("physical", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
_MOST_SECONDS: Final = 2**31 - 1


def write_entries(file: IndexFile, keys: KeyBatch) -> None:
    """Write all of `keys` behind the last entry; there is room."""
    count, first = len(keys), file.count
    slots = np.ndarray(file.slots, ">i4", file.file.view, HEADER_SIZE)
    # Entries of one slot side by side, in their order: each follows the one before it, and the
    # first one what the slot holds by now.
    slot = keys.hash % file.slots
    order = np.argsort(slot, kind="stable")
    slot = slot[order]
    number = first + order
    previous = slots[slot].astype(np.int64)
    # Remains of what was never counted are no entries.
    previous[(previous < 0) | (previous > first)] = 0
    follows = slot[1:] == slot[:-1]
    np.copyto(previous[1:], number[:-1], where=follows)

    entries_at = HEADER_SIZE + file.slots * SLOT_SIZE + first * ENTRY_SIZE
    entries = np.ndarray(count, _ENTRY, file.file.view, entries_at)
    entries["key"] = keys.hash
    entries["physical"] = keys.physical
    entries["previous"][order] = previous
    begin = file.begin_timestamp
    first_timestamp = int(keys.timestamp[0])
    if first <= 1:
        # The reference relates the very first entry to the end of the file before.
        entries["seconds"][0] = _seconds(keys.timestamp[:1], begin)[0]
        entries["seconds"][1:] = _seconds(keys.timestamp[1:], first_timestamp)
    else:
        entries["seconds"] = _seconds(keys.timestamp, begin)
    # First what the slots will lead to, then how far it is valid, then the slots: whoever asks
    # meanwhile finds the old chain or the new one.
    file.advance(keys, first_timestamp, int(np.count_nonzero(previous == 0)))
    last = np.append(~follows, True)
    slots[slot[last]] = number[last]


def unlink_entries(file: IndexFile, behind: int) -> None:
    """Make the slots lead to what they led to before the entries from `file.count` to `behind` were
    written; entries to which no slot leads yet may be among them."""
    slots = np.ndarray(file.slots, ">i4", file.file.view, HEADER_SIZE)
    entries_at = HEADER_SIZE + file.slots * SLOT_SIZE + file.count * ENTRY_SIZE
    entries = np.ndarray(max(0, behind - file.count), _ENTRY, file.file.view, entries_at)
    # The first ones of their slots know what was there before.
    first = entries[entries["previous"] < file.count]
    slots[first["key"] % file.slots] = first["previous"]


def _seconds(timestamp: npt.NDArray[np.int64], begin: int) -> npt.NDArray[np.int64]:
    if begin <= 0:
        return np.zeros(len(timestamp), np.int64)
    return ((timestamp - begin) // 1000).clip(0, _MOST_SECONDS)
