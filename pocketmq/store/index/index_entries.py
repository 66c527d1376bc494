"""Enters many keys into an index file at once, with the same result as one after another.

A separate module, as `entry_array` is, because importing numpy costs an idle broker 16 MB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from pocketmq.store.index.index_layout import ENTRY_SIZE, HEADER_SIZE, entries_at

if TYPE_CHECKING:
    from pocketmq.store.encoding.index_keys import KeyBatch

_ENTRY: Final = np.dtype(
    [("key", ">i4"), ("physical", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
_MOST_SECONDS: Final = 2**31 - 1


class WrittenEntries:
    """Entries that are written but not yet found: `link` makes the slots lead to them.

    Attributes:
        new_slots: how many slots were empty before.
    """

    def __init__(
        self,
        slots: npt.NDArray[Any],
        slot: npt.NDArray[np.int64],
        number: npt.NDArray[np.int64],
        new_slots: int,
    ) -> None:
        """`number` are the entries that the slots `slot` will lead to."""
        self.new_slots = new_slots
        self._slots = slots
        self._slot = slot
        self._number = number

    def link(self) -> None:
        """Make the slots lead to the entries."""
        self._slots[self._slot] = self._number


def numbers_of_key(view: memoryview, slot_count: int, key: int, first: int, end: int) -> list[int]:
    """Return the numbers of the entries from `first` to before `end` that have this key hash, the
    last one first."""
    at = entries_at(slot_count) + first * ENTRY_SIZE
    # Comparing the bytes as they are takes a fifth of the time.
    keys = np.ndarray(end - first, np.int32, view, at, (ENTRY_SIZE,))
    found = np.flatnonzero(keys == np.array(key, ">i4").view(np.int32))
    return [first + int(number) for number in found[::-1]]


def write_entries(
    view: memoryview, slot_count: int, first: int, begin_timestamp: int, keys: KeyBatch
) -> WrittenEntries:
    """Write all of `keys` as the entries from number `first` on; there must be room.

    `view` is the file, `begin_timestamp` the one in its header.
    """
    count = len(keys)
    slots = np.ndarray(slot_count, ">i4", view, HEADER_SIZE)
    # Put the entries of one slot side by side, in their order. Each follows the one before it; the
    # first follows the entry that the slot leads to now.
    slot = keys.hash % slot_count
    order = np.argsort(slot, kind="stable")
    slot = slot[order]
    number = first + order
    previous = slots[slot].astype(np.int64)
    # Numbers beyond the count are left over from a crash.
    previous[(previous < 0) | (previous > first)] = 0
    follows = slot[1:] == slot[:-1]
    np.copyto(previous[1:], number[:-1], where=follows)

    entries = np.ndarray(count, _ENTRY, view, entries_at(slot_count) + first * ENTRY_SIZE)
    entries["key"] = keys.hash
    entries["physical"] = keys.physical
    entries["previous"][order] = previous
    if first <= 1:
        # The reference relates the very first entry to the end of the file before.
        entries["seconds"][0] = _seconds(keys.timestamp[:1], begin_timestamp)[0]
        entries["seconds"][1:] = _seconds(keys.timestamp[1:], int(keys.timestamp[0]))
    else:
        entries["seconds"] = _seconds(keys.timestamp, begin_timestamp)
    last = np.append(~follows, True)
    new_slots = int(np.count_nonzero(previous == 0))
    return WrittenEntries(slots, slot[last], number[last], new_slots)


def link_entries(view: memoryview, slot_count: int, first: int, behind: int) -> None:
    """Link the slots to the last entries, those from `first` up to `behind`. Some may be linked
    already."""
    slots = np.ndarray(slot_count, ">i4", view, HEADER_SIZE)
    at = entries_at(slot_count) + first * ENTRY_SIZE
    entries = np.ndarray(max(0, behind - first), _ENTRY, view, at)
    # The newest entry of each slot: the first one, counted from the end.
    slot, number = np.unique(entries["key"][::-1] % slot_count, return_index=True)
    slots[slot] = behind - 1 - number


def unlink_entries(view: memoryview, slot_count: int, count: int, behind: int) -> None:
    """Link the slots to the entries that they had before those from `count` up to `behind` were
    written. Slots need not be linked to all of these entries yet."""
    slots = np.ndarray(slot_count, ">i4", view, HEADER_SIZE)
    at = entries_at(slot_count) + count * ENTRY_SIZE
    entries = np.ndarray(max(0, behind - count), _ENTRY, view, at)
    # The oldest entry of each slot says where the slot led before.
    first = entries[entries["previous"] < count]
    slots[first["key"] % slot_count] = first["previous"]


def _seconds(timestamp: npt.NDArray[np.int64], begin: int) -> npt.NDArray[np.int64]:
    if begin <= 0:
        return np.zeros(len(timestamp), np.int64)
    return ((timestamp - begin) // 1000).clip(0, _MOST_SECONDS)
