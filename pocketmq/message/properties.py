"""The properties text of a message: `name 0x01 value 0x02`, repeated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"

# Set by applications.
KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
DELAY: Final = "DELAY"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"

# Set by producers.
WAIT: Final = "WAIT"
UNIQ_KEY: Final = "UNIQ_KEY"
EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"
INSTANCE_ID: Final = "INSTANCE_ID"
SHARDING_KEY: Final = "__SHARDINGKEY"
TRAN_MSG: Final = "TRAN_MSG"
PGROUP: Final = "PGROUP"
TRANSACTION_ID: Final = "__transactionId__"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
MSG_TYPE: Final = "MSG_TYPE"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
ARRIVE_TIME: Final = "ARRIVE_TIME"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
PRIORITY: Final = "_SYS_MSG_PRIORITY_"  # from 5.4 on
LITE_TOPIC: Final = "__LITE_TOPIC"  # from 5.5 on

# Set by brokers.
CLUSTER: Final = "CLUSTER"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"  # from 5.4 on
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
POP_CK: Final = "POP_CK"
POP_CK_OFFSET: Final = "POP_CK_OFFSET"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
CRC32: Final = "__CRC32#"

# Set by consumers of this package on dead letters; docs/consumer.md documents them.
DLQ_REASON: Final = "DLQ_REASON"
DLQ_EXCEPTION: Final = "DLQ_EXCEPTION"
DLQ_CONSUMER: Final = "DLQ_CONSUMER"
DLQ_ATTEMPTS: Final = "DLQ_ATTEMPTS"

# Added by consumers to received messages, never stored.
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."

# Historic, or of static topics.
DUP_INFO: Final = "DUP_INFO"
BUYER_ID: Final = "BUYER_ID"
TRANSFER_FLAG: Final = "TRANSFER_FLAG"
CORRECTION_FLAG: Final = "CORRECTION_FLAG"
MQ2_FLAG: Final = "MQ2_FLAG"
REDIRECT: Final = "REDIRECT"
PROPERTY_FORWARD_QUEUE_ID: Final = "PROPERTY_FORWARD_QUEUE_ID"

KEY_SEPARATOR: Final = " "
"""Between the index keys in the value of KEYS."""

RESERVED: Final = frozenset(
    value
    for name, value in list(globals().items())
    if name.isupper()
    and isinstance(value, str)
    and not name.endswith(("_SEPARATOR", "_PREFIX"))
    and not name.startswith("_")
)
"""Every name reserved by RocketMQ: applications may not use them for their own properties."""


class PropertiesError(ValueError):
    """A name or value that the properties text cannot carry."""


def encode(properties: Mapping[str, str]) -> str:
    """Return the text of `properties`, with the trailing separator that current clients write.

    Raises:
        PropertiesError: a name is empty or has a separator in it, or a value has 0x02 in it.
    """
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    number = len(properties)
    # Two counts over the finished text are cheaper than checking every name and value.
    if text.count("\x01") != number or text.count("\x02") != number or "" in properties:
        for name, value in properties.items():
            # 0x01 within a value does no harm, and what was decoded must encode again.
            if not name or "\x01" in name or "\x02" in name or "\x02" in value:
                raise PropertiesError(
                    f"a property with an empty name or a separator in it: {name!r}: {value[:80]!r}"
                )
    return text


def decode(text: str | bytes | bytearray | memoryview) -> dict[str, str]:
    """Return the properties in `text`; the last of equal names wins.

    Entries without separator, name or value are dropped, as the reference client drops them, and
    bytes that are not UTF-8 become U+FFFD: a peer can send anything, and this never fails.
    """
    if not isinstance(text, str):
        text = str(text, "utf-8", "replace")
    properties: dict[str, str] = {}
    for entry in text.split("\x02"):
        name, _, value = entry.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


def find(properties: str, name: str) -> str | None:
    """Return the value `decode(properties).get(name)` would give, without splitting the text."""
    # From the end, since the last of equal names wins. Cutting the text at the name is cheaper
    # than searching for positions in it and slicing.
    before, found, after = properties.rpartition(f"{name}\x01")
    while found:
        # Else it is the end of a longer name, or is part of a value.
        if not before or before[-1] == "\x02":
            value = after.partition("\x02")[0]
            if value:
                return value
        before, found, _ = before.rpartition(f"{name}\x01")
        after = properties[len(before) + len(found) :]
    return None
