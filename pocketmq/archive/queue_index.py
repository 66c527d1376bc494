"""The queue entries of one part of a log, as one object.

First the entries, queue by queue, 20 bytes each as in a consume queue; then the directory with the
positions of each queue's entries. The entries are in chunks with a checksum each, so that a reader
fetches and checks only the chunks that it needs. The directory is JSON: topic → queue id → rows of
`Chunk`.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

import numpy as np

from pocketmq.archive.queue_chunks import Chunk
from pocketmq.message import properties as names
from pocketmq.message.checksum import crc32
from pocketmq.message.record_layout import RecordError, decode_parts
from pocketmq.message.tags import tag_hash
from pocketmq.store.encoding.entry_array import ENTRY_DTYPE, EntryArray
from pocketmq.store.scan.planning.snapshot import StoreSnapshot
from pocketmq.store.scan.queues.queue_slice import FILLER_SIZE, Rows
from pocketmq.store.scan.queues.queue_snapshot import QueueSnapshot

ENTRIES: Final = 16_384
"""The most entries in a chunk: 320 KiB."""
_WHOLE_NUMBERS: Final = {int}
_MOST: Final = 2**63 // ENTRY_DTYPE.itemsize
"""The largest number in a chunk: a queue offset whose byte offset fits in a signed 64-bit
integer."""
_QUEUE_ID_DIGITS: Final = 10


Directory = dict[str, dict[int, list[Chunk]]]


class QueueIndex(NamedTuple):
    """An object as it is uploaded. `directory_at` is the byte where its directory begins."""

    content: bytes
    directory_at: int
    messages: int


def decode_directory(content: bytes, directory_at: int) -> Directory:
    """Return a directory, which follows `directory_at` bytes of entries. Raises ValueError."""
    try:
        return {
            topic: {
                _queue_id(queue_id): [_chunk(row, directory_at) for row in rows]
                for queue_id, rows in queues.items()
            }
            for topic, queues in json.loads(content).items()
        }
    except (TypeError, AttributeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _queue_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _QUEUE_ID_DIGITS):
        raise ValueError(f"{text[:40]!r} is not a queue id")
    return int(text)


def _chunk(row: list[int], directory_at: int) -> Chunk:
    if set(map(type, row)) != _WHOLE_NUMBERS:
        raise ValueError("a chunk has something else than whole numbers")
    chunk = Chunk(*row)
    if min(row) < 0 or max(row) > _MOST:
        raise ValueError(f"a chunk has a number that is below 0 or above {_MOST}: {row}")
    end = chunk.at + chunk.entries * ENTRY_DTYPE.itemsize
    if not 1 <= chunk.entries <= ENTRIES or end > directory_at:
        raise ValueError(
            f"a chunk has {chunk.entries} entries from byte {chunk.at} on; there are "
            f"{directory_at} bytes, and a chunk has 1 to {ENTRIES} entries"
        )
    return chunk


def build(store: StoreSnapshot, begin: int, end: int) -> QueueIndex:
    """Return the entries of all queues whose records are at physical offsets [begin, end)."""
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
    content += json.dumps(directory, ensure_ascii=False, separators=(",", ":")).encode()
    return QueueIndex(bytes(content), directory_at, messages)


def _runs(
    store: StoreSnapshot, queue: QueueSnapshot, begin: int, end: int
) -> list[tuple[int, EntryArray]]:
    """Return the consecutive entries of a queue, each run with the queue offset of its first."""
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
        *_, properties = decode_parts(segment.view, physical - segment.base, check_crc=False)
    except RecordError:
        return 0
    return tag_hash(names.decode(properties).get(names.TAGS) or "")
