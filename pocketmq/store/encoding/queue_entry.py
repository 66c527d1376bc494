"""A consume-queue entry: 20 bytes with the position of a message in the commit log.

    physicalOffset i64 · size i32 · tagsCode i64

Entries travel through the store as the bytes that end up in the queue: those of a batch are made in
one go, and entering them is one copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

CONSUME_QUEUE_UNIT: Final = 20
"""Bytes of an entry."""
_ENTRY: Final = Struct(">qiq")
_MANY: Final = 1024  # packed with one call

pack_entry: Final = _ENTRY.pack
unpack_entry: Final = _ENTRY.unpack_from
iter_entries: Final = _ENTRY.iter_unpack

#: physical offset, size, tags code
Entry = tuple[int, int, int]


def pack_entries(flat: Sequence[int]) -> bytes:
    """Return the entries of several messages: physical offset, size and tags code of each, flat."""
    if len(flat) <= 3 * _MANY:
        return _packer(len(flat) // 3).pack(*flat)
    steps = range(0, len(flat), 3 * _MANY)
    return b"".join([pack_entries(flat[at : at + 3 * _MANY]) for at in steps])


def unpack_places(data: memoryview) -> tuple[int, ...]:
    """Return physical offset and size of each entry, flat."""
    return _place_unpacker(len(data) // _ENTRY.size).unpack(data)


@lru_cache(maxsize=512)
def _packer(count: int) -> Struct:
    return Struct(">" + "qiq" * count)


@lru_cache(maxsize=512)
def _place_unpacker(count: int) -> Struct:
    return Struct(">" + "qi8x" * count)
