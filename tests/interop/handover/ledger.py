"""What the brokers of a store have promised: each message that one of them acknowledged."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple

from pocketmq.message.limits import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC


class Kind(enum.Enum):
    """Where a message is stored at first. The values are for reports."""

    PLAIN = "plain"
    BATCH = "batch"
    LEVEL = "delay level"
    TIMER = "timer"
    HALF = "half"


class End(enum.Enum):
    """What was asked for a half message."""

    OPEN = "left open"
    COMMIT = "committed"
    ROLLBACK = "rolled back"


class Place(NamedTuple):
    """Where a message is stored, in the broker's own topics too."""

    topic: str
    queue_id: int
    queue_offset: int


class Sent(NamedTuple):
    """A message that was acknowledged.

    Attributes:
        topic, queue_id: where the producer sent it.
        place, physical_offset: where the broker said that it is stored.
        unique_key: its id, by which deliveries are recognised too.
        due: earliest time of its delivery, Unix ms; 0 when nothing delays it.
        life: number of the life of a broker that acknowledged it.
    """

    kind: Kind
    topic: str
    queue_id: int
    place: Place
    physical_offset: int
    body: bytes
    tag: str
    keys: tuple[str, ...]
    unique_key: str
    due: int
    life: int


def place_of(kind: Kind, topic: str, queue_id: int, queue_offset: int, level: int) -> Place:
    """Return where a message of a kind waits, or is for good."""
    if kind is Kind.LEVEL:
        return Place(SCHEDULE_TOPIC, level - 1, queue_offset)
    if kind is Kind.TIMER:
        return Place(TIMER_TOPIC, 0, queue_offset)
    if kind is Kind.HALF:
        return Place(HALF_TOPIC, 0, queue_offset)
    return Place(topic, queue_id, queue_offset)


@dataclass
class Ledger:
    """Attributes:
    messages: in the order of their acknowledgements.
    ends: unique key of a half message to what was asked for it.
    ended: those whose end was acknowledged, with the life in which it was.
    """

    messages: list[Sent] = field(default_factory=list)
    ends: dict[str, End] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
