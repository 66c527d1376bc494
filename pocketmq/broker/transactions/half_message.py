"""Half messages: a send puts one into the half topic, a check puts a copy there, and a commit
stores the message in the topic that it was sent to.

Reference: broker TransactionalMessageBridge, EndTransactionProcessor.endMessageTransaction,
TransactionalMessageUtil.
"""

from __future__ import annotations

from typing import Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delayed.put_hooks import delay_level
from pocketmq.broker.delayed.waiting_message import put_of
from pocketmq.broker.destinations import Destinations
from pocketmq.broker.inner_message import InnerMessage, inner_message_of
from pocketmq.message import properties as names
from pocketmq.message import sysflag
from pocketmq.message.limits import HALF_TOPIC
from pocketmq.message.properties import find
from pocketmq.message.record import Record
from pocketmq.message.record_layout import (
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_V1,
    encode_into,
    record_size,
)
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.store.errors import RecordNotFound
from pocketmq.store.message_store import MessageStore
from pocketmq.store.writer import Put

#: The half topic and the op topic have one queue each.
QUEUE_ID: Final = 0


class HalfMessageHook:
    """The put hook of sends that start a transaction."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def __call__(self, inner: InnerMessage) -> None:
        """Move a half message to the half topic.

        Raises RemotingError (NO_PERMISSION) if transactions are disabled.
        """
        properties = inner.properties
        if (
            properties.get(names.TRAN_MSG, "").lower() != "true"
            # Committed messages keep the property, also when a consumer sends them back.
            or inner.accepted
            or (inner.reconsume_times > 0 and delay_level(properties) > 0)
        ):
            return
        if self._config.reject_transaction_message:
            raise RemotingError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.advertised_host}] sending transaction message is "
                "forbidden",
            )
        unique_id = properties.get(names.UNIQ_KEY)
        if unique_id:
            properties[names.TRANSACTION_ID] = unique_id
        # A consumer may forward a message with this property from an earlier transaction.
        properties.pop(names.TRAN_PREPARED_QUEUE_OFFSET, None)
        properties.pop(names.TRANSACTION_CHECK_TIMES, None)
        properties[names.REAL_TOPIC] = inner.topic
        properties[names.REAL_QID] = str(inner.queue_id)
        inner.topic = HALF_TOPIC
        inner.queue_id = QUEUE_ID
        # A message with the prepared bits would get no entry in the half queue.
        inner.sys_flag &= ~sysflag.TRANSACTION_MASK


def half_at(store: MessageStore, physical_offset: int) -> Record | None:
    """Return the half message at a physical offset; None if there is none."""
    try:
        record = store.message_at(physical_offset)
    except RecordNotFound:
        return None
    return record if record.topic == HALF_TOPIC else None


def is_gone(half: Record, destinations: Destinations) -> bool:
    """Tell whether the topic that a half message was sent to was deleted since. If so, count the
    message as dropped."""
    topic = half.properties.get(names.REAL_TOPIC, "")
    gone = destinations.is_gone(topic, half.physical_offset)
    if gone:
        destinations.drop(topic, "half messages")
    return gone


def committed(half: Record, destinations: Destinations) -> InnerMessage:
    """Return the message that a commit stores, if its topic was not deleted.

    It has all properties of the half message except TRAN_PREPARED_QUEUE_OFFSET: only copies made
    for a check have it, and it has no meaning outside the half topic.

    Raises:
        RemotingError: the half message does not contain the queue that it was sent to.
    """
    inner = inner_message_of(half)
    inner.properties.pop(names.TRAN_PREPARED_QUEUE_OFFSET, None)
    topic, queue_id = real_queue(half)
    queue = destinations.queue_for(topic, queue_id, half.physical_offset)
    inner.topic, inner.queue_id = topic, queue_id if queue is None else queue
    inner.sys_flag = inner.sys_flag & ~sysflag.TRANSACTION_MASK | sysflag.TRANSACTION_COMMIT
    inner.prepared_transaction_offset = half.physical_offset
    return inner


def usual_commit(half: Record, group: str | None, destinations: Destinations) -> Put | None:
    """Return the put for a commit of a producer `group`, equivalent to `committed`. None if the
    message is unusual, or may have to wait first: then use `committed`.
    """
    text = half.properties_text
    if (
        find(text, names.PGROUP) != group
        or names.DELAY in text
        or names.TIMER_DELIVER_MS in text
        or names.TRAN_PREPARED_QUEUE_OFFSET in text
        or names.CHECK_IMMUNITY_TIME_IN_SECONDS in text
    ):
        return None
    put = put_of(half, text, destinations)
    if put is None:
        return None
    topic, queue_id, body, _, flag, sys_flag, born, born_host, reconsume_times, _, code = put
    sys_flag = sys_flag & ~sysflag.TRANSACTION_MASK | sysflag.TRANSACTION_COMMIT
    return (
        topic, queue_id, body, text, flag, sys_flag, born, born_host, reconsume_times,
        half.physical_offset, code,
    )  # fmt: skip


def real_queue(half: Record) -> tuple[str, int]:
    """Return the topic and queue id that a half message was sent to. Raises RemotingError."""
    topic = half.properties.get(names.REAL_TOPIC)
    queue_id = number(half.properties.get(names.REAL_QID))
    if topic is None or queue_id is None or queue_id < 0:
        raise RemotingError(
            ResponseCode.SYSTEM_ERROR,
            f"the half message at {half.physical_offset} lacks {names.REAL_TOPIC} or "
            f"{names.REAL_QID}",
        )
    return topic, queue_id


def origin_of(half: Record) -> int:
    """Return the half queue offset of the original half message, the same for all its copies."""
    # Search the text instead of parsing all properties: few half messages are copies.
    origin = number(find(half.properties_text, names.TRAN_PREPARED_QUEUE_OFFSET))
    return half.queue_offset if origin is None else origin


def copy_of(half: Record) -> InnerMessage:
    """Return a copy of a half message, to put into the half queue again."""
    inner = inner_message_of(half)
    inner.properties[names.TRAN_PREPARED_QUEUE_OFFSET] = str(origin_of(half))
    return inner


def immunity_ms(half: Record, default: int) -> int | None:
    """Return the time after its birth during which it must not be checked, in ms.

    None if the producer did not request any; `default` if the request is not a number.
    """
    text = half.properties.get(names.CHECK_IMMUNITY_TIME_IN_SECONDS)
    if text is None:
        return None
    seconds = number(text)
    return default if seconds is None or seconds == -1 else seconds * 1000


def number(text: str | None) -> int | None:
    """Return a property as an integer; None if it is missing or not a number."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def encode_for_check(
    half: InnerMessage, queue_offset: int, physical_offset: int, source: Record
) -> bytes:
    """Return the body of CHECK_TRANSACTION_STATE: `half`, stored at these offsets, as a record of
    the topic that it was sent to. `source` is the record that it was copied from. Raises
    RemotingError.
    """
    topic, queue_id = real_queue(source)
    name = topic.encode()
    properties = names.encode(half.properties).encode()
    version = 1 if len(name) <= MAX_TOPIC_V1 else 2
    size = record_size(len(half.body), len(name), len(properties), source.sys_flag, version)
    buffer = bytearray(size)
    encode_into(
        buffer,
        0,
        size,
        MAGIC_V1 if version == 1 else MAGIC_V2,
        source.body_crc,
        queue_id,
        half.flag,
        queue_offset,
        physical_offset,
        source.sys_flag,
        half.born_timestamp,
        half.born_host,
        source.store_timestamp,
        source.store_host,
        half.reconsume_times,
        0,
        half.body,
        name,
        properties,
    )
    return bytes(buffer)
