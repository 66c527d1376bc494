"""The origin of popped messages: three texts in the answer to a pop.

- startOffsetInfo, `kind queue offset` for each queue: where the pop began to read it;
- msgOffsetInfo, `kind queue o1,o2,...`: the queue offsets of the messages, in the body's order;
- orderCountInfo, `kind queue count`, and before it `kind qoQUEUE%OFFSET count` for single
  messages: how often messages of an ordered pop were delivered before.

Entries are joined by `;`. Clients build receipt handles from them. Reference: ExtraInfoUtil.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pocketmq.message.retry_topic import TopicKind

_OFFSET_MARK: Final = "qo"
_KINDS: Final = {str(int(kind)): kind for kind in TopicKind}


class PopOffsetsError(ValueError):
    """One of the texts cannot be read."""


class QueueKey(NamedTuple):
    """A queue of the popped topic, or of its retry topic."""

    kind: TopicKind
    queue_id: int


class OrderCounts(NamedTuple):
    """How often messages were delivered before: the minimum by queue, and by message."""

    queues: dict[QueueKey, int]
    messages: dict[tuple[TopicKind, int, int], int]


def start_offset_entry(kind: TopicKind, queue_id: int, offset: int) -> str:
    """Return an entry of startOffsetInfo."""
    return f"{kind:d} {queue_id} {offset}"


def message_offset_entry(kind: TopicKind, queue_id: int, offsets: Sequence[int]) -> str:
    """Return an entry of msgOffsetInfo."""
    return f"{kind:d} {queue_id} {','.join(map(str, offsets))}"


def queue_count_entry(kind: TopicKind, queue_id: int, count: int) -> str:
    """Return an entry of orderCountInfo for a queue."""
    return f"{kind:d} {queue_id} {count}"


def message_count_entry(kind: TopicKind, queue_id: int, offset: int, count: int) -> str:
    """Return an entry of orderCountInfo for a message."""
    return f"{kind:d} {_OFFSET_MARK}{queue_id}%{offset} {count}"


def parse_start_offsets(text: str | None) -> dict[QueueKey, int]:
    """Return the start offsets by queue. Raises PopOffsetsError."""
    return {
        QueueKey(kind, _number(queue, text)): _number(value, text)
        for kind, queue, value in _entries(text)
    }


def parse_message_offsets(text: str | None) -> dict[QueueKey, list[int]]:
    """Return the messages' offsets by queue, queues in the order of the body.

    Raises PopOffsetsError.
    """
    return {
        QueueKey(kind, _number(queue, text)): [_number(one, text) for one in value.split(",")]
        for kind, queue, value in _entries(text)
    }


def parse_order_counts(text: str | None) -> OrderCounts:
    """Return how often messages were delivered before. Raises PopOffsetsError."""
    counts = OrderCounts({}, {})
    for kind, place, value in _entries(text):
        count = _number(value, text)
        if place.startswith(_OFFSET_MARK):
            queue, _, offset = place[len(_OFFSET_MARK) :].partition("%")
            counts.messages[kind, _number(queue, text), _number(offset, text)] = count
        else:
            counts.queues[QueueKey(kind, _number(place, text))] = count
    return counts


def _entries(text: str | None) -> list[tuple[TopicKind, str, str]]:
    entries = []
    for entry in text.split(";") if text else ():
        words = entry.split(" ")
        if len(words) != 3 or words[0] not in _KINDS:
            raise PopOffsetsError(f"{entry[:100]!r} is not three words, in {text!r:.200}")
        entries.append((_KINDS[words[0]], words[1], words[2]))
    return entries


def _number(word: str, text: str | None) -> int:
    try:
        return int(word)
    except ValueError:
        raise PopOffsetsError(f"{word[:100]!r} is not a number, in {text!r:.200}") from None
