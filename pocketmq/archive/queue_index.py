"""The queue entries of one part of a log, as one object.

First the entries, queue by queue, 20 bytes each as in a consume queue; then the directory, which
says where the entries of each queue lie. They are in chunks with a checksum each, so that a reader
fetches and checks the few that it needs. The directory is JSON: topic → queue id → rows of `Chunk`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from pocketmq.archive.errors import ObjectDamaged
from pocketmq.archive.objects import Objects
from pocketmq.message.checksum import crc32
from pocketmq.message.properties import TAGS
from pocketmq.message.record import RecordError, decode
from pocketmq.message.tags import tag_hash
from pocketmq.store.queue.entry_array import ENTRY_DTYPE, EntryArray
from pocketmq.store.scan.queue_slice import FILLER_SIZE, Rows
from pocketmq.store.scan.segments import ByteArray
from pocketmq.store.scan.snapshot import QueueSnapshot, StoreSnapshot

ENTRIES: Final = 16_384
"""The most entries of a chunk: 320 KiB."""
_KEPT_CHUNKS: Final = 128
_OPEN_FILES: Final = 64


class Chunk(NamedTuple):
    """Some entries of a queue without a gap.

    Attributes:
        first: queue offset of the first.
        entries: how many.
        at: the byte of the object where they begin.
        crc: CRC-32 of the entries.
        physical: physical offset of the record of the first entry.
        bytes: of all records.
        stored: when the record of the first entry was stored, in ms.
    """

    first: int
    entries: int
    at: int
    crc: int
    physical: int
    bytes: int
    stored: int


Directory = dict[str, dict[int, list[Chunk]]]


class QueueIndex(NamedTuple):
    """An object as it is uploaded. `directory_at` is the byte where its directory begins."""

    content: bytes
    directory_at: int
    messages: int


def decode_directory(content: bytes) -> Directory:
    """Return a directory. Raises msgspec.DecodeError."""
    return msgspec.json.decode(content, type=Directory)


def build(store: StoreSnapshot, begin: int, end: int) -> QueueIndex:
    """Return the entries of all queues whose records lie at physical offsets [begin, end)."""
    content = bytearray()
    directory: Directory = {}
    messages = 0
    for (topic, queue_id), queue in sorted(store.queues.items()):
        chunks = []
        for first, entries in _runs(store, queue, begin, end):
            for number in range(0, len(entries), ENTRIES):
                some = entries[number : number + ENTRIES]
                raw = some.tobytes()
                is_real = some["size"] != FILLER_SIZE
                real = some[is_real] if is_real.any() else some
                physical = int(real["physical"][0])
                place = store.place(physical)
                chunks.append(
                    Chunk(
                        first + number,
                        len(some),
                        len(content),
                        crc32(raw),
                        physical,
                        int(some["size"].sum(where=is_real, dtype=np.int64)),
                        0 if place is None else place.store_timestamp,
                    )
                )
                content += raw
                messages += int(is_real.sum())
        if chunks:
            directory.setdefault(topic, {})[queue_id] = chunks
    directory_at = len(content)
    content += msgspec.json.encode(directory)
    return QueueIndex(bytes(content), directory_at, messages)


def _runs(
    store: StoreSnapshot, queue: QueueSnapshot, begin: int, end: int
) -> list[tuple[int, EntryArray]]:
    """Return the entries of a queue without gaps, each with the queue offset of its first."""
    start = queue.first_from(begin)
    stop = queue.first_from(end, start)
    tail = queue.tail
    low, high = np.searchsorted(tail.physical, (begin, end))
    if high > low:
        stop = int(tail.offset[high - 1]) + 1
        if start >= queue.known_end:
            start = int(tail.offset[low])
    if start >= stop:
        return []
    runs: list[tuple[int, EntryArray]] = []
    for rows in queue.slice().cut(start, stop).rows(queue.segments):
        entries = _entries(store, rows)
        breaks = np.flatnonzero(np.diff(rows.offset) != 1) + 1
        pieces = np.split(entries, breaks)
        firsts = [int(rows.offset[0]), *(int(rows.offset[at]) for at in breaks)]
        for first, piece in zip(firsts, pieces, strict=True):
            if runs and runs[-1][0] + len(runs[-1][1]) == first:
                joined = np.concatenate([runs[-1][1], piece]).astype(ENTRY_DTYPE)
                runs[-1] = (runs[-1][0], joined)
            else:
                runs.append((first, piece))
    return runs


def _entries(store: StoreSnapshot, rows: Rows) -> EntryArray:
    entries = np.zeros(len(rows.offset), ENTRY_DTYPE)
    entries["physical"] = rows.physical
    entries["size"] = rows.size
    codes = rows.tags_code
    if codes is None:  # records without an entry in the store
        codes = np.array([_tags_code(store, at) for at in rows.physical.tolist()], np.int64)
    entries["tags_code"] = codes
    return entries


def _tags_code(store: StoreSnapshot, physical: int) -> int:
    segment = store.log.find(physical)
    assert segment is not None, "the record was found there"
    try:
        record = decode(segment.view, physical - segment.base, check_crc=False)
    except RecordError:
        return 0
    return tag_hash(record.properties.get(TAGS) or "")


class QueueChunk:
    """A chunk as a segment of its queue, in bytes as the files of a consume queue."""

    def __init__(self, fetched: FetchedChunks, name: str, chunk: Chunk) -> None:
        self.base = chunk.first * ENTRY_DTYPE.itemsize
        self.size = chunk.entries * ENTRY_DTYPE.itemsize
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
        return np.frombuffer(self._fetched.content(self), np.uint8)

    @property
    def view(self) -> memoryview:
        """The entries as a memoryview."""
        return self.bytes.data


class FetchedChunks:
    """Reads chunks, and keeps those used last: 40 MiB at most."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self._recent: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._files: OrderedDict[str, Any] = OrderedDict()

    def content(self, part: QueueChunk) -> bytes:
        """Return the entries of a chunk. Raises ArchiveError."""
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
        found = bytes(self.objects.read_range(file, part.name, part.chunk.at, part.size))
        if len(found) != part.size or crc32(found) != part.chunk.crc:
            reason = f"the entries at byte {part.chunk.at} have a wrong checksum"
            raise ObjectDamaged(self.objects.url(part.name), reason)
        self._recent[key] = found
        if len(self._recent) > _KEPT_CHUNKS:
            self._recent.popitem(last=False)
        return found
