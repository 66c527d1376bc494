"""`MessageExt.read_into` is quick with what most records are; the long way says what is right."""

from __future__ import annotations

import zlib
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message import message
from pocketmq.message import record_layout as layout
from pocketmq.message.alike_records import read_alike, read_alike_in_python
from pocketmq.message.checksum import body_crc
from pocketmq.message.compression import CompressionError
from pocketmq.message.message import MessageExt
from pocketmq.message.record_layout import RecordError, decode_parts
from tests.message.test_record import a_record, encoded, fields


@st.composite
def pulled(draw: st.DrawFn) -> bytes:
    """Records as an answer to a pull has them: most alike, some not, a few broken."""
    topic = draw(st.sampled_from([b"T", b"", b"TopicTest", b"t" * 200]))
    common = {
        "topic": topic,
        "magic": layout.MAGIC_V2 if len(topic) > layout.MAX_TOPIC_V1 else layout.MAGIC_V1,
    }
    data = b""
    for _ in range(draw(st.integers(0, 6))):
        body = draw(st.binary(max_size=30))
        values: dict[str, Any] = common | {"body": body, "body_crc": body_crc(body)}
        kind = draw(st.sampled_from(["alike"] * 4 + ["any", "compressed", "other topic"]))
        if kind == "any":
            data += encoded(draw(fields()))
            continue
        if kind == "compressed":
            body = draw(st.sampled_from([zlib.compress(body), body or b"no zlib"]))
            values |= {"body": body, "body_crc": body_crc(body), "sys_flag": 0x1}
        elif kind == "other topic":
            values["topic"] = draw(st.sampled_from([b"T", b"U", b"TopicTest2"]))
        data += a_record(**values)
    damaged = bytearray(data)
    for _ in range(draw(st.sampled_from([0, 0, 1, 2])) if data else 0):
        damaged[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(damaged[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else damaged)


def the_long_way(data: bytes) -> tuple[list[MessageExt], list[str], str]:
    messages: list[MessageExt] = []
    undecodable: list[str] = []
    at = 0
    try:
        while at < len(data):
            parts = decode_parts(data, at)
            try:
                message = MessageExt.from_parts(parts, "b")
            except CompressionError as error:
                message = MessageExt.from_parts(parts, "b", None)
                undecodable.append(str(error))
            messages.append(message)
            at += message.store_size
    except RecordError as error:
        return messages, undecodable, str(error)
    return messages, undecodable, ""


@pytest.mark.parametrize("way", list(dict.fromkeys((read_alike, read_alike_in_python))))
@given(data=pulled())
def test_both_ways_give_the_same(way: Any, data: bytes) -> None:
    with mock.patch.object(message, "read_alike", way):
        check(data)


@pytest.mark.parametrize("way", list(dict.fromkeys((read_alike, read_alike_in_python))))
@given(data=pulled(), rooms=st.lists(st.integers(1, 20_000), min_size=1, max_size=8))
def test_what_has_no_room_is_read_later(way: Any, data: bytes, rooms: list[int]) -> None:
    messages: list[MessageExt] = []
    error = ""
    at = 0
    with mock.patch.object(message, "read_alike", way):
        try:
            while at < len(data):
                room = rooms[len(messages) % len(rooms)]
                known = len(messages)
                at = MessageExt.read_into(messages, data, "b", lambda *_: None, at, room)
                *others, _last = messages[known:]
                assert sum(len(m.body) + message.MESSAGE_OVERHEAD for m in others) < room
        except RecordError as raised:
            error = str(raised)
    expected, _, why = the_long_way(data)
    assert (messages, error) == (expected, why)


def check(data: bytes) -> None:
    messages: list[MessageExt] = []
    undecodable: list[str] = []
    error = ""
    try:
        MessageExt.read_into(messages, data, "b", lambda _, why: undecodable.append(str(why)))
    except RecordError as raised:
        error = str(raised)
    assert (messages, undecodable, error) == the_long_way(data)


def test_records_alike_are_read_to_the_end() -> None:
    """The quick way is taken at all: it makes no text of its own for each topic."""
    data = b"".join(
        a_record(queue_offset=at, body=b"%d" % at, body_crc=body_crc(b"%d" % at))
        for at in range(100)
    )
    messages: list[MessageExt] = []
    MessageExt.read_into(messages, data, "b", lambda *_: None)
    assert [(m.queue_offset, m.body) for m in messages] == [(at, b"%d" % at) for at in range(100)]
    assert {(m.topic, m.tags, m.broker_name, m.sys_flag) for m in messages} == {
        ("TopicTest", "TagA", "b", 0)
    }
    assert len({id(m.topic) for m in messages[1:]}) == 1
