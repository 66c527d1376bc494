"""Who may set which reserved property of RocketMQ, for every name in `properties.RESERVED`.

Clients set most reserved properties when they send. The others belong to the broker, which sets
them on messages in its own topics and reads them only there. On an ordinary message they have no
effect, even if a client set them. Like the official broker, this one stores such a property with a
message that is stored at once; it removes the property from a message that has to wait first.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from pocketmq.message import properties as names
from pocketmq.message.limits import DLQ_PREFIX, MOST_IN_UNUSUAL_BATCH, RETRY_PREFIX


class SetBy(Enum):
    """Who may set a property."""

    CLIENT = "a client, at a send"
    SINGLE = "a client, but not in a batch"
    """The message would have to wait, and a batch is readable at once."""
    SAME_TOPIC = "a client, for a message of the same topic, and not in a batch"
    RETRY = "a broker at a send-back, or a client that sends to a retry topic itself"
    EACH = "the broker, on every message that it stores; what a client set does not count"
    BROKER = "the broker only: it reads the property in its own topics, and nowhere else"
    INNER_BATCH = "the broker, on inner batches, which are not stored here: such a send is refused"


_TABLE: Final = {
    SetBy.CLIENT: (
        names.KEYS,
        names.TAGS,
        names.WAIT,
        names.UNIQ_KEY,
        names.EXTEND_UNIQ_INFO,
        names.INSTANCE_ID,
        names.SHARDING_KEY,
        names.TRACE_CONTEXT,
        names.BORN_HOST,
        names.BORN_TIMESTAMP,
        names.INNER_MULTI_DISPATCH,
        names.PRIORITY,
        # Of later releases, without effect here.
        names.LITE_TOPIC,
        names.ORIGIN_GROUP,
        # Transactions. In a batch TRAN_MSG has no effect, as with the official broker.
        names.TRAN_MSG,
        names.PGROUP,
        names.TRANSACTION_ID,
        names.CHECK_IMMUNITY_TIME_IN_SECONDS,
        # Clients move them into the header of a send to a retry topic.
        names.RECONSUME_TIME,
        names.MAX_RECONSUME_TIMES,
        # Requests and replies.
        names.MSG_TYPE,
        names.CORRELATION_ID,
        names.REPLY_TO_CLIENT,
        names.TTL,
        names.ARRIVE_TIME,
        names.PUSH_REPLY_TIME,
        # A client that forwards a delayed message: it is not delayed again. If a message has to
        # wait, the broker replaces it.
        names.TIMER_OUT_MS,
        # Shown to consumers; brokers neither set nor read them.
        names.DLQ_ORIGIN_TOPIC,
        names.DLQ_ORIGIN_MESSAGE_ID,
        names.DLQ_REASON,
        names.DLQ_EXCEPTION,
        names.DLQ_CONSUMER,
        names.DLQ_ATTEMPTS,
        # Set by consumers on what they got.
        names.MIN_OFFSET,
        names.MAX_OFFSET,
        names.CONSUME_START_TIME,
        # Historic, or of static topics: never read.
        names.DUP_INFO,
        names.BUYER_ID,
        names.TRANSFER_FLAG,
        names.CORRECTION_FLAG,
        names.MQ2_FLAG,
        names.REDIRECT,
        names.PROPERTY_FORWARD_QUEUE_ID,
    ),
    SetBy.SINGLE: (
        names.DELAY,
        names.TIMER_DELAY_SEC,
        names.TIMER_DELAY_MS,
        names.TIMER_DELIVER_MS,
    ),
    SetBy.SAME_TOPIC: (names.TIMER_DEL_UNIQKEY,),
    SetBy.RETRY: (names.RETRY_TOPIC, names.ORIGIN_MESSAGE_ID),
    SetBy.EACH: (names.CLUSTER, names.MSG_REGION, names.TRACE_ON),
    SetBy.BROKER: (
        names.REAL_TOPIC,
        names.REAL_QID,
        names.TRANSACTION_CHECK_TIMES,
        names.TRAN_PREPARED_QUEUE_OFFSET,
        names.TIMER_ENQUEUE_MS,
        names.TIMER_DEQUEUE_MS,
        names.TIMER_ROLL_TIMES,
        names.TIMER_DELAY_LEVEL,
        names.POP_CK,
        names.POP_CK_OFFSET,
        names.FIRST_POP_TIME,
        names.INNER_BASE,
        # Removed from every message; with light queues, the broker sets it where it stores one.
        names.INNER_MULTI_QUEUE_OFFSET,
        names.CRC32,
    ),
    SetBy.INNER_BATCH: (names.INNER_NUM,),
}

SET_BY: Final[Mapping[str, SetBy]] = {
    name: set_by for set_by, reserved in _TABLE.items() for name in reserved
}

BROKERS_OWN: Final = frozenset(_TABLE[SetBy.BROKER])

#: Properties not allowed in a batch: the message would have to wait, or its readers act on them.
NOT_IN_BATCHES: Final = frozenset(
    {
        *_TABLE[SetBy.SINGLE],
        *_TABLE[SetBy.SAME_TOPIC],
        *_TABLE[SetBy.INNER_BATCH],
        names.POP_CK,
        names.INNER_BASE,
        names.INNER_MULTI_QUEUE_OFFSET,
    }
)

#: Properties that a consumer's copy of a stored message must omit: the copy would wait, count as a
#: half message, be dispatched to more queues, or contradict the header of its send.
NOT_IN_COPIES: Final = frozenset(
    {
        *BROKERS_OWN,
        *NOT_IN_BATCHES,
        *_TABLE[SetBy.EACH],
        names.TRAN_MSG,
        names.INNER_MULTI_DISPATCH,
        names.RECONSUME_TIME,
        names.MAX_RECONSUME_TIMES,
    }
)


TOO_MANY_UNUSUAL: Final = (
    f"a batch of more than {MOST_IN_UNUSUAL_BATCH} messages of which each has to be looked at, "
    "since one is malformed or has a property whose name begins as one that has no effect in a "
    "batch (DELAY, TIMER_, POP_CK, INNER_): leave the property out, or send smaller batches"
)
"""Why a batch of fewer than `MOST_IN_BATCH` messages is refused."""


def drop_brokers_own(properties: dict[str, str]) -> None:
    """Remove properties that only the broker sets from those that a client sent."""
    if not BROKERS_OWN.isdisjoint(properties):
        for name in BROKERS_OWN:
            properties.pop(name, None)


def may_name(properties: bytes) -> bool:
    """Tell whether encoded properties may have one of `NOT_IN_BATCHES`, perhaps within a value."""
    # A search in a text takes 40 ns, `in` of bytes ten times as long.
    text = str(properties, "latin-1")
    return "DELAY" in text or "TIMER_DEL" in text or "POP_CK" in text or "INNER_" in text


def is_unfit_for_batch(properties: bytes) -> bool:
    """Tell whether the encoded properties of a message have one of `NOT_IN_BATCHES`."""
    return not NOT_IN_BATCHES.isdisjoint(names.decode(properties))


def is_sent_back(topic: str) -> bool:
    """Tell whether RETRY properties count on messages of a topic."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
