"""Light queues (LMQ), and the two properties that dispatch one message to several of them.

A light queue is a queue of entries only: its messages are records of ordinary topics. It has no
topic config, and the queue id 0. INNER_MULTI_DISPATCH names the light queues of a message, and the
broker adds INNER_MULTI_QUEUE_OFFSET, the message's queue offset in each. Reference: MultiDispatch,
LmqDispatch, CommitLogDispatcherBuildConsumeQueue.
"""

from __future__ import annotations

from typing import Final

from pocketmq.message import properties as names
from pocketmq.message.limits import (
    DLQ_PREFIX,
    LIGHT_QUEUE_PREFIX,
    MAX_STORED_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    is_system_topic,
)

LIGHT_QUEUE_ID: Final = 0
MOST_LIGHT_QUEUES: Final = 128
"""Light queues of one message: each may need a new file."""

_SEPARATOR: Final = ","
_OTHERS: Final = (RETRY_PREFIX, DLQ_PREFIX, SYSTEM_TOPIC_PREFIX, LIGHT_QUEUE_PREFIX)
_MOST_DIGITS: Final = 18


def is_light_queue(name: str) -> bool:
    """Tell whether a name can be that of a light queue: it also names a directory, and stands in a
    list."""
    return (
        name.startswith(LIGHT_QUEUE_PREFIX)
        and len(name) > len(LIGHT_QUEUE_PREFIX)
        and name.isprintable()
        and not {"/", _SEPARATOR} & set(name)
        and len(name.encode()) <= MAX_STORED_TOPIC
    )


def is_dispatched(topic: str) -> bool:
    """Tell whether messages that are sent to a topic are dispatched. Those in the broker's own
    topics wait there, and are dispatched when they reach their own topic."""
    return _may_be_dispatched(topic) and not is_system_topic(topic)


def dispatched_to(text: str) -> list[str]:
    """Return the names in the value of INNER_MULTI_DISPATCH."""
    return text.rstrip(_SEPARATOR).split(_SEPARATOR)


def with_offsets(properties: str, queues: dict[str, int]) -> str:
    """Return encoded properties that dispatch a message to these light queues, at these queue
    offsets."""
    decoded = names.decode(properties)
    decoded[names.INNER_MULTI_DISPATCH] = _SEPARATOR.join(queues)
    decoded[names.INNER_MULTI_QUEUE_OFFSET] = _SEPARATOR.join(map(str, queues.values()))
    return names.encode(decoded)


def light_places(topic: str, properties: str) -> list[tuple[str, int]]:
    """Return the light queues that have a stored message, with its queue offset in each.

    The official broker also dispatches half messages, and stores names that are no light queues'.
    """
    if names.INNER_MULTI_QUEUE_OFFSET not in properties or not _may_be_dispatched(topic):
        return []
    queues = dispatched_to(names.find(properties, names.INNER_MULTI_DISPATCH) or "")
    offsets = dispatched_to(names.find(properties, names.INNER_MULTI_QUEUE_OFFSET) or "")
    if len(queues) != len(offsets):
        return []
    return [
        (queue, int(offset))
        for queue, offset in dict(zip(queues, offsets, strict=True)).items()
        if is_light_queue(queue)
        and offset.isascii()
        and offset.isdecimal()
        and len(offset) <= _MOST_DIGITS
    ]


def _may_be_dispatched(topic: str) -> bool:
    return not topic.startswith(_OTHERS) and topic != SCHEDULE_TOPIC
