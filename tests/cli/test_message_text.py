"""Messages as lines of output."""

from __future__ import annotations

import json

import pytest

from pocketmq.cli.messages.message_text import json_line, terminal_line, text_line
from pocketmq.message.identity import pack_host
from pocketmq.message.message import MessageExt


@pytest.fixture
def message() -> MessageExt:
    return MessageExt(
        topic="orders",
        body="zwei Kaffee ☕".encode(),
        properties_bytes=b"TAGS\x01paid\x02KEYS\x01o-1 o-2\x02shop\x017\x02",
        flag=0,
        queue_id=3,
        queue_offset=41,
        physical_offset=1234,
        sys_flag=0,
        born_timestamp=1_795_248_000_000,
        packed_born_host=pack_host("127.0.0.1", 50000),
        store_timestamp=1_795_248_000_001,
        packed_store_host=pack_host("127.0.0.1", 10911),
        reconsume_times=0,
        prepared_transaction_offset=0,
        store_size=200,
        body_crc=1,
        broker_name="broker-a",
    )


def test_text_is_the_body(message: MessageExt) -> None:
    assert text_line(message) == "zwei Kaffee ☕\n".encode()


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b"a\x1b[2Jb\nc\r", "a\ufffd[2Jb\nc\ufffd\n"),
        (b"\xff\x1b", "0xff1b\n"),
    ],
)
def test_a_terminal_does_not_obey_a_body(message: MessageExt, body: bytes, line: str) -> None:
    message.body = body
    assert terminal_line(message).decode() == line
    assert text_line(message) == body + b"\n"


def test_json_names_everything_in_one_line(message: MessageExt) -> None:
    line = json_line(message)
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "orders",
        "brokerName": "broker-a",
        "queueId": 3,
        "queueOffset": 41,
        "msgId": "7F00000100002A9F00000000000004D2",
        "tags": "paid",
        "keys": ["o-1", "o-2"],
        "properties": {"TAGS": "paid", "KEYS": "o-1 o-2", "shop": "7"},
        "flag": 0,
        "bornTimestamp": 1_795_248_000_000,
        "storeTimestamp": 1_795_248_000_001,
        "reconsumeTimes": 0,
        "body": "zwei Kaffee ☕",
    }


def test_a_body_that_is_no_text_is_base64(message: MessageExt) -> None:
    message.body = b"\xff\x00\n"
    fields = json.loads(json_line(message))
    assert fields["bodyBase64"] == "/wAK"
    assert "body" not in fields
