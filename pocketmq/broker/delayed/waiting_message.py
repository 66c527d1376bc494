"""Restores a waiting message as the message that consumers will see.

Delayed and timed messages wait in topics of the broker's own, with their destination in the
properties REAL_TOPIC and REAL_QID. On the disk the delivered message has all properties of the
waiting one, as with the official broker, whose code removes some of them only after it has encoded
them. Reference: ScheduleMessageService.messageTimeUp, TimerMessageStore.convertMessage.
"""

from __future__ import annotations

import re
from typing import Final

from pocketmq.broker.inner_message import InnerMessage, inner_message_of
from pocketmq.limited_log import LimitedLog
from pocketmq.message import properties as names
from pocketmq.message.limits import HALF_TOPIC
from pocketmq.message.record import Record, RecordError, decode
from pocketmq.store.errors import RecordNotFound
from pocketmq.store.message_store import MessageStore

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
        log.error("cannot deliver a delayed message: %s", error)
        return None
    if size is not None and record.size != size:
        # A filler, in place of a message that a crash took: it points to the log's beginning.
        log.error(
            "cannot deliver a delayed message: the log no longer has it at %d", physical_offset
        )
        return None
    return record


def returned(record: Record, log: LimitedLog) -> InnerMessage | None:
    """Return the message as it is to be stored where it was sent to.

    If its properties do not say where that is, say so in the `log` and return None.
    """
    inner = inner_message_of(record)
    topic = inner.properties.get(names.REAL_TOPIC)
    queue_id = inner.properties.get(names.REAL_QID, "")
    if topic is None or topic == HALF_TOPIC or _QUEUE_ID.fullmatch(queue_id) is None:
        log.error(
            "a message of %s cannot be delivered to topic %s, queue %r",
            record.topic,
            topic,
            queue_id[:40],
        )
        return None
    inner.topic = topic
    inner.queue_id = int(queue_id)
    return inner
