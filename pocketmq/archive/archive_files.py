"""The archive of one broker as the source of a scan's bytes. Small, and can be pickled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from pocketmq.archive.location import Location
from pocketmq.archive.objects import Objects
from pocketmq.archive.parts import Part
from pocketmq.archive.queue_chunks import Chunk, FetchedChunks, QueueChunk
from pocketmq.archive.sparse_log import log_of
from pocketmq.store.scan.queues.queue_slice import QueueSlice
from pocketmq.store.scan.queues.segments import Segments


class PlacedChunk(NamedTuple):
    """A chunk, and the part that it belongs to.

    Attributes:
        cut: the queue offset from which newer messages have the offsets of its last ones; None if
            none has.
    """

    part: Part
    chunk: Chunk
    cut: int | None = None

    @property
    def stop(self) -> int:
        """The queue offset after its last entry that is read."""
        return self.chunk.first + self.chunk.entries if self.cut is None else self.cut


Chunks = Mapping[tuple[str, int], tuple[PlacedChunk, ...]]


class ArchiveFiles:
    """The parts of the log and the chunks of queues that some slices of an archive need.

    Args:
        location: where archives lie.
        folder: the broker's folder there; empty if `location` is that folder.
    """

    has_log_per_queue: ClassVar[bool] = False

    def __init__(
        self,
        location: Location,
        folder: str,
        broker_name: str,
        parts: tuple[Part, ...],
        chunks: Chunks,
    ) -> None:
        self._location = location
        self._folder = folder
        self._broker_name = broker_name
        self._parts = parts
        self._chunks = chunks

    @property
    def broker_name(self) -> str:
        """The name of the broker."""
        return self._broker_name

    def log(self, topic: str, queue_id: int) -> Segments:
        """Return the parts of the log."""
        return log_of(self._opened[0], self._parts)

    def queue(self, topic: str, queue_id: int) -> Segments:
        """Return the chunks of a queue."""
        objects, fetched = self._opened
        chunks = self._chunks.get((topic, queue_id), ())
        return Segments(
            objects.url("queues"),
            [
                QueueChunk(fetched, placed.part.queues.name, placed.chunk, placed.stop)
                for placed in chunks
            ],
        )

    def check_visible(self) -> None:
        """Do nothing: an unreachable archive raises when it is read."""

    def recovery(self) -> None:
        """Return None: archived objects do not change."""

    def needed_for(self, slices: Iterable[QueueSlice]) -> ArchiveFiles:
        """Return the subset that the readers of these slices need."""
        chunks: dict[tuple[str, int], tuple[PlacedChunk, ...]] = {}
        for part in slices:
            key = part.topic, part.queue_id
            needed = (
                placed
                for placed in self._chunks.get(key, ())
                if placed.chunk.first < part.stop and part.start < placed.stop
            )
            chunks[key] = tuple(dict.fromkeys((*chunks.get(key, ()), *needed)))
        names = {placed.part.log.name for each in chunks.values() for placed in each}
        parts = tuple(part for part in self._parts if part.log.name in names)
        return ArchiveFiles(self._location, self._folder, self._broker_name, parts, chunks)

    def __str__(self) -> str:
        return f"{self._location}/{self._folder}" if self._folder else str(self._location)

    def __reduce__(self) -> tuple[Any, ...]:  # without the connections
        parts = self._location, self._folder, self._broker_name, self._parts, self._chunks
        return ArchiveFiles, parts

    @cached_property
    def _opened(self) -> tuple[Objects, FetchedChunks]:
        objects = self._location.open()
        objects = objects.under(self._folder) if self._folder else objects
        return objects, FetchedChunks(objects)
