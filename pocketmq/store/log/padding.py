"""Records that replace damage in the commit log, so that both brokers step over it.

A repair (`store.repair`) puts them there. They are rolled-back transactions, which no broker enters
into a queue, with a body of zeros and `PADDING_FLAG` as their flag. Where the damaged message is
known, its padding names the topic, the queue and the queue offset, and in its properties the light
queues: recovery does not give these offsets again.
"""

from __future__ import annotations

from typing import Final

from pocketmq.message.checksum import body_crc
from pocketmq.message.multi_dispatch import LIGHT_QUEUE_ID, light_places, with_offsets
from pocketmq.message.record import Record
from pocketmq.message.record_layout import MAGIC_V1, MAGIC_V2, MAX_TOPIC_V1, MIN_RECORD, encode_into
from pocketmq.message.sysflag import TRANSACTION_MASK, TRANSACTION_ROLLBACK

PADDING_FLAG: Final = 0x4C4F5354  # LOST
UNKNOWN_TOPIC: Final = "PADDING"
"""The topic, or the begin of it, of padding for what nobody knows any more."""
MIN_PADDING: Final = MIN_RECORD + 1
"""Bytes: a topic has a letter at least."""
_HOST: Final = bytes(8)


def is_padding(record: Record) -> bool:
    """Return whether a record replaces a damaged one."""
    rolled_back = record.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK
    return record.flag == PADDING_FLAG and rolled_back


def lost_places(record: Record) -> list[tuple[str, int, int]]:
    """Return topic, queue id and queue offset of the entries of the message that padding replaces,
    if that is known."""
    if not is_padding(record) or record.queue_offset < 0:
        return []
    light = light_places(record.topic, record.properties_text)
    return [
        (record.topic, record.queue_id, record.queue_offset),
        *((name, LIGHT_QUEUE_ID, offset) for name, offset in light),
    ]


def padding(physical_offset: int, size: int, timestamp: int) -> bytes:
    """Return a record of `size` bytes (≥ `MIN_PADDING`) for what nobody knows any more;
    `timestamp` is its store timestamp (ms)."""
    topic = UNKNOWN_TOPIC[: size - MIN_RECORD]
    return padding_for(physical_offset, size, timestamp, topic, 0, -1, {})


def padding_for(
    physical_offset: int,
    size: int,
    timestamp: int,
    topic: str,
    queue_id: int,
    queue_offset: int,
    light: dict[str, int],
) -> bytes:
    """Return a record of `size` bytes for a message of which this is known; `light` has its queue
    offsets in light queues.

    Raises ValueError when a record of that size has no room for that.
    """
    properties = with_offsets("", light).encode() if light else b""
    name = topic.encode()
    version_2 = len(name) > MAX_TOPIC_V1
    rest = MIN_RECORD + version_2 + len(name) + len(properties)
    body = bytes(max(0, size - rest))
    if rest + len(body) != size:
        raise ValueError(f"a record of {size} bytes has no room for the topic {topic}")
    record = bytearray(size)
    encode_into(
        record, 0, size, MAGIC_V2 if version_2 else MAGIC_V1, body_crc(body), queue_id,
        PADDING_FLAG, queue_offset, physical_offset, TRANSACTION_ROLLBACK, timestamp, _HOST,
        timestamp, _HOST, 0, 0, body, name, properties,
    )  # fmt: skip
    return bytes(record)
