"""The columns of a scan: their Arrow types, and how each is made from a block of records."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pocketmq.message import properties as names
from pocketmq.message.identity import host_text
from pocketmq.message.sysflag import BORN_HOST_V6, COMPRESSED, STORE_HOST_V6
from pocketmq.store.scan.queues.segments import ByteArray, Int64Array
from pocketmq.store.scan.records.gather import Places
from pocketmq.store.scan.records.property_table import PropertyTable, split_keys

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
KEYS_TYPE: Final = pa.list_(pa.field("element", pa.string()))
PROPERTIES_TYPE: Final = pa.map_(pa.string(), pa.string())

COLUMNS: Final[dict[str, Any]] = {
    "topic": pa.string(),
    "queueId": pa.int32(),
    "brokerName": pa.string(),
    "queueOffset": pa.int64(),
    "physicalOffset": pa.int64(),
    "body": pa.binary(),
    "tags": pa.string(),
    "keys": KEYS_TYPE,
    "properties": PROPERTIES_TYPE,
    "flag": pa.int32(),
    "bornTimestamp": TIMESTAMP,
    "storeTimestamp": TIMESTAMP,
    "msgId": pa.string(),
    "reconsumeTimes": pa.int32(),
}
METADATA_COLUMNS: Final[dict[str, Any]] = {
    "bornHost": pa.string(),
    "storeHost": pa.string(),
    "sysFlag": pa.int32(),
    "storeSize": pa.int32(),
    "bodyCRC": pa.int32(),
    "preparedTransactionOffset": pa.int64(),
    "offsetMsgId": pa.string(),
}
ALL_COLUMNS: Final = COLUMNS | METADATA_COLUMNS
ENTRY_COLUMNS: Final = frozenset(
    {"topic", "queueId", "brokerName", "queueOffset", "physicalOffset", "storeSize"}
)
"""Columns that consume queues know without the log."""

_HEX: Final = np.frombuffer(b"".join(b"%02X" % value for value in range(256)), np.dtype("S2"))
# The years 1 to 9999, all that Spark's and Python's times can hold; in ms. Producers may send
# anything as the time of a message's birth.
_FIRST_MS: Final = -62_135_596_800_000
_LAST_MS: Final = 253_402_300_799_999


class Block:
    """Some records of one queue, or of several, all of them good.

    Attributes:
        broker_name, topic, queue_id, queue_offset: of the queue that holds them. Of several queues
            `topic` is an Arrow array, and `queue_id` an array.
        fields: heads as in `pocketmq.store.scan.records.heads.Heads`.
        texts: the positions of the properties texts.
        bodies: an Arrow array; None when they are not needed.
        decompress: whether bodies are given decompressed.
    """

    def __init__(
        self,
        broker_name: str,
        topic: Any,
        queue_id: int | npt.NDArray[np.int64],
        queue_offset: Int64Array,
        fields: npt.NDArray[Any],
        texts: Places,
        bodies: Any = None,
        *,
        decompress: bool,
    ) -> None:
        self.broker_name = broker_name
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.fields = fields
        self.texts = texts
        self.bodies = bodies
        self.decompress = decompress

    def without(self, rows: npt.NDArray[np.bool_]) -> Block:
        """Return the other records."""
        number = np.flatnonzero(~rows)
        return Block(
            self.broker_name,
            self.topic,
            self.queue_id,
            self.queue_offset[number],
            self.fields[number],
            self.texts.rows(number),
            None if self.bodies is None else self.bodies.take(pa.array(number)),
            decompress=self.decompress,
        )

    def __len__(self) -> int:
        return len(self.fields)

    def column(self, name: str) -> Any:
        """One of the columns as an Arrow array of its type in `ALL_COLUMNS`."""
        return _MAKERS[name](self)

    @cached_property
    def properties(self) -> PropertyTable:
        """The properties, taken apart."""
        return PropertyTable(self.texts)

    def topics(self) -> Any:
        """Return the topic of each record."""
        if isinstance(self.topic, str):
            return pa.repeat(pa.scalar(self.topic), len(self))
        return self.topic

    def queue_ids(self) -> Any:
        """Return the id of each record's queue."""
        if isinstance(self.queue_id, int):
            return pa.repeat(pa.scalar(self.queue_id, pa.int32()), len(self))
        return pa.array(self.queue_id.astype(np.int32))

    def integers(self, field: str, kind: npt.DTypeLike) -> Any:
        """Return a field of the head in the byte order of this machine."""
        return pa.array(self.fields[field].astype(kind))

    def times(self, field: str) -> Any:
        """Return a time of the head; times outside of the years 1 to 9999 are clamped."""
        millis = self.fields[field].astype(np.int64)
        return pa.array(np.clip(millis, _FIRST_MS, _LAST_MS) * 1000).view(TIMESTAMP)

    def hosts(self, field: str, v6: int) -> Any:
        """Return a host of the head as `ip:port`. Each distinct host is formatted once."""
        raw = _bytes_of(self.fields[field])
        is_v6 = (self.fields["sys_flag"] & v6) != 0
        # The flag as a last byte distinguishes values that differ only in trailing zeros.
        marked = np.ascontiguousarray(np.column_stack([raw, is_v6.astype(np.uint8)]))
        kind = pa.binary(marked.shape[1])
        array = pa.Array.from_buffers(kind, len(marked), [None, pa.py_buffer(marked)])
        distinct = array.dictionary_encode()
        texts = [
            host_text(host[:20] if host[-1] else host[:8])
            for host in distinct.dictionary.to_pylist()
        ]
        return pa.array(texts, pa.string()).take(distinct.indices)

    def offset_msg_ids(self) -> Any:
        """Store host and physical offset in hexadecimal digits."""
        host = _bytes_of(self.fields["store_host"])
        physical = _bytes_of(self.fields["physical_offset"])
        raw = np.zeros((len(self), host.shape[1] + 8), np.uint8)
        raw[:, : host.shape[1]] = host
        raw[:, host.shape[1] :] = physical
        length = np.full(len(self), raw.shape[1], np.int64)
        if host.shape[1] > 8:  # rows with an IPv4 host among such with IPv6
            v4 = (self.fields["sys_flag"] & STORE_HOST_V6) == 0
            raw[v4, 8:16] = physical[v4]
            length[v4] = 16
        digits = _HEX[raw].view(np.uint8).reshape(len(self), -1)
        offsets = np.zeros(len(self) + 1, np.int32)
        np.cumsum(2 * length, out=offsets[1:])
        chosen = digits[np.arange(digits.shape[1]) < 2 * length[:, None]]
        return pa.Array.from_buffers(
            pa.string(), len(self), [None, pa.py_buffer(offsets), pa.py_buffer(chosen)]
        )

    def msg_ids(self) -> Any:
        """Return the producer's unique id, or else the offset message id."""
        unique = self.properties.column(names.UNIQ_KEY)
        return unique if unique.null_count == 0 else pc.coalesce(unique, self.offset_msg_ids())

    def sys_flags(self) -> Any:
        """As stored, without the COMPRESSED bit when bodies are given decompressed."""
        flags = self.fields["sys_flag"].astype(np.int32)
        return pa.array(flags & ~COMPRESSED if self.decompress else flags)


_MAKERS: Final[dict[str, Callable[[Block], Any]]] = {
    "topic": Block.topics,
    "queueId": Block.queue_ids,
    "brokerName": lambda block: pa.repeat(pa.scalar(block.broker_name), len(block)),
    "queueOffset": lambda block: pa.array(block.queue_offset),
    "physicalOffset": lambda block: block.integers("physical_offset", np.int64),
    "body": lambda block: block.bodies,
    "tags": lambda block: block.properties.column(names.TAGS),
    "keys": lambda block: split_keys(block.properties.column(names.KEYS), KEYS_TYPE),
    "properties": lambda block: block.properties.maps(PROPERTIES_TYPE),
    "flag": lambda block: block.integers("flag", np.int32),
    "bornTimestamp": lambda block: block.times("born_timestamp"),
    "storeTimestamp": lambda block: block.times("store_timestamp"),
    "msgId": Block.msg_ids,
    "reconsumeTimes": lambda block: block.integers("reconsume_times", np.int32),
    "bornHost": lambda block: block.hosts("born_host", BORN_HOST_V6),
    "storeHost": lambda block: block.hosts("store_host", STORE_HOST_V6),
    "sysFlag": Block.sys_flags,
    "storeSize": lambda block: block.integers("size", np.int32),
    "bodyCRC": lambda block: block.integers("body_crc", np.int32),
    "preparedTransactionOffset": lambda block: block.integers(
        "prepared_transaction_offset", np.int64
    ),
    "offsetMsgId": Block.offset_msg_ids,
}


def _bytes_of(column: npt.NDArray[Any]) -> ByteArray:
    width = column.dtype.itemsize
    return np.ascontiguousarray(column).view(np.uint8).reshape(len(column), width)
