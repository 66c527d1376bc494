"""Trace records: what happened to a message, as the text that the trace topic holds.

Fields are joined by 0x01, records ended by 0x02, in the order that the Java client writes and the
dashboard reads. An absent tag or key is the word "null", because Java writes and expects it.
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
    """What kind of message was sent; the reference's ordinals."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAY = 3
    ORDER = 4


class ConsumeReturn(IntEnum):
    """How a consumer's handler ended; the reference's ordinals of ConsumeReturnType."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURN_NULL = 3
    FAILED = 4


class TraceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What all records have: `msg_id`, the index keys of the message (joined by blanks) and the
    producer or consumer group. Times are Unix milliseconds, costs milliseconds."""

    msg_id: str
    group: str
    keys: str = ""

    def fields(self) -> tuple[object, ...]:
        """The record's fields, its kind first."""
        raise NotImplementedError

    def encode(self) -> str:
        """The record's text."""
        return _FIELD.join(map(_text, self.fields())) + _RECORD

    def index_keys(self) -> list[str]:
        """The keys by which the record is to be found."""
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
    """A message is about to be handled; `request_id` is that of the SubAfterRecord to come."""

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
    """The broker was told how a transaction ended; `state` in the reference's words."""

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
    """A delayed message was taken back."""

    time: int
    topic: str
    success: bool
    region: str = DEFAULT_REGION

    def fields(self) -> tuple[object, ...]:
        return (
            "Recall", self.time, self.region, self.group, self.topic, self.msg_id, self.success,
        )  # fmt: skip


def decode(text: str) -> Iterator[tuple[str, ...]]:
    """The fields of each record in a message of the trace topic, its kind first."""
    for record in text.split(_RECORD):
        if record:
            yield tuple(record.split(_FIELD))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) or _NULL
