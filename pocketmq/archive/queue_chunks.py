"""Chunks of archived queues, whose entries are fetched and checked when they are read."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, NamedTuple

import numpy as np

from pocketmq.archive.errors import ObjectDamaged
from pocketmq.archive.objects import Objects
from pocketmq.message.checksum import crc32
from pocketmq.store.encoding.entry_array import ENTRY_DTYPE
from pocketmq.store.scan.queues.segments import ByteArray

_KEPT_CHUNKS: Final = 128
_OPEN_FILES: Final = 64


class Chunk(NamedTuple):
    """Consecutive entries of a queue.

    Attributes:
        first: queue offset of the first.
        entries: the number of entries.
        at: where they begin in the object, in bytes.
        crc: CRC-32 of the entries.
        physical: physical offset of the record of the first entry.
        bytes: of all records.
        stored: the store time of the record of the first entry, in ms.
    """

    first: int
    entries: int
    at: int
    crc: int
    physical: int
    bytes: int
    stored: int


class QueueChunk:
    """A chunk as a segment of its queue, up to the queue offset `stop`, in the format of a consume
    queue file."""

    def __init__(self, fetched: FetchedChunks, name: str, chunk: Chunk, stop: int) -> None:
        self.base = chunk.first * ENTRY_DTYPE.itemsize
        self.size = (stop - chunk.first) * ENTRY_DTYPE.itemsize
        self.name = name
        self.chunk = chunk
        self._fetched = fetched

    @property
    def path(self) -> str:
        """The URL of the object."""
        return self._fetched.objects.url(self.name)

    @property
    def bytes(self) -> ByteArray:
        """The entries. Raises ArchiveError."""
        return np.frombuffer(self._fetched.content(self), np.uint8)[: self.size]

    @property
    def view(self) -> memoryview:
        """The entries as a memoryview."""
        return self.bytes.data


class FetchedChunks:
    """Reads chunks, and caches the most recently used: 40 MiB at most."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self._recent: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._files: OrderedDict[str, Any] = OrderedDict()

    def content(self, part: QueueChunk) -> bytes:
        """Return all entries of a chunk. Raises ArchiveError."""
        size = part.chunk.entries * ENTRY_DTYPE.itemsize
        key = part.name, part.chunk.at
        found = self._recent.get(key)
        if found is not None:
            self._recent.move_to_end(key)
            return found
        file = self._files.get(part.name)
        if file is None:
            file = self._files[part.name] = self.objects.open(part.name)
            if len(self._files) > _OPEN_FILES:
                self._files.popitem(last=False)
        found = bytes(self.objects.read_range(file, part.name, part.chunk.at, size))
        if len(found) != size or crc32(found) != part.chunk.crc:
            reason = f"the entries at byte {part.chunk.at} have a wrong checksum"
            raise ObjectDamaged(self.objects.url(part.name), reason)
        self._recent[key] = found
        if len(self._recent) > _KEPT_CHUNKS:
            self._recent.popitem(last=False)
        return found
