"""Lines as messages to send, and what is said of a line that is none."""

from __future__ import annotations

import json

import pytest

from pocketmq.cli.messages.message_lines import MessageTemplate
from pocketmq.client.errors import InvalidMessage
from pocketmq.message.message import Message

TEMPLATE = MessageTemplate("orders", tag="paid", keys=("all",), properties={"shop": "7"}, delay=1.5)


def test_a_plain_line_is_the_body() -> None:
    assert TEMPLATE.plain(b'{"body": 1}') == Message(
        "orders",
        b'{"body": 1}',
        tags="paid",
        keys=("all",),
        properties={"shop": "7"},
        delay=1.5,
    )


def test_the_key_stands_before_the_separator() -> None:
    message = TEMPLATE.keyed(": ")(b"o-1: {a: b}")
    assert (message.keys, message.body) == (("all", "o-1"), b"{a: b}")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"no key", "no separator ':'"),
        (b"k:", "the body behind the separator ':' is empty"),
        (b"a b:c", "'a b' is not one key"),
        (b":c", "'' is not one key"),
    ],
)
def test_a_line_without_a_key_is_refused(line: bytes, said: str) -> None:
    with pytest.raises(InvalidMessage, match=said):
        TEMPLATE.keyed(":")(line)


def test_a_json_line_has_what_a_message_has() -> None:
    line = {
        "body": "zwei Kaffee ☕",
        "tags": "open",
        "keys": ["a", "b"],
        "properties": {"till": "2"},
        "delay": "5m",
    }
    assert TEMPLATE.json(json.dumps(line).encode()) == Message(
        "orders",
        "zwei Kaffee ☕".encode(),
        tags="open",
        keys=("a", "b"),
        properties={"shop": "7", "till": "2"},
        delay=300,
    )


def test_a_json_line_keeps_what_it_does_not_replace() -> None:
    message = TEMPLATE.json(b'{"body": "x"}')
    assert (message.tags, message.keys, message.delay) == ("paid", ("all",), 1.5)


def test_a_line_may_have_a_priority() -> None:
    template = MessageTemplate("orders", priority=3)
    assert template.plain(b"x").priority == 3
    assert template.json(b'{"body": "x"}').priority == 3
    assert template.json(b'{"body": "x", "priority": 0}').priority == 0


@pytest.mark.parametrize(
    ("line", "body"),
    [
        (b'{"body": {"id": 1}}', b'{"id":1}'),
        (b'{"body": [1, 2]}', b"[1,2]"),
        (b'{"bodyBase64": "/wA="}', b"\xff\x00"),
    ],
)
def test_a_body_may_be_json_or_base64(line: bytes, body: bytes) -> None:
    assert TEMPLATE.json(line).body == body


def test_one_key_needs_no_list() -> None:
    assert TEMPLATE.json(b'{"body": "x", "keys": "o-1"}').keys == ("o-1",)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"body", "not JSON"),
        (b'"body"', "not a JSON object"),
        (b"{}", "needs one of the fields body and bodyBase64"),
        (b'{"body": "x", "bodyBase64": "eA=="}', "needs one of the fields"),
        (b'{"body": ""}', "the body is empty"),
        (b'{"body": "x", "tag": "a"}', "unknown field 'tag', did you mean tags"),
        (b'{"body": "x", "urgency": 1}', "unknown field 'urgency'; the fields are body, "),
        (b'{"bodyBase64": "?"}', "bodyBase64 is not a text in Base64"),
        (b'{"bodyBase64": 1}', "bodyBase64 is not a text in Base64"),
        (b'{"body": "x", "tags": "a||b"}', "'a||b' is not one tag"),
        (b'{"body": "x", "tags": ["a"]}', "field tags is not a text"),
        (b'{"body": "x", "keys": ["a b"]}', "'a b' is not one key"),
        (b'{"body": "x", "keys": [1]}', "field keys is not a text: 1"),
        (b'{"body": "x", "properties": "a=b"}', "field properties is not an object"),
        (b'{"body": "x", "properties": {"n": 1}}', "property 'n' is not a text: 1"),
        (b'{"body": "x", "delay": -1}', "field delay is negative: -1"),
        (b'{"body": "x", "delay": "soon"}', "'soon' is not a duration"),
        (b'{"body": "x", "delay": true}', "field delay is neither seconds nor"),
    ],
)
def test_what_is_wrong_with_a_json_line_is_named(line: bytes, said: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        TEMPLATE.json(line)
    assert said in str(refused.value)
