from __future__ import annotations

import zlib
from typing import Any

import pytest

from pocketmq.message import record as records
from pocketmq.message import record_layout as layout
from pocketmq.message.checksum import body_crc
from pocketmq.message.compression import CompressionError
from pocketmq.message.identity import pack_host
from pocketmq.message.message import MessageExt, MessageQueue
from pocketmq.message.properties import encode


def stored(body: bytes, properties: dict[str, str], sys_flag: int = 0) -> records.Record:
    text = encode(properties).encode()
    topic = b"TopicTest"
    size = layout.record_size(len(body), len(topic), len(text), sys_flag)
    host = pack_host("127.0.0.1", 10911)
    buffer = bytearray(size)
    layout.encode_into(
        buffer, 0, size, layout.MAGIC_V1, body_crc(body), 3, 7, 11, 4096, sys_flag,
        1000, host, 2000, host, 2, 0, body, topic, text,
    )  # fmt: skip
    return records.decode(buffer)


def test_a_received_message() -> None:
    properties = {"TAGS": "TagA", "KEYS": " k1  k2 ", "UNIQ_KEY": "U"}
    message = MessageExt.from_record(stored(b"hello", properties), "broker-a")
    assert (message.topic, message.body, message.tags) == ("TopicTest", b"hello", "TagA")
    assert message.keys == ("k1", "k2")
    assert message.properties == properties
    assert message.msg_id == "U"
    assert message.offset_msg_id == "7F00000100002A9F0000000000001000"
    assert message.born_host == message.store_host == "127.0.0.1:10911"
    assert message.queue == MessageQueue("TopicTest", "broker-a", 3)
    assert (message.queue_offset, message.flag, message.reconsume_times) == (11, 7, 2)


def test_a_received_message_without_properties() -> None:
    message = MessageExt.from_record(stored(b"hello", {}))
    assert (message.tags, message.keys, message.properties) == (None, (), {})
    assert message.msg_id == message.offset_msg_id


def test_compressed_bodies_are_inflated() -> None:
    plain = b"again and " * 100
    message = MessageExt.from_record(stored(zlib.compress(plain), {}, sys_flag=0x301))
    assert message.body == plain
    assert message.sys_flag == 0x300


@pytest.mark.parametrize(
    ("body", "limits"), [(b"not zlib", {}), (zlib.compress(b"x" * 100), {"max_body": 99})]
)
def test_bodies_that_do_not_inflate(body: bytes, limits: dict[str, Any]) -> None:
    with pytest.raises(CompressionError):
        MessageExt.from_record(stored(body, {}, sys_flag=0x1), **limits)
