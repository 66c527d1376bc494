"""Trace records: the history of a message, as text in the trace topic.

Fields are joined by 0x01, and records end with 0x02, in the order that the Java client writes and
the dashboard reads. A missing tag or key is the word "null", because Java writes and expects that.
Reference: TraceDataEncoder.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import msgspec

from pocketmq.message.limits import DEFAULT_REGION

_FIELD = "\x01"
_RECORD = "\x02"
_NULL = "null"


class MessageType(IntEnum):
    """The type of a message; the reference's ordinals."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAY = 3
    ORDER = 4


class ConsumeReturn(IntEnum):
    """The result of a consumer's handler; the ordinals of the reference's ConsumeReturnType."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURN_NULL = 3
    FAILED = 4


class TraceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of all records: `msg_id`, the index keys of the message (joined by spaces) and the
    producer or consumer group. Times are in Unix milliseconds, costs in milliseconds."""

    msg_id: str
    group: str
    keys: str = ""

    def fields(self) -> tuple[object, ...]:
        """Return the record's fields, its kind first."""
        raise NotImplementedError

    def encode(self) -> str:
        """Return the record as text."""
        return _FIELD.join(map(_text, self.fields())) + _RECORD

    def index_keys(self) -> list[str]:
        """Return the index keys of the record."""
        return [self.msg_id, *self.keys.split()]


class PubRecord(TraceRecord, frozen=True, kw_only=True):
    """A message was sent."""

    time: int
    topic: str
    tags: str = ""
    store_host: str
    body_length: int
    cost: int
    message_type: MessageType = MessageType.NORMAL
    offset_msg_id: str
    success: bool
    region: str = DEFAULT_REGION

    def fields(self) -> tuple[object, ...]:
        return (
            "Pub", self.time, self.region, self.group, self.topic, self.msg_id, self.tags,
            self.keys, self.store_host, self.body_length, self.cost, int(self.message_type),
            self.offset_msg_id, self.success,
        )  # fmt: skip


class SubBeforeRecord(TraceRecord, frozen=True, kw_only=True):
    """A message is about to be handled; the later SubAfterRecord has the same `request_id`."""

    time: int
    request_id: str
    retry_times: int
    region: str = DEFAULT_REGION

    def fields(self) -> tuple[object, ...]:
        return (
            "SubBefore", self.time, self.region, self.group, self.request_id, self.msg_id,
            self.retry_times, self.keys,
        )  # fmt: skip


class SubAfterRecord(TraceRecord, frozen=True, kw_only=True):
    """A message was handled."""

    time: int
    request_id: str
    cost: int
    success: bool
    returned: ConsumeReturn = ConsumeReturn.SUCCESS

    def fields(self) -> tuple[object, ...]:
        return (
            "SubAfter", self.request_id, self.msg_id, self.cost, self.success, self.keys,
            int(self.returned), self.time, self.group,
        )  # fmt: skip


class EndTransactionRecord(TraceRecord, frozen=True, kw_only=True):
    """The state of a transaction was sent to the broker; `state`: the reference's name."""

    time: int
    topic: str
    tags: str = ""
    store_host: str
    transaction_id: str
    state: str
    from_check: bool
    region: str = DEFAULT_REGION

    def fields(self) -> tuple[object, ...]:
        return (
            "EndTransaction", self.time, self.region, self.group, self.topic, self.msg_id,
            self.tags, self.keys, self.store_host, int(MessageType.COMMIT), self.transaction_id,
            self.state, self.from_check,
        )  # fmt: skip


class RecallRecord(TraceRecord, frozen=True, kw_only=True):
    """A delayed message was recalled."""

    time: int
    topic: str
    success: bool
    region: str = DEFAULT_REGION

    def fields(self) -> tuple[object, ...]:
        return (
            "Recall", self.time, self.region, self.group, self.topic, self.msg_id, self.success,
        )  # fmt: skip


def decode(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the fields of each record in a trace message, its kind first."""
    for record in text.split(_RECORD):
        if record:
            yield tuple(record.split(_FIELD))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) or _NULL
