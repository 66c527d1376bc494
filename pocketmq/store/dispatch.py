"""The effect of a stored record on the consume queues.

The same rules hold when a message is put and when recovery meets its record in the commit log, so
that a rebuilt queue is equal to the one that was lost. Reference: the dispatch request that
CommitLog.checkMessageAndReturnSize makes, and CommitLogDispatcherBuildConsumeQueue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pocketmq.message import properties as names
from pocketmq.message.limits import LIGHT_QUEUE_PREFIX, SCHEDULE_TOPIC
from pocketmq.message.multi_dispatch import LIGHT_QUEUE_ID, light_places
from pocketmq.message.sysflag import (
    INNER_BATCH,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from pocketmq.message.tags import tag_hash
from pocketmq.store.delay_level import DelayLevels

if TYPE_CHECKING:
    from pocketmq.message.record import Record  # scans come here without msgspec

_NO_ENTRY = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


def has_queue_entry(sys_flag: int) -> bool:
    """Return whether a record gets a consume-queue entry.

    Prepared and rolled-back transactions do not (half messages are stored without these bits, so
    they do); inner batches belong to another kind of queue (batchconsumequeue).
    """
    return sys_flag & TRANSACTION_MASK not in _NO_ENTRY and not sys_flag & INNER_BATCH


def places_of(record: Record) -> list[tuple[str, int, int]]:
    """Return topic, queue id and queue offset of each entry that a record gets: in its own queue,
    and in light queues. Light queues have no records of their own; official brokers store them, and
    give them offsets that are given to others, too."""
    if not has_queue_entry(record.sys_flag):
        return []
    places = [(record.topic, record.queue_id, record.queue_offset)]
    if record.topic.startswith(LIGHT_QUEUE_PREFIX):
        places.clear()
    for name, offset in light_places(record.topic, record.properties_text):
        places.append((name, LIGHT_QUEUE_ID, offset))
    return places


def is_at(record: Record, topic: str, queue_id: int, queue_offset: int) -> bool:
    """Return whether an entry of this place may lead to a record."""
    place = topic, queue_id, queue_offset
    if place == (record.topic, record.queue_id, record.queue_offset):
        return True
    return topic.startswith(LIGHT_QUEUE_PREFIX) and place in places_of(record)


def tags_code_of(record: Record, delay_levels: DelayLevels) -> int:
    """Return what a record's consume-queue entry holds beside its position: the hash of its tag, or
    for a delayed message the time when it is due (ms)."""
    text = record.properties_text
    if record.topic == SCHEDULE_TOPIC:
        due = delivery_time(text, record.store_timestamp, delay_levels)
        if due is not None:
            return due
    tag = names.find(text, names.TAGS)
    return 0 if tag is None else tag_hash(tag)


def delivery_time(properties: str, store_timestamp: int, delay_levels: DelayLevels) -> int | None:
    """Return when a message with these properties, stored in the schedule topic, is due (ms); None
    when it names no delay level."""
    text = names.find(properties, names.DELAY)
    try:
        level = int(text or 0)
    except ValueError:
        return None
    return delay_levels.deliver_timestamp(level, store_timestamp) if level > 0 else None
