"""Bodies about offsets: committed, reset, corrected."""

from __future__ import annotations

from typing import Any

from msgspec import field

from pocketmq.message.fastjson_text import FastjsonError
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.base import Body, QueueBody, keyed_by_queue, queue
from pocketmq.remoting.bodies.registration import DataVersion


class ConsumerOffsetSerializeWrapper(Body):
    """GET_ALL_CONSUMER_OFFSET: offset by queue id, by `topic@group`."""

    data_version: DataVersion = field(default_factory=DataVersion)
    group_topic_map: dict[str, list[str]] = field(default_factory=dict)
    offset_table: dict[str, dict[int, int]] = field(default_factory=dict)


class DelayOffsetSerializeWrapper(Body):
    """GET_ALL_DELAY_OFFSET: offset by delay level."""

    data_version: DataVersion | None = None
    offset_table: dict[int, int] = field(default_factory=dict)


class ResetOffsetBody(QueueBody):
    """The new offsets, of RESET_CONSUMER_CLIENT_OFFSET and the answer of 222.

    Read in all of its forms: objects as keys, the list for CPP clients, the pairs of Go.
    """

    offset_table: dict[MessageQueue, int] = field(default_factory=dict)

    @classmethod
    def _adapt(cls, fields: dict[str, Any]) -> None:
        table = fields.get("offsetTable")
        if isinstance(table, list):
            fields["offsetTable"] = dict(map(_queue_and_offset, table))
        else:
            fields["offsetTable"] = keyed_by_queue(table)


def _queue_and_offset(item: Any) -> tuple[Any, Any]:
    """Return queue and offset of a list's entry: one object with the offset, or a pair."""
    if isinstance(item, list) and len(item) == 2:
        return queue(item[0]), item[1]
    if isinstance(item, dict):
        return queue(item), item.get("offset")
    raise FastjsonError(f"no message queue with an offset: {item!r:.200}")


class MessageQueueForC(Body):
    """A queue with its new offset: C++ clients read a list of them in a `ResetOffsetBody`."""

    broker_name: str = ""
    offset: int = 0
    queue_id: int = 0
    topic: str = ""


class GetConsumerStatusBody(QueueBody):
    """A client's offsets (221), or those of several clients by clientId (223)."""

    consumer_table: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)
    message_queue_table: dict[MessageQueue, int] = field(default_factory=dict)

    @classmethod
    def _adapt(cls, fields: dict[str, Any]) -> None:
        clients = fields.get("consumerTable")
        if isinstance(clients, dict):
            fields["consumerTable"] = {c: keyed_by_queue(t) for c, t in clients.items()}
        fields["messageQueueTable"] = keyed_by_queue(fields.get("messageQueueTable"))


class QueryCorrectionOffsetBody(Body):
    """QUERY_CORRECTION_OFFSET: offset by queue id."""

    correction_offsets: dict[int, int] = field(default_factory=dict)
