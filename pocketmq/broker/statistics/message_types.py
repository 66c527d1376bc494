"""The messages of a topic by type and size, for the metrics of the broker.

Nearly all messages are normal and small, and counting each of them twice would slow the hot path.
So only the others are counted here; the number of small normal messages is the total of the topic's
`Traffic` less these. Types and bounds are those of RocketMQ 5.3.3 (BrokerMetricsManager).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from pocketmq.message import properties as names

NORMAL: Final = "normal"
FIFO: Final = "fifo"
DELAY: Final = "delay"
TRANSACTION: Final = "transaction"

#: Bytes of a record, the upper bounds of rocketmq_message_size.
SIZE_BOUNDS: Final = (1024, 4096, 524_288, 1_048_576, 2_097_152, 4_194_304)
SMALL, LARGE = SIZE_BOUNDS[:2]

_DELAYS: Final = (
    names.DELAY,
    names.TIMER_DELIVER_MS,
    names.TIMER_DELAY_SEC,
    names.TIMER_DELAY_MS,
)


class TypeCounts(NamedTuple):
    """The messages of one type: their number, their bytes, and the number in each size bucket."""

    kind: str
    messages: int
    size: int
    buckets: tuple[int, ...]


class _Counts:
    __slots__ = ("large", "messages", "size")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0
        self.large = _no_large()


class MessageTypes:
    """The messages of one topic that are not normal, or not small.

    Attributes:
        large: normal messages of more than `SMALL` bytes, by `large_bucket`. The hot path counts
            them itself: a function call would cost it 5 %.
    """

    __slots__ = ("_special", "large")

    def __init__(self) -> None:
        self.large = _no_large()
        self._special: dict[str, _Counts] = {}

    def add(self, kind: str, size: int) -> None:
        """Count a message of any type and size."""
        large = self.large
        if kind != NORMAL:
            counts = self._special.get(kind)
            if counts is None:
                counts = self._special[kind] = _Counts()
            counts.messages += 1
            counts.size += size
            large = counts.large
        if size > SMALL:
            large[large_bucket(size)] += 1

    def add_normal(self, sizes: Iterable[int]) -> None:
        """Count normal messages of these sizes."""
        for size in sizes:
            if size > SMALL:
                self.large[large_bucket(size)] += 1

    def split(self, messages: int, size: int) -> Iterator[TypeCounts]:
        """Divide all messages of the topic, and their bytes, by type."""
        for kind, counts in list(self._special.items()):
            messages -= counts.messages
            size -= counts.size
            yield _type_counts(kind, counts.messages, counts.size, counts.large)
        if messages > 0:
            yield _type_counts(NORMAL, messages, size, self.large)


def large_bucket(size: int) -> int:
    """Return the bucket of a message of more than `SMALL` bytes; 0 is the first above `SMALL`."""
    return 0 if size <= LARGE else bisect_left(SIZE_BOUNDS, size) - 1


def _no_large() -> list[int]:
    return [0] * len(SIZE_BOUNDS)


def _type_counts(kind: str, messages: int, size: int, large: list[int]) -> TypeCounts:
    return TypeCounts(kind, messages, size, (messages - sum(large), *large))


def message_type(properties: Mapping[str, str]) -> str:
    """Return the type of a message with these properties."""
    if properties.get(names.TRAN_MSG, "").lower() == "true":
        return TRANSACTION
    if names.SHARDING_KEY in properties:
        return FIFO
    return DELAY if any(name in properties for name in _DELAYS) else NORMAL
