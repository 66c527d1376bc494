"""Where a stream stands: a queue offset for each queue of each broker.

Spark keeps offsets as JSON in its checkpoint, and an export in the commits of its table:
`{"orders":{"broker-a":{"0":23}}}`, the next offset to read by topic, broker name and queue id.
Brokers go by their names and not by the paths of their stores, because a store can move between two
runs. Spark compares offsets as text, so the same offsets always make the same text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class StreamQueue(NamedTuple):
    """A queue of one broker."""

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker}/{self.queue_id}"


Offsets = dict[StreamQueue, int]


class OffsetsError(ValueError):
    """Offsets in a checkpoint that this source did not write."""


def to_json(offsets: Mapping[StreamQueue, int]) -> dict[str, dict[str, dict[str, int]]]:
    """Return offsets as they go into the checkpoint, in order."""
    nested: dict[str, dict[str, dict[str, int]]] = {}
    for queue, offset in sorted(offsets.items()):
        brokers = nested.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker, {})[str(queue.queue_id)] = offset
    return nested


def from_json(nested: Any) -> Offsets:
    """Return what `to_json` was given. Raises OffsetsError."""
    try:
        offsets = {
            StreamQueue(topic, broker, int(queue_id)): offset
            for topic, brokers in nested.items()
            for broker, queues in brokers.items()
            for queue_id, offset in queues.items()
        }
    except (AttributeError, TypeError, ValueError):
        offsets = None
    if offsets is None or not all(
        type(offset) is int and offset >= 0 for offset in offsets.values()
    ):
        raise OffsetsError(
            f"the checkpoint has the offsets {nested!r}; need a number by topic, broker and queue, "
            'such as {"orders":{"broker-a":{"0":23}}}. Is the checkpoint that of another source?'
        )
    return offsets
