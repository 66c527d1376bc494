"""The ends of the queues that a stream reads: the interface of stores and brokers to its reader."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from pyspark.sql.datasource import InputPartition

from pocketmq.store.scan.continuity import Replaced
from pocketmq.store.scan.errors import RecordsLost
from pocketmq.store.scan.stream_offsets import Mark, Position, StreamQueue
from pocketmq.store.store_lock import Recovery

Lose = Callable[[int, RecordsLost], None]
LoseBetween = Callable[[StreamQueue, int, int, str], None]
"""Called with a queue, two offsets between which records are lost, and the reason; may raise."""

Span = tuple[int, int]
"""The first offset to read of a queue, and the offset after the last."""


class QueueEnds(NamedTuple):
    """Queue offsets between which a queue has records.

    Attributes:
        first: of the oldest record.
        offered: after the last record that the stream may read.
        stored: after the last record.
    """

    first: int
    offered: int
    stored: int


class StreamQueues(Protocol):
    """The queues that a stream reads, by the names of their brokers."""

    @property
    def brokers(self) -> Collection[str]:
        """The brokers known to be readable."""

    def where(self, broker: str) -> str:
        """Return the description of a broker for an error."""

    def missing(self, broker: str) -> Exception:
        """Return the error for a broker that was read and is missing now."""

    def check_names(self, lose: Lose) -> None:
        """Raise OptionError for brokers, topics and queues that the options name but that do not
        exist. Call it after `look`."""

    def look(self, expected: Collection[str] = ()) -> dict[StreamQueue, QueueEnds]:
        """Return the requested queues as they are now. Wait for unreachable `expected` brokers."""

    def recovery(self, broker: str) -> Recovery:
        """Return whether the broker is rebuilding its queues now."""

    def stored_from(self, queues: Iterable[StreamQueue], time: int) -> Mapping[StreamQueue, int]:
        """Return for each queue the offset of the first record stored at a time (ms) or later."""

    def log_begins(self, queues: Collection[StreamQueue]) -> Mapping[StreamQueue, int | None]:
        """Return for each queue that the last `look` found the physical offset from which its log
        is complete up to its first record; None if that is unknown."""

    def marks(self, offsets: Mapping[StreamQueue, int]) -> Mapping[StreamQueue, Mark]:
        """Return the known marks of messages before some offsets, or at them if those before have
        expired, for queues that the last `look` found."""

    def replaced(self, read: Mapping[StreamQueue, Position]) -> Mapping[StreamQueue, Replaced]:
        """Return the queues known not to match the marks of positions, and what replaced them. Call
        it after `look`."""

    def partitions(
        self, wanted: Mapping[StreamQueue, Span], lose: LoseBetween
    ) -> Iterator[InputPartition]:
        """Split the ranges to read from queues that the last `look` found."""


def lose_of(broker: str, lose: LoseBetween) -> Lose:
    """Return a function that calls `lose` with the queue of the error."""
    return lambda _, error: lose(
        StreamQueue(error.topic, broker, error.queue_id), error.first, error.last + 1, error.reason
    )
