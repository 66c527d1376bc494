"""Restores a waiting message to the message that consumers get.

Delayed and timed messages wait in system topics, with their destination in the properties
REAL_TOPIC and REAL_QID. The delivered message is stored with all properties of the waiting one, as
with the official broker, whose code removes some of them only after it has encoded them. Reference:
ScheduleMessageService.messageTimeUp, TimerMessageStore.convertMessage.
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

# Clients can send to the timer topic directly, so values that do not fit into a record must be
# rejected here.
_QUEUE_ID: Final = re.compile(r"[0-9]{1,9}")


def read_waiting(
    store: MessageStore, physical_offset: int, size: int | None, log: LimitedLog
) -> Record | None:
    """Return the waiting message that a consume-queue entry or a timer-log unit points to; `size`
    is the size in the queue entry.

    If it is missing, log an error and return None.
    """
    try:
        record = decode(store.record_at(physical_offset))
    except (RecordNotFound, RecordError) as error:
        log.error("delayed message cannot be delivered: %s", error)
        return None
    if size is not None and record.size != size:
        # A filler entry for a message lost in a crash: it points to the beginning of the log.
        log.error(
            "delayed message cannot be delivered: the log no longer has it at %d", physical_offset
        )
        return None
    return record


def waiting_at(store: MessageStore, physical_offset: int) -> Record | None:
    """Return the waiting message at a physical offset; None if there is none."""
    try:
        return decode(store.record_at(physical_offset))
    except (RecordNotFound, RecordError):
        return None


def put_of(record: Record, text: str, destinations: Destinations, added: str = "") -> Put | None:
    """Return the put that delivers a waiting message, with its properties `text` followed by
    `added`. Return None if the properties do not contain the destination, or if it is deleted.

    This is `returned` for runs of messages: it searches the properties instead of parsing them,
    which would be half of the work. The body is not copied out of the record.
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
    """Return the message to store in the topic that it was sent to.

    If its properties do not contain the destination, log an error and return None. Also return None
    if it was dropped because its topic was deleted.
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
