"""What is read without msgspec is what `fastjson` reads with it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message import fastjson
from pocketmq.message.fastjson_text import FastjsonError, decode

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(), inner, max_size=4)
        | st.dictionaries(st.integers(-(2**63), 2**63), inner, max_size=4)
    ),
    max_leaves=20,
)


def read_by(decoder: Any, text: str | bytes) -> Any:
    try:
        return decoder(text)
    except FastjsonError:
        return FastjsonError


@given(values, st.booleans())
def test_what_is_written_is_read(value: Any, standard: bool) -> None:
    text = fastjson.encode(value, standard=standard)
    assert read_by(decode, text) == read_by(fastjson.decode, text)


@given(st.text('{}[]:,"\\ 1a$', max_size=30))
def test_any_text_is_read_alike(text: str) -> None:
    assert read_by(decode, text) == read_by(fastjson.decode, text)


@pytest.mark.parametrize(
    "text",
    [
        '{"offsetTable":{"a@g":{0:1},"b@g":{ -1 : 2}},b:true}',
        '{{"brokerName":"b","queueId":1,"topic":"T"}:7}',
        '{"a":[{"x":1},{"$ref":"$.a[0]"}]}',
        b'{"a":"\xc3\xa9"}',
    ],
)
def test_the_dialect_is_read(text: str | bytes) -> None:
    assert decode(text) == fastjson.decode(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", '{"a', "{1:2", b"\xff", "[" * 100_000, "{1:" * 100_000, '{"a":{"$ref":"$.b"}}',
        '{"a":{"b":{"$ref":"$"}}}', "{{1:2}:{{3:4}:5}", "9" * 5000,
    ],
    ids=lambda text: repr(text[:12]),
)  # fmt: skip
def test_broken_text(text: str | bytes) -> None:
    with pytest.raises(FastjsonError):
        decode(text)
