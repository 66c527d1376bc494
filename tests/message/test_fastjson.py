from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message.fastjson import decode, decode_into, encode, encode_steps, message_queue_of
from pocketmq.message.fastjson_text import FastjsonError
from pocketmq.message.message import MessageQueue
from tests.namesrv.registrations import finished

QUEUE = MessageQueue("T", "b0", 1)
QUEUE_TEXT = '{"brokerName":"b0","queueId":1,"topic":"T"}'

# Values whose keys are all strings or all integers, so that nothing collides when read.
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text().filter(lambda key: key != "$ref"), inner, max_size=4)
        | st.dictionaries(st.integers(-(2**63), 2**63), inner, max_size=4)
    ),
    max_leaves=20,
)


def as_read(value: Any) -> Any:
    """What is read back: keys become text, entries that are None are left out."""
    if isinstance(value, dict):
        return {str(k): as_read(v) for k, v in value.items() if v is not None}
    return [as_read(item) for item in value] if isinstance(value, list) else value


@given(values, st.booleans())
def test_round_trip(value: Any, standard: bool) -> None:
    assert decode(encode(value, standard=standard)) == as_read(value)


@given(values)
def test_the_standard_form_is_json(value: Any) -> None:
    assert json.loads(encode(value, standard=True)) == as_read(value)


@given(values, st.integers(0, 200), st.characters(codec="utf-8"))
def test_damaged_text_is_read_or_an_error(value: Any, at: int, other: str) -> None:
    text = encode(value).decode()
    damaged = text[:at] + other + text[at + 1 :]
    try:
        decode(damaged)
    except FastjsonError:
        with pytest.raises(json.JSONDecodeError):
            json.loads(damaged)


@given(st.text('{}[]:,"\\ 1a$', max_size=30))
def test_any_text_is_read_or_an_error(text: str) -> None:
    try:
        wanted = json.loads(text)
    except ValueError:
        try:
            decode(text)
        except FastjsonError:
            return
    else:
        assert decode(text) == wanted


def test_integer_keys() -> None:
    text = '{"offsetTable":{"a@g":{0:1\n\t\t},"b@g": {  -1 : 2, 10:[3,4]}},"text":"{5:6},7:"}'
    assert decode(text) == {
        "offsetTable": {"a@g": {"0": 1}, "b@g": {"-1": 2, "10": [3, 4]}},
        "text": "{5:6},7:",
    }


def test_names_without_quotes() -> None:
    assert decode("{a:true, $b_1:{c : null}}") == {"a": True, "$b_1": {"c": None}}


def test_object_keys() -> None:
    text = f'{{"offsetTable":{{{QUEUE_TEXT}:7,{QUEUE_TEXT.replace("1", "2")} : {{0:1}}}}}}'
    table = decode(text)["offsetTable"]
    assert {message_queue_of(key): value for key, value in table.items()} == {
        QUEUE: 7,
        QUEUE._replace(queue_id=2): {"0": 1},
    }


def test_queue_keys_are_written_in_both_forms() -> None:
    table = {"offsetTable": {QUEUE: 7}}
    bare, standard = encode(table), encode(table, standard=True)
    assert bare.decode() == f'{{"offsetTable":{{{QUEUE_TEXT}:7}}}}'
    assert standard.decode() == f'{{"offsetTable":{{{json.dumps(QUEUE_TEXT)}:7}}}}'
    assert decode(bare) == decode(standard) == {"offsetTable": {QUEUE_TEXT: 7}}


def test_integer_keys_are_written_in_both_forms() -> None:
    assert encode({1: {2: "x"}}) == b'{1:{2:"x"}}'
    assert encode({1: {2: "x"}}, standard=True) == b'{"1":{"2":"x"}}'


def test_structs_are_written_by_their_wire_names() -> None:
    class Body(msgspec.Struct, rename="camel"):
        offset_table: dict[int, int]
        queue_set: list[MessageQueue]
        not_set: str | None = None

    assert encode(Body({0: 5}, [QUEUE])).decode() == (
        f'{{"offsetTable":{{0:5}},"queueSet":[{QUEUE_TEXT}]}}'
    )
    assert encode(Body({}, [])) == b'{"offsetTable":{},"queueSet":[]}'


@pytest.mark.parametrize("key", [1.5, None, True, (1, 2)])
def test_keys_that_cannot_be_written(key: Any) -> None:
    with pytest.raises(TypeError, match="a map key must be"):
        encode({key: 1})


def test_references() -> None:
    text = (
        '{"a":[{"x":1},{"$ref":"$.a[0]"}],"t-1":{3:{"y":2}},'
        '"m":{"$ref":"$.t\\\\-1.3"},"n":{"$ref":"$.t\\\\-1[3]"}}'
    )
    value = decode(text)
    assert value == {
        "a": [{"x": 1}, {"x": 1}],
        "t-1": {"3": {"y": 2}},
        "m": {"y": 2},
        "n": {"y": 2},
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a":{"$ref":"$.b"}}', "to nothing"),
        ('{"a":[{"$ref":"$.a[7]"}]}', "to nothing"),
        ('{"a":{"$ref":".."}}', "does not start at the root"),
        ('{"a":{"$ref":"$a"}}', "cannot be read"),
        ('{"a":{"$ref":"$.b"},"b":{"$ref":"$.a"}}', "to a reference"),
        ('{"a":{"b":{"$ref":"$"}}}', "encloses it"),
        ('{"a":{"x":{"$ref":"$.b"}},"b":{"y":{"$ref":"$.a"}}}', "encloses it"),
        ('{"a":[{"$ref":"$.a[' + "9" * 5000 + ']"}]}', "to nothing"),
    ],
)
def test_references_that_lead_nowhere(text: str, reason: str) -> None:
    with pytest.raises(FastjsonError, match=reason):
        decode(text)


def test_references_that_double_at_every_level() -> None:
    twice = '"l{}":[{{"$ref":"$.l{}"}},{{"$ref":"$.l{}"}}]'
    levels = ['"l0":[1,1]', *(twice.format(n, n - 1, n - 1) for n in range(1, 60))]
    with pytest.raises(FastjsonError, match="expand to more than"):
        decode("{" + ",".join(levels) + "}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "}",
        '{"a":1}}',
        '{"a',
        '{"a":"b',
        "{1:2",
        "{1}",
        '{"a":{1:}}',
        "{{1:2}:{{3:4}:5}",
        b"\xff",
        b"{1:\xff}",
        "[" * 100_000,
        "{1:" * 100_000,
        "{" * 100_000,
        '"' * 100_001,
        '\\"' * 50_000,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_broken_text(text: str | bytes) -> None:
    with pytest.raises(FastjsonError):
        decode(text)


def test_keys_within_keys_do_not_grow_without_bound() -> None:
    with pytest.raises(FastjsonError, match="within an object as key"):
        decode("{" * 50 + '"a":1}' + ":1}" * 49)
    # Beside each other they are fine, also in values below.
    assert decode("{{1:2}:{{3:4}:5},{6:7}:8}") == {'{"1":2}': {'{"3":4}': 5}, '{"6":7}': 8}


class Table(msgspec.Struct, rename="camel"):
    offset_table: dict[int, int]
    perm: int = 0


@pytest.mark.parametrize(
    "text",
    [
        b'{"offsetTable":{"1":2},"perm":6}',
        b'{"offsetTable":{"1":"2"},"perm":"6","unknown":[1]}',
        b'{"offsetTable":{1:2},"perm":6}',
        b'{"t":{1:2},"offsetTable":{"$ref":"$.t"},"perm":6}',
    ],
)
def test_decoding_into_a_type(text: bytes) -> None:
    for data in (text, memoryview(text), text.decode()):
        assert decode_into(data, Table) == Table({1: 2}, 6)


@pytest.mark.parametrize(
    "text", [b"[]", b'{"perm":6}', b'{"offsetTable":{1:"x"}}', b"{", b'{"offsetTable":{a:1}}']
)
def test_another_shape_is_an_error(text: bytes) -> None:
    with pytest.raises(FastjsonError):
        decode_into(text, Table)


@given(st.dictionaries(st.text(), values | st.dictionaries(st.integers(), st.integers())))
def test_a_table_written_in_steps_is_the_same(table: dict[str, Any]) -> None:
    assert encode({"table": finished(encode_steps(table))}) == encode({"table": table})


def test_a_large_table_is_written_in_many_steps() -> None:
    table = {f"t@g{number}": {0: 1, 1: -1} for number in range(10_000)}
    steps = encode_steps(table)
    assert sum(1 for _ in steps) >= 50
    assert bytes(finished(encode_steps(table))) == encode(table)
    assert encode(table).startswith(b'{"t@g0":{0:1,1:-1},"t@g1":{')


def test_large_entries_of_a_table_are_steps_of_their_own() -> None:
    table = {f"t@g{number}": dict.fromkeys(range(10_000), 1) for number in range(20)}
    assert sum(1 for _ in encode_steps(table)) >= 20
    assert bytes(finished(encode_steps(table))) == encode(table)


@pytest.mark.parametrize("key", ["", "7", '{"brokerName":"b0"}'])
def test_a_key_that_is_no_queue(key: str) -> None:
    with pytest.raises(FastjsonError, match="not a MessageQueue"):
        message_queue_of(key)


def test_config_files_of_the_official_broker(golden_clean: Any) -> None:
    for name, content in golden_clean.config.items():
        if content:
            assert isinstance(decode(content), dict), name
    assert decode(golden_clean.config["delayOffset.json"])["offsetTable"] == {
        "1": 2,
        "2": 1,
        "3": 3,
        "5": 0,
        "18": 0,
    }
    offsets = decode(golden_clean.config["consumerOffset.json"])["offsetTable"]
    assert offsets["Golden_retry@Golden_group"] == {"0": 0, "1": 1, "2": 1, "3": 1}
