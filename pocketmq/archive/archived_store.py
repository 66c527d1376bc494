"""The archive of one broker, for planning.

Planning needs no entries: the directories give the positions of the chunks of each queue, and
within a chunk all records are assumed to have the same size. So partitions are cut at about the
right places of the log.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import numpy as np

from pocketmq.archive.archive_files import ArchiveFiles, Chunks, PlacedChunk
from pocketmq.archive.errors import NoArchive, ObjectDamaged
from pocketmq.archive.location import Location
from pocketmq.archive.manifest import Manifest, read_manifest
from pocketmq.archive.objects import Objects
from pocketmq.archive.parts import Part
from pocketmq.archive.queue_index import Directory, decode_directory
from pocketmq.message.checksum import crc32
from pocketmq.message.record_layout import HEAD_SIZE
from pocketmq.store.encoding.entry_array import EntryArray
from pocketmq.store.scan.continuity import KnownQueue, Replaced, compare, missing
from pocketmq.store.scan.queues.queue_listing import EVERY_QUEUE, QueueChoice
from pocketmq.store.scan.queues.queue_slice import (
    FILLER_SIZE,
    NO_TAIL,
    QueueSlice,
    Tail,
    entries_of,
)
from pocketmq.store.scan.queues.queue_snapshot import place_in
from pocketmq.store.scan.queues.segments import Segments, Unreadable
from pocketmq.store.scan.scanned_store import ScannedQueue
from pocketmq.store.scan.stream_offsets import Mark

log = logging.getLogger(__name__)

_READS: Final = 8
_LOST_SINCE: Final = (
    "%s: left out the archived messages %d to %d of %s/%d, which the store has lost since: newer "
    "messages have their offsets"
)
_BEGUN_AGAIN: Final = (
    "%s: the archived messages %d to %d of %s/%d are not read: the queue began again after them, "
    "as when its topic is deleted and created again, or a repair finds that it has lost all of them"
)


class TakenOffsets(NamedTuple):
    """Queue offsets of archived messages that newer messages have as well: a repair found that the
    store had lost them.

    Attributes:
        is_all: whether the queue kept none of its messages. Its topic may also have been deleted
            and created again.
    """

    topic: str
    queue_id: int
    first: int
    last: int
    is_all: bool


class ArchivedQueue:
    """One queue of an archive."""

    tail: Tail = NO_TAIL

    def __init__(self, topic: str, queue_id: int, chunks: tuple[PlacedChunk, ...]) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.chunks = chunks
        self._firsts = [placed.chunk.first for placed in chunks]
        self.min_offset = chunks[0].chunk.first
        self.known_end = chunks[-1].stop

    @property
    def max_offset(self) -> int:
        """The offset after the last record."""
        return self.known_end

    def entry(self, offset: int) -> tuple[int, int]:
        """Estimate the physical offset and size of the record at a queue offset."""
        at = max(bisect_right(self._firsts, offset) - 1, 0)
        part, chunk, _ = self.chunks[at]
        end = part.end
        if at + 1 < len(self.chunks) and self.chunks[at + 1].part is part:
            end = self.chunks[at + 1].chunk.physical
        share = min(offset - chunk.first, chunk.entries) / chunk.entries
        size = max(chunk.bytes // chunk.entries, 1)
        return chunk.physical + int((end - chunk.physical) * share), size

    def entries(self, start: int, stop: int) -> EntryArray | None:
        """Return None: the entries are not in memory."""
        return None

    def after_fillers(self, offset: int) -> int:
        """Return the lowest offset ≥ `offset` that a chunk has, or `known_end`."""
        at = bisect_right(self._firsts, offset) - 1
        if at >= 0 and offset < self.chunks[at].stop:
            return offset
        return self._firsts[at + 1] if at + 1 < len(self._firsts) else self.known_end

    def chunk_of(self, offset: int) -> PlacedChunk | None:
        """Return the chunk that has a queue offset."""
        at = bisect_right(self._firsts, offset) - 1
        return self.chunks[at] if at >= 0 and offset < self.chunks[at].stop else None

    def max_physical(self) -> int:
        """Return a physical offset after the record of the last entry."""
        return self.chunks[-1].part.end

    def slice(self) -> QueueSlice:
        """Return all its records."""
        return QueueSlice(
            self.topic, self.queue_id, self.min_offset, self.max_offset, self.known_end, NO_TAIL
        )


class ArchivedQueues:
    """The queues of an archive, by topic and queue id."""

    def __init__(self, names: Iterable[tuple[str, int]]) -> None:
        self._names = sorted(names)
        self._ids: dict[str, set[int]] = {}
        for topic, queue_id in self._names:
            self._ids.setdefault(topic, set()).add(queue_id)

    def ids(self, topic: str) -> set[int]:
        """Return the ids of the queues of a topic."""
        return self._ids.get(topic, set())

    def topics(self) -> set[str]:
        """Return the topics that have queues."""
        return set(self._ids)

    def __contains__(self, queue: tuple[str, int]) -> bool:
        topic, queue_id = queue
        return queue_id in self.ids(topic)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self._names)


class ArchivedStore:
    """An archive, as of one version of its manifest.

    Attributes:
        begin, end: physical offsets of the archived part of the log.
    """

    def __init__(
        self, files: ArchiveFiles, chunks: Chunks, manifest: Manifest, choice: QueueChoice
    ) -> None:
        self.files = files
        self.begin = manifest.parts[0].begin if manifest.parts else 0
        self.end = manifest.end
        ends = {part.end for part in manifest.parts}
        self._runs = [part.begin for part in manifest.parts if part.begin not in ends]
        self.configured = manifest.topics
        self._created = manifest.created
        self.listing = ArchivedQueues(chunks)
        self._queues = {
            name: ArchivedQueue(*name, chunks[name])
            for name in self.listing
            if choice.topic(name[0]) and choice.queue(*name)
        }

    @property
    def queues(self) -> Mapping[tuple[str, int], ArchivedQueue]:
        """The requested queues."""
        return self._queues

    @property
    def broker_name(self) -> str:
        """The name of the broker."""
        return self.files.broker_name

    def first_stored_from(self, queue: ScannedQueue, timestamp: int) -> int:
        """Return the queue offset of the first record stored at `timestamp` (ms) or later.

        Raises:
            ArchiveError: the necessary objects cannot be read.
        """
        found = self._queues[queue.topic, queue.queue_id]
        at = bisect_left(found.chunks, timestamp, key=lambda placed: placed.chunk.stored)
        if at == 0:
            return found.min_offset
        before = found.chunks[at - 1]
        files = self.files.needed_for([found.slice().cut(before.chunk.first, before.stop)])
        (segment,) = files.queue(found.topic, found.queue_id).all
        entries = entries_of(segment)
        parts = files.log(found.topic, found.queue_id)
        offset = bisect_left(
            range(len(entries)), True, key=lambda row: _is_from(parts, entries[row], timestamp)
        )
        return found.after_fillers(before.chunk.first + offset)

    def log_begin(self, queue: ScannedQueue) -> int:
        """Return the physical offset from which the archive has no gap up to the first record of a
        queue."""
        first = self._queues[queue.topic, queue.queue_id].chunks[0].part
        return self._runs[bisect_right(self._runs, first.begin) - 1]

    def mark(self, queue: ScannedQueue, offset: int) -> Mark | None:
        """Return the mark of the first record of a chunk, before or at a queue offset. Reads
        nothing."""
        known = self._queues[queue.topic, queue.queue_id]
        placed = known.chunk_of(offset - 1)
        if placed is None and offset == known.min_offset:
            placed = known.chunk_of(offset)
        if placed is None or not placed.chunk.stored:
            return None
        return Mark(placed.chunk.first, placed.chunk.physical, placed.chunk.stored)

    def replaced(self, topic: str, queue_id: int, offset: int, mark: Mark) -> Replaced | None:
        """Return what replaced the queue that was read up to an offset, with a mark; None if it is
        the same queue, or if that is unknown."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return missing(mark, self.begin) if mark.physical < self.end else None
        first, created = queue.chunks[0].chunk, self._created.get(topic, 0)
        found, placed = None, queue.chunk_of(mark.offset)
        if placed is not None:
            chunk = placed.chunk
            # The mark is that of all positions in the chunk.
            if placed.cut is not None and offset > placed.cut:
                reason = f"it was read up to {offset}, but has newer messages from {placed.cut} on"
                return Replaced(reason, True, placed.cut)
            found = Mark(chunk.first, chunk.physical, chunk.stored)
            if chunk.first != mark.offset and chunk.physical <= mark.physical < placed.part.end:
                found = mark
        return compare(
            offset,
            mark,
            KnownQueue(
                queue.min_offset,
                queue.max_offset,
                Mark(first.first, first.physical, first.stored),
                found,
                created if first.physical >= created else 0,
            ),
        )


def _is_from(parts: Segments, entry: EntryArray, timestamp: int) -> bool:
    """Return whether the record of an entry was stored at `timestamp` or later."""
    if entry["size"] == FILLER_SIZE:
        return False
    physical = np.array([entry["physical"]], np.int64)
    unread = parts.source.fetch(physical, np.array([HEAD_SIZE], np.int64))
    if unread is not None:
        raise unread.error
    place = place_in(parts, int(physical[0]))
    return place is None or place.store_timestamp >= timestamp


class ArchivedBroker:
    """The archive of one broker. Each look reads the manifest and the new directories.

    Attributes:
        name: of the broker, as of the last look.
        shown: the URL, without what may be secret.
    """

    def __init__(self, location: Location, folder: str = "") -> None:
        self._location = location
        self._folder = folder
        self.shown = f"{location.shown}/{folder}" if folder else location.shown
        self._directories: dict[str, Directory] = {}
        self._told: set[TakenOffsets] = set()
        self.name = ""

    def look(
        self,
        choose: Callable[[str], QueueChoice] = lambda _: EVERY_QUEUE,
        lose: Callable[[Unreadable], None] | None = None,
    ) -> ArchivedStore:
        """Return the archive as it is now.

        Args:
            choose: returns the wanted queues, by broker name.
            lose: called with the error of each part whose directory cannot be read; the part is
                skipped. If None, the error is raised.

        Raises:
            NoArchive: it does not exist.
            ArchiveError: it cannot be read.
        """
        objects = self._location.open()
        if self._folder:
            objects = objects.under(self._folder)
        manifest = read_manifest(objects)
        if manifest is None:
            raise NoArchive(objects.shown)
        self.name = manifest.broker_name
        self._read_directories(objects, manifest.parts, lose)
        chunks, taken = _placed(manifest.parts, self._directories, manifest.created)
        self._tell(taken)
        files = ArchiveFiles(
            self._location, self._folder, manifest.broker_name, manifest.parts, chunks
        )
        return ArchivedStore(files, chunks, manifest, choose(manifest.broker_name))

    def _tell(self, taken: Iterable[TakenOffsets]) -> None:
        for each in taken:
            if each not in self._told:
                self._told.add(each)
                text = _BEGUN_AGAIN if each.is_all else _LOST_SINCE
                log.warning(text, self.shown, each.first, each.last, each.topic, each.queue_id)

    def _read_directories(
        self,
        objects: Objects,
        parts: Iterable[Part],
        lose: Callable[[Unreadable], None] | None,
    ) -> None:
        known, self._directories = self._directories, {}

        def read(part: Part) -> Directory | Unreadable:
            if part.queues.name in known:
                return known[part.queues.name]
            try:
                return _read_directory(objects, part)
            except Unreadable as error:
                return error

        parts = tuple(parts)
        with ThreadPoolExecutor(_READS, "directories") as reads:
            for part, found in zip(parts, reads.map(read, parts), strict=True):
                if not isinstance(found, Unreadable):
                    self._directories[part.queues.name] = found
                elif lose is None:
                    raise found
                else:
                    lose(found)


def _read_directory(objects: Objects, part: Part) -> Directory:
    stored = part.queues
    url = objects.url(stored.name)
    with objects.opened(stored.name) as file:
        size = objects.size_of(file, stored.name)
        if size != stored.size:
            raise ObjectDamaged(url, f"it has {size} bytes; {stored.size} were uploaded")
        content = file.read_at(stored.size - part.directory_at, part.directory_at)
    if crc32(content) != part.directory_crc:
        raise ObjectDamaged(url, "its directory has a wrong checksum")
    try:
        return decode_directory(content, part.directory_at)
    except ValueError as error:
        raise ObjectDamaged(url, f"its directory cannot be read: {error}") from None


def _placed(
    parts: Iterable[Part], directories: Mapping[str, Directory], created: Mapping[str, int]
) -> tuple[Chunks, list[TakenOffsets]]:
    """Return the chunks of all queues, in order, and which offsets were given twice.

    A queue that was recreated after its topic was deleted has only the chunks since then: the
    first of them begins at 0, unless parts of the log are missing before it. A queue that lost its
    last messages, as a repair has found, goes on with the same offsets; it keeps what is before.
    """
    found: dict[tuple[str, int], list[PlacedChunk]] = {}
    taken = []
    end = gap = 0
    for part in parts:
        gap = part.begin if part.begin != end else gap
        end = part.end
        for topic, queues in directories.get(part.queues.name, {}).items():
            born = created.get(topic, 0)
            for queue_id, chunks in queues.items():
                placed = found.setdefault((topic, queue_id), [])
                for chunk in chunks:
                    is_new = bool(placed) and placed[-1].chunk.physical < born <= chunk.physical
                    if placed and (is_new or chunk.first < placed[-1].stop):
                        is_all = is_new or placed[-1].part.end <= gap or not chunk.first
                        first = placed[0].chunk.first if is_all else chunk.first
                        last = placed[-1].stop - 1
                        taken.append(TakenOffsets(topic, queue_id, first, last, is_all))
                        if is_all:
                            placed.clear()
                        while placed and placed[-1].chunk.first >= chunk.first:
                            placed.pop()
                        if placed and placed[-1].stop > chunk.first:
                            placed[-1] = placed[-1]._replace(cut=chunk.first)
                    placed.append(PlacedChunk(part, chunk))
    return {name: tuple(placed) for name, placed in found.items()}, taken
