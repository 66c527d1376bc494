"""Encodes records for appending, in as few calls as possible.

The layout is that of `pocketmq.message.record_layout` (a test compares the two).
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from pocketmq.message.buffers import ReadableBuffer
from pocketmq.message.record_layout import MAGIC_V1, MAGIC_V2, MAX_TOPIC_V1

# size … bodyLength, by the sysFlag bits 4 and 5.
_HEADS: Final = tuple(
    Struct(f">iIiiiqqiq{born}sq{store}siqi") for born, store in ((8, 8), (20, 8), (8, 20), (20, 20))
)
_PACK_HEAD: Final = tuple(head.pack for head in _HEADS)
_HEAD_SIZES: Final = tuple(head.size for head in _HEADS)
pack_length: Final = Struct(">H").pack


class TopicField(NamedTuple):
    """The common part of all records of one topic.

    `encoded` is the topic with its length before it; `overhead` the bytes of a record that are
    neither head, body nor properties.
    """

    magic: int
    encoded: bytes
    overhead: int

    @classmethod
    def of(cls, topic: str) -> TopicField:
        """Return the field of `topic`: v2 records where its length does not fit into v1's signed
        byte."""
        name = topic.encode()
        if len(name) > MAX_TOPIC_V1:
            encoded = pack_length(len(name)) + name
            return cls(MAGIC_V2, encoded, len(encoded) + 2)
        encoded = bytes((len(name),)) + name
        return cls(MAGIC_V1, encoded, len(encoded) + 2)


def head_size(sys_flag: int) -> int:
    """Return the bytes of a record up to and including the body length."""
    return _HEAD_SIZES[sys_flag >> 4 & 3]


def head_packer(sys_flag: int) -> Callable[..., bytes]:
    """Packs a record up to and including the body length: size, magic, CRC, queue id, flag, queue
    offset, physical offset, sysFlag, born timestamp, born host, store timestamp, store host,
    reconsume times, prepared transaction offset, body length."""
    return _PACK_HEAD[sys_flag >> 4 & 3]


def record_parts(
    size: int,
    topic: TopicField,
    crc: int,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    body: ReadableBuffer,
    properties: bytes,
) -> tuple[ReadableBuffer, ...]:
    """One record, of `size` bytes, in parts. Lengths are the caller's to check."""
    return (
        _PACK_HEAD[sys_flag >> 4 & 3](
            size, topic[0], crc, queue_id, flag, queue_offset, physical_offset, sys_flag,
            born_timestamp, born_host, store_timestamp, store_host, reconsume_times,
            prepared_transaction_offset, len(body),
        ),
        body,
        topic[1],
        pack_length(len(properties)),
        properties,
    )  # fmt: skip
