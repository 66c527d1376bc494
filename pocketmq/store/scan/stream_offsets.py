"""The position of a stream or an export, for each queue of each broker.

Spark keeps positions as JSON in its checkpoint, and an export in the commits of its table:
`{"orders":{"broker-a":{"0":[23,22,81920,1764230400000]}}}`. By topic, broker name and queue id it
has the next offset to read, and then the mark of a message before it: its queue offset, its
physical offset, and when it was stored (ms). The mark tells whether a queue is still the one that
was read: offsets alone are the same again in a topic that was deleted and created again. A position
may also be the offset alone, as before the first message of a queue.

Brokers are identified by their names, not by the paths of their stores, because a store can move
between two runs. Spark compares positions as text, so the same positions always make the same text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias


class StreamQueue(NamedTuple):
    """A queue of one broker."""

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker}/{self.queue_id}"


class Mark(NamedTuple):
    """Which message a queue had at a queue offset; or that it had none before it.

    Attributes:
        offset: in the queue.
        physical: physical offset.
        stored: when the broker stored it, in ms; 0 if the queue had no message before `offset`, as
            all had expired.
    """

    offset: int
    physical: int
    stored: int


class Position(NamedTuple):
    """How far a queue was read.

    Attributes:
        offset: the next one to read.
        mark: of a message before it, or of the one at it where those before have expired, or that
            there is neither; None if none is known.
    """

    offset: int
    mark: Mark | None = None


Offsets = dict[StreamQueue, int]
Positions = dict[StreamQueue, Position]
Nested: TypeAlias = "dict[str, dict[str, dict[str, int | list[int]]]]"
"""Positions by topic, broker and queue id, as JSON has them."""

_NUMBERS: Final = 1 + len(Mark._fields)


class OffsetsError(ValueError):
    """Offsets in a checkpoint that this source did not write."""


def to_json(positions: Mapping[StreamQueue, Position]) -> Nested:
    """Return positions as they go into the checkpoint, in order."""
    nested: Nested = {}
    for queue, (offset, mark) in sorted(positions.items()):
        brokers = nested.setdefault(queue.topic, {})
        value = offset if mark is None else [offset, *mark]
        brokers.setdefault(queue.broker, {})[str(queue.queue_id)] = value
    return nested


def from_json(nested: Any) -> Positions:
    """Return what `to_json` was given. Raises OffsetsError."""
    try:
        return {
            StreamQueue(topic, broker, int(queue_id)): _position(value)
            for topic, brokers in nested.items()
            for broker, queues in brokers.items()
            for queue_id, value in queues.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise OffsetsError(
            f"the checkpoint has the offsets {nested!r}; need a number by topic, broker and queue, "
            'such as {"orders":{"broker-a":{"0":23}}}, or the list of numbers that this source '
            "writes. Does the checkpoint belong to another source?"
        ) from None


def offsets_of(nested: Any) -> Offsets:
    """Return the offsets to read next of what `to_json` returned. Raises OffsetsError."""
    return {queue: position.offset for queue, position in from_json(nested).items()}


def _position(value: Any) -> Position:
    """Return a position. Raises ValueError, TypeError."""
    numbers = value if isinstance(value, list | tuple) else [value]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(value)
    if len(numbers) == 1 and numbers[0] is value:
        return Position(value)
    if len(numbers) != _NUMBERS or numbers[1] > numbers[0]:
        raise ValueError(value)
    return Position(numbers[0], Mark(*numbers[1:]))
