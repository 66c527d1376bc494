"""Restores a waiting message as the message that consumers will see.

Delayed and timed messages wait in topics of the broker's own, with their destination in the
properties REAL_TOPIC and REAL_QID. On the disk the delivered message has all properties of the
waiting one, as with the official broker, whose code removes some of them only after it has encoded
them. Reference: ScheduleMessageService.messageTimeUp, TimerMessageStore.convertMessage.
"""

from __future__ import annotations

import re
from typing import Final

from pocketmq.broker.destinations import Destinations
from pocketmq.broker.inner_message import InnerMessage, inner_message_of
from pocketmq.limited_log import LimitedLog
from pocketmq.message import properties as names
from pocketmq.message.limits import HALF_TOPIC, RETRY_PREFIX
from pocketmq.message.properties import find
from pocketmq.message.record import Record, decode
from pocketmq.message.record_layout import RecordError
from pocketmq.message.tags import tag_hash
from pocketmq.store.errors import RecordNotFound
from pocketmq.store.message_store import MessageStore
from pocketmq.store.writer import Put

# Anybody may send into the timer topic: what no record can hold must not get as far as the store.
_QUEUE_ID: Final = re.compile(r"[0-9]{1,9}")


def read_waiting(
    store: MessageStore, physical_offset: int, size: int | None, log: LimitedLog
) -> Record | None:
    """Return the waiting message that a consume-queue entry or a timer-log unit points to; `size`
    is what a queue entry says.

    If it is not there, say so in the `log` and return None.
    """
    try:
        record = decode(store.record_at(physical_offset))
    except (RecordNotFound, RecordError) as error:
        log.error("delayed message cannot be delivered: %s", error)
        return None
    if size is not None and record.size != size:
        # A filler, in place of a message that a crash took: it points to the log's beginning.
        log.error(
            "delayed message cannot be delivered: the log no longer has it at %d", physical_offset
        )
        return None
    return record


def waiting_at(store: MessageStore, physical_offset: int) -> Record | None:
    """Return the waiting message at a physical offset; None where there is none."""
    try:
        return decode(store.record_at(physical_offset))
    except (RecordNotFound, RecordError):
        return None


def put_of(record: Record, text: str, destinations: Destinations, added: str = "") -> Put | None:
    """Return what puts a waiting message where it was sent to, with `added` behind its properties,
    whose `text` is. None if they do not say where that is, or if it is gone.

    This is `returned` for runs of messages: the properties are searched and not taken apart, which
    is half of the work. The body is still that of the record.
    """
    topic = find(text, names.REAL_TOPIC)
    queue_id = find(text, names.REAL_QID) or ""
    if topic is None or topic == HALF_TOPIC or _QUEUE_ID.fullmatch(queue_id) is None:
        return None
    origin = find(text, names.RETRY_TOPIC) if topic.startswith(RETRY_PREFIX) else None
    queue = destinations.queue_for(topic, int(queue_id), record.physical_offset, origin)
    if queue is None:
        return None
    if added and text[-1] != names.PROPERTY_SEPARATOR:
        text += names.PROPERTY_SEPARATOR
    tag = find(text, names.TAGS)
    return (
        topic,
        queue,
        record.body,
        text + added,
        record.flag,
        record.sys_flag,
        record.born_timestamp,
        record.born_host,
        record.reconsume_times,
        0,
        0 if tag is None else tag_hash(tag),
    )


def returned(record: Record, destinations: Destinations, log: LimitedLog) -> InnerMessage | None:
    """Return the message as it is to be stored where it was sent to.

    If its properties do not say where that is, say so in the `log` and return None. Return None
    also if it was dropped, as its topic is gone.
    """
    inner = inner_message_of(record)
    topic = inner.properties.get(names.REAL_TOPIC)
    queue_id = inner.properties.get(names.REAL_QID, "")
    if topic is None or topic == HALF_TOPIC or _QUEUE_ID.fullmatch(queue_id) is None:
        log.error(
            "topic %s: a message cannot be delivered to topic %s, queue %r",
            record.topic,
            topic,
            queue_id[:40],
        )
        return None
    origin = inner.properties.get(names.RETRY_TOPIC) if topic.startswith(RETRY_PREFIX) else None
    queue = destinations.queue_for(topic, int(queue_id), record.physical_offset, origin)
    if queue is None:
        destinations.drop(topic, "delayed messages")
        return None
    inner.topic = topic
    inner.queue_id = queue
    return inner
