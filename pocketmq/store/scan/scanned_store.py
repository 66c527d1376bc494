"""The interface of a scanned store: a snapshot of its files, or the manifest of an archive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from pocketmq.store.encoding.entry_array import EntryArray
from pocketmq.store.scan.continuity import Replaced
from pocketmq.store.scan.queues.queue_slice import QueueSlice, Tail
from pocketmq.store.scan.store_files import StoreFiles
from pocketmq.store.scan.stream_offsets import Mark


class QueueBounds(Protocol):
    """A queue with records from `min_offset` up to (not including) `max_offset`."""

    @property
    def topic(self) -> str: ...

    @property
    def queue_id(self) -> int: ...

    @property
    def min_offset(self) -> int: ...

    @property
    def max_offset(self) -> int: ...


class ScannedQueue(QueueBounds, Protocol):
    """One queue. Its records are those of the entries [min_offset, known_end), then the tail."""

    @property
    def known_end(self) -> int: ...

    @property
    def tail(self) -> Tail: ...

    def entry(self, offset: int) -> tuple[int, int]:
        """Return about the physical offset and size that an entry has."""

    def entries(self, start: int, stop: int) -> EntryArray | None:
        """Return the entries of [start, stop) if they are in memory."""

    def after_fillers(self, offset: int) -> int:
        """Return the lowest offset ≥ `offset` whose entry stands for a record, or `known_end`."""

    def max_physical(self) -> int:
        """Return the physical offset after the record of the last entry; -1 without entries."""

    def slice(self) -> QueueSlice:
        """Return all of its records."""


class Queues(Protocol):
    """The existing queues, by topic and queue id."""

    def ids(self, topic: str) -> set[int]:
        """Return the ids of the queues of a topic."""

    def topics(self) -> set[str]:
        """Return the topics that have queues."""

    def __contains__(self, queue: tuple[str, int]) -> bool: ...

    def __iter__(self) -> Iterator[tuple[str, int]]: ...


class ScannedStore(Protocol):
    """A store as it was at one moment.

    Attributes:
        queues: those that were asked for, by topic and queue id.
        listing: all queues.
        configured: how many queues the broker has of each topic.
    """

    @property
    def files(self) -> StoreFiles: ...

    @property
    def broker_name(self) -> str: ...

    @property
    def queues(self) -> Mapping[tuple[str, int], ScannedQueue]: ...

    @property
    def listing(self) -> Queues: ...

    @property
    def configured(self) -> dict[str, int]: ...

    def first_stored_from(self, queue: ScannedQueue, timestamp: int) -> int:
        """Return the queue offset of the first record stored at `timestamp` (ms) or later."""

    def log_begin(self, queue: ScannedQueue) -> int | None:
        """Return the physical offset from which the log is complete up to the first record of a
        queue; None if that is unknown."""

    def mark(self, queue: ScannedQueue, offset: int) -> Mark | None:
        """Return the mark of a record before a queue offset, or at it where those before have
        expired; None if none is known."""

    def replaced(self, topic: str, queue_id: int, offset: int, mark: Mark) -> Replaced | None:
        """Return what has replaced the queue that a mark was taken of; None if it is the same
        queue, or if this store cannot tell."""
