from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message import loose_json
from pocketmq.message.fastjson_text import FastjsonError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=12,
)


@given(VALUES)
def test_standard_json_reads_as_it_is(value: Any) -> None:
    text = json.dumps(value)
    if '"$ref"' not in text:
        assert loose_json.decode(text) == value


@given(st.data(), VALUES)
def test_what_fastjson_adds_changes_nothing(data: st.DataObject, value: Any) -> None:
    text = loose(value, data)
    if '"$ref"' not in json.dumps(value):
        assert loose_json.decode(text) == value
        assert loose_json.decode(text.encode()) == value


def loose(value: Any, data: st.DataObject) -> str:
    """`value` in some form that fastjson takes."""

    def chosen(*forms: str) -> str:
        return data.draw(st.sampled_from(forms))

    def text(value: str) -> str:
        inner = json.dumps(value)[1:-1]
        if data.draw(st.booleans()):
            return f'"{inner}"'
        return "'{}'".format(inner.replace("'", "\\'").replace('\\"', '"'))

    def written(value: Any) -> str:
        space = chosen("", " ", "\n\t", "/* 'a\" */", "// {b\n")
        if isinstance(value, str):
            return space + text(value)
        if isinstance(value, dict):
            parts = [
                f"{space}{text(key)}{chosen('', ' ')}:{written(v)}" for key, v in value.items()
            ]
            return "{" + joined(parts) + space + "}"
        if isinstance(value, list):
            return chosen("", "Set", "TreeSet") + "[" + joined(map(written, value)) + space + "]"
        if type(value) is int and value >= 0:
            return space + chosen("", "+", "0") + str(value) + chosen("", "L")
        return space + json.dumps(value)

    def joined(parts: Any) -> str:
        parts = list(parts)
        comma = chosen(",", ",,", " , ")
        return chosen("", ",") + comma.join(parts) + (chosen("", ",") if parts else "")

    return chosen("", "\ufeff") + written(value) + chosen("", "\n", "\n\0", " ")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{a:1,$b_2:'x'}", {"a": 1, "$b_2": "x"}),
        ("{'a':'it\\'s \"so\"'}", {"a": 'it\'s "so"'}),
        ('{"a":"tab\there","b":"\\x41\\v"}', {"a": "tab\there", "b": "A\v"}),
        ("{0:1,{topic:'T'}:7}", {"0": 1, "{\"topic\":'T'}": 7}),
        ("[1,,2,]", [1, 2]),
        ("[{'a':1} {'b':2}]", None),
        ("{,}", {}),
        ("", None),
        ("{'a':1", None),
        ("{'a:1}", None),
        ("{'a':1}}", None),
        ("{'a':1}{}", None),
        ("{'a':1}x", None),
        ("{;'a':1}", None),
        ("{'a':\\u12}", None),
        ("/*", None),
    ],
)
def test_examples(text: str, value: Any) -> None:
    if value is None:
        with pytest.raises(FastjsonError):
            loose_json.decode(text)
    else:
        assert loose_json.decode(text) == value


def test_no_utf_8() -> None:
    with pytest.raises(FastjsonError, match="UTF-8"):
        loose_json.decode(b"{'a':'\xff'}")


def test_only_short_texts_are_read_so() -> None:
    fits = "{'a':'%s'}" % ("x" * (loose_json.MAX_LENGTH - 8))
    assert len(loose_json.decode(fits)["a"]) == loose_json.MAX_LENGTH - 8
    with pytest.raises(FastjsonError):
        loose_json.decode(fits + " ")


@given(st.text(alphabet="{}[]:,'\"\\/*a0 $\n\0", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(FastjsonError):
        loose_json.decode(text)
