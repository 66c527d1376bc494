"""How the messages of a topic divide by type and size, for the metrics of the broker.

Nearly all messages are normal and small, and counting each of them again would cost the hot path.
So only the others are counted here; the small normal ones are what the topic's `Traffic` has beyond
them. Types and borders are those of RocketMQ 5.3.3 (BrokerMetricsManager).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from pocketmq.message import properties as names

NORMAL: Final = "normal"
FIFO: Final = "fifo"
DELAY: Final = "delay"
TRANSACTION: Final = "transaction"

#: Bytes of a record, the upper borders of rocketmq_message_size.
SIZE_BOUNDS: Final = (1024, 4096, 524_288, 1_048_576, 2_097_152, 4_194_304)
SMALL: Final = SIZE_BOUNDS[0]

_DELAYS: Final = (
    names.DELAY,
    names.TIMER_DELIVER_MS,
    names.TIMER_DELAY_SEC,
    names.TIMER_DELAY_MS,
)


class TypeCounts(NamedTuple):
    """The messages of one type: how many, their bytes, and how many in each bucket of sizes."""

    kind: str
    messages: int
    size: int
    buckets: tuple[int, ...]


class _Counts:
    __slots__ = ("large", "messages", "size")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0
        self.large = [0] * len(SIZE_BOUNDS)  # by bucket, without the first one


class MessageTypes:
    """The messages of one topic that are not normal, or not small."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, _Counts] = {}

    def add(self, kind: str, size: int) -> None:
        """Count a message. A normal one of at most `SMALL` bytes need not be counted."""
        counts = self._counts.get(kind)
        if counts is None:
            counts = self._counts[kind] = _Counts()
        counts.messages += 1
        counts.size += size
        if size > SMALL:
            counts.large[bisect_left(SIZE_BOUNDS, size) - 1] += 1

    def split(self, messages: int, size: int) -> Iterator[TypeCounts]:
        """Divide all messages of the topic, and their bytes, by type."""
        for kind, counts in list(self._counts.items()):
            if kind != NORMAL:
                messages -= counts.messages
                size -= counts.size
                yield _type_counts(kind, counts.messages, counts.size, counts.large)
        if messages > 0:
            normal = self._counts.get(NORMAL)
            yield _type_counts(NORMAL, messages, size, normal.large if normal is not None else ())


def _type_counts(
    kind: str, messages: int, size: int, large: list[int] | tuple[int, ...]
) -> TypeCounts:
    buckets = tuple(large) or (0,) * len(SIZE_BOUNDS)
    return TypeCounts(kind, messages, size, (messages - sum(buckets), *buckets))


def message_type(properties: Mapping[str, str]) -> str:
    """Return the type that a message with these properties counts as."""
    if properties.get(names.TRAN_MSG, "").lower() == "true":
        return TRANSACTION
    if names.SHARDING_KEY in properties:
        return FIFO
    return DELAY if any(name in properties for name in _DELAYS) else NORMAL
