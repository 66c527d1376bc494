"""The layout of an index file: header, slots, entries. All numbers are big-endian.

A file begins with a header of 40 bytes. Then come `slots` slots of 4 bytes and `capacity` entries
of 20. Entry 0 is never used::

    header  beginTimestamp i64 · endTimestamp i64 · beginPhyOffset i64 · endPhyOffset i64
            hashSlotCount i32 (slots in use) · indexCount i32 (number of the next entry)
    slot    number of the newest entry of this slot, 0 for none
    entry   keyHash i32 · physicalOffset i64 · seconds i32 since beginTimestamp
            · number of the next older entry of the slot

Reference: IndexFile, IndexHeader.
"""

from __future__ import annotations

from typing import Final

HEADER_SIZE: Final = 40
COUNT_AT: Final = 36
SLOT_SIZE: Final = 4
ENTRY_SIZE: Final = 20


def entries_at(slots: int) -> int:
    """Return the byte at which entry 0 begins."""
    return HEADER_SIZE + slots * SLOT_SIZE


def file_size(slots: int, capacity: int) -> int:
    """Return the size in bytes of an index file with this many slots and entries."""
    return entries_at(slots) + capacity * ENTRY_SIZE
