"""Turns Arrow batches of rows into messages with their row numbers.

RocketMQ has no empty tags, keys or property values. If a row has an empty or null one, its message
has none.

`message_columns` has checked the columns on the driver; this runs in the tasks. Everything that
Arrow can check for a whole batch (no topic, no body, a body that is too large) is checked before
the first message of the batch is made, so no message of a batch with such a row is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from pocketmq.client.errors import RemotingError
from pocketmq.client.validation import check_topic_name
from pocketmq.message import properties as names
from pocketmq.message.limits import MAX_BODY, NO_SEND_TOPICS
from pocketmq.message.message import Message
from pocketmq.spark.message_columns import FIELDS
from pocketmq.spark.writing.json_body import json_bodies

#: The property that holds the id of a row.
ROW_ID: Final = "SPARK_ROW_ID"

ShardingKey = str | int | None


class RowError(ValueError):
    """A row that cannot be sent. The text gives the row, its topic, and the reason."""

    def __init__(self, row: int, topic: str | None, why: str) -> None:
        super().__init__(f"row {row} ({f'topic {topic}' if topic else 'no topic'}): {why}")
        self.row = row
        self.topic = topic


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive rows as messages.

    Attributes:
        first_row: the number of the first one in its task.
        messages: one for each row.
        sharding_keys: one for each row, None if it has none; empty without such a column.
    """

    first_row: int
    messages: list[Message]
    sharding_keys: Sequence[ShardingKey]


class Rows:
    """Makes messages from the rows of one task.

    Args:
        topic: of all messages; None takes it from the column.
        json_body: make the body from the columns that are not fields of a message.
        id_prefix: the prefix of the row ids, before the row number. None: no ids.
        most_messages, most_bytes: of one block; a larger message is a block by itself.
    """

    def __init__(
        self,
        topic: str | None,
        *,
        json_body: bool = False,
        id_prefix: str | None = None,
        most_messages: int,
        most_bytes: int,
    ) -> None:
        self._topic = topic
        self._json_body = json_body
        self._id_prefix = id_prefix
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._done = 0

    def blocks(self, batch: Any) -> Iterator[Block]:
        """Yield the rows of a `pyarrow.RecordBatch` as messages, in order.

        Raises:
            RowError: the topic of a row is missing or invalid, its body is missing or too large, or
                its properties or keys cannot be sent. Except in the last case, nothing of this
                batch was yielded.
        """
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        first = self._done
        self._done += batch.num_rows
        topics = self._checked_topics(columns, first)
        bodies, sizes = self._bodies(columns)
        self._check_sizes(sizes, topics, first)
        fields = {
            name: columns[name]
            for name in FIELDS
            if name in columns and name not in ("topic", "body")
        }
        for start, stop in _cuts(sizes, self._most_messages, self._most_bytes):
            length = stop - start
            values = {
                name: _READERS[name](column.slice(start, length)) for name, column in fields.items()
            }
            messages = self._messages(
                first + start,
                _cut(topics, start, stop) if self._topic is None else [self._topic] * length,
                _cut(bodies, start, stop),
                values,
            )
            yield Block(first + start, messages, values.get("shardingKey", ()))

    def _checked_topics(self, columns: dict[str, Any], first: int) -> Any:
        """The column of topics; None if the option names the topic."""
        if self._topic is not None:
            return None
        topics = columns["topic"]
        if topics.null_count:
            row = first + _first(pc.is_null(topics))
            raise RowError(row, None, "the column topic is null, and there is no option topic")
        for topic in pc.unique(topics).to_pylist():
            why = None
            try:
                check_topic_name(topic)
            except RemotingError as error:
                why = str(error)
            if topic in NO_SEND_TOPICS:
                why = "this topic is RocketMQ's own; choose another one by the option topic"
            if why is not None:
                raise RowError(first + _first(pc.equal(topics, topic)), topic, why)
        return topics

    def _bodies(self, columns: dict[str, Any]) -> tuple[Any, Any]:
        """Return the bodies, and an array of their sizes; that of a null is -1."""
        if self._json_body:
            in_body = [name for name in columns if name == "body" or name not in FIELDS]
            encoded = json_bodies(in_body, [columns[name] for name in in_body])
            return encoded, np.fromiter(map(len, encoded), np.int64, len(encoded))
        bodies = columns["body"]
        if kinds.is_string(bodies.type) or kinds.is_large_string(bodies.type):
            large = kinds.is_large_string(bodies.type)
            bodies = bodies.cast(pa.large_binary() if large else pa.binary())
        sizes = pc.fill_null(pc.binary_length(bodies), -1)
        return bodies, sizes.to_numpy(zero_copy_only=False).astype(np.int64)

    def _check_sizes(self, sizes: Any, topics: Any, first: int) -> None:
        wrong = np.flatnonzero((sizes <= 0) | (sizes > MAX_BODY))
        if not len(wrong):
            return
        index = int(wrong[0])
        size = int(sizes[index])
        if size > 0:
            why = f"its body has {size} bytes, over the maximum of {MAX_BODY}"
        else:
            why = "its body is null" if size < 0 else "its body is empty"
            why += "; RocketMQ has no messages without a body"
        topic = self._topic if topics is None else topics[index].as_py()
        raise RowError(first + index, topic, why)

    def _messages(
        self,
        row: int,
        topics: list[str],
        bodies: list[bytes],
        values: dict[str, list[Any]],
    ) -> list[Message]:
        messages = [Message(*pair) for pair in zip(topics, bodies, strict=True)]
        prefix = self._id_prefix
        if "properties" in values:
            for number, (message, properties) in enumerate(
                zip(messages, values["properties"], strict=True), row
            ):
                if self._topic is None:
                    message.topic = _origin(properties) or message.topic
                own = {
                    name: value
                    for name, value in properties
                    if value
                    and name
                    and name not in names.RESERVED
                    and not name.startswith(names.TRANSIENT_PREFIX)
                }
                if prefix is not None:
                    own[ROW_ID] = f"{prefix}{number}"
                message.properties = own
        elif prefix is not None:
            for number, message in enumerate(messages, row):
                message.properties[ROW_ID] = f"{prefix}{number}"
        for name, attribute in _ATTRIBUTES.items():
            if name in values:
                for message, value in zip(messages, values[name], strict=True):
                    if value is not None and value != "":
                        setattr(message, attribute, value)
        return messages


#: The columns whose values become attributes unchanged; null leaves the default.
_ATTRIBUTES: Final = {
    "tags": "tags",
    "keys": "keys",
    "flag": "flag",
    "delayLevel": "delay_level",
    "deliverAt": "deliver_at",
    "priority": "priority",
}


def _origin(properties: Sequence[tuple[str, str]]) -> str | None:
    """Return the original topic of a message of a retry or dead-letter topic; None for others."""
    found: dict[str, str] = {
        name: value
        for name, value in properties
        if name in (names.DLQ_ORIGIN_TOPIC, names.RETRY_TOPIC)
    }
    return found.get(names.DLQ_ORIGIN_TOPIC) or found.get(names.RETRY_TOPIC)


def _cut(column: Any, start: int, stop: int) -> list[Any]:
    """Part of an Arrow array or of a list, as a list."""
    if isinstance(column, list):
        return column[start:stop]
    return _list(column.slice(start, stop - start))


def _list(column: Any) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values


def _keys(column: Any) -> list[Any]:
    """Return lists of keys; keys in a string are separated by spaces, as in RocketMQ."""
    if kinds.is_string(column.type) or kinds.is_large_string(column.type):
        return [text and text.split() for text in column.to_pylist()]
    return [keys and [key for key in keys if key] for keys in column.to_pylist()]


def _pairs(column: Any) -> list[Sequence[tuple[str, str]]]:
    """Return the entries of maps. Takes a third of the time of Arrow's `to_pylist`."""
    offsets = column.offsets.to_pylist()
    begin, end = offsets[0], offsets[-1]
    keys = column.keys.slice(begin, end - begin).to_pylist()
    items = column.items.slice(begin, end - begin).to_pylist()
    pairs = list(zip(keys, items, strict=True))
    if begin:
        offsets = [offset - begin for offset in offsets]
    # A null map may have entries in its buffers.
    valid = column.is_valid().to_pylist() if column.null_count else None
    cut: list[Sequence[tuple[str, str]]] = [pairs[at:to] for at, to in pairwise(offsets)]
    if valid is None:
        return cut
    return [entries if there else [] for entries, there in zip(cut, valid, strict=True)]


def _milliseconds(column: Any) -> list[int | None]:
    """Times as Unix milliseconds."""
    utc = pa.timestamp("ms", tz="UTC")
    values: list[int | None] = column.cast(utc, safe=False).cast(pa.int64()).to_pylist()
    return values


_READERS: Final = {
    "tags": _list,
    "keys": _keys,
    "properties": _pairs,
    "flag": _list,
    "shardingKey": _list,
    "delayLevel": _list,
    "deliverAt": _milliseconds,
    "priority": _list,
}


def _cuts(sizes: Any, most_messages: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut rows into runs as long as both limits allow; at least one row each."""
    ends = np.cumsum(sizes)
    start, before = 0, 0
    while start < len(sizes):
        stop = int(np.searchsorted(ends, before + most_bytes, side="right"))
        stop = max(start + 1, min(stop, start + most_messages))
        yield start, stop
        start, before = stop, int(ends[stop - 1])


def _first(flags: Any) -> int:
    index: int = pc.index(flags, pa.scalar(True)).as_py()
    return index
