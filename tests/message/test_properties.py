from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pocketmq.message import properties
from pocketmq.message.properties import PropertiesError, decode, encode, find

# A small alphabet with both separators, so that odd texts and near misses come up often.
odd_text = st.text("aAB\x01\x02", max_size=30)
plain = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1)


@given(st.dictionaries(plain, plain))
def test_round_trip(values: dict[str, str]) -> None:
    text = encode(values)
    assert decode(text) == values
    assert decode(text.encode()) == values
    assert decode(text.removesuffix("\x02")) == values


@given(odd_text, st.text("aAB", min_size=1, max_size=2))
@example("A\x01xA\x01b\x02", "A")
@example("A\x01b\x02A\x01\x02", "A")
@example("AA\x01b\x02", "A")
def test_find_agrees_with_decode(text: str, name: str) -> None:
    assert find(text, name) == decode(text).get(name)


@given(odd_text)
def test_what_was_decoded_encodes_again(text: str) -> None:
    values = decode(text)
    if all("\x01" not in name for name in values):
        assert decode(encode(values)) == values


def test_the_text_of_the_specification() -> None:
    assert encode({"KEYS": "k", "WAIT": "true", "TAGS": "TagA"}).encode() == bytes.fromhex(
        "4b455953016b02 57414954017472756502 54414753015461674102"
    )


@pytest.mark.parametrize("text", ["", "\x02", "a", "a\x01", "\x01b", "a\x01\x02", "ab\x02", "\x01"])
def test_entries_without_name_value_or_separator_are_dropped(text: str) -> None:
    assert decode(text) == {}


def test_the_last_of_equal_names_wins() -> None:
    text = "UNIQ_KEY\x01own\x02TAGS\x01t\x02UNIQ_KEY\x01batch\x02"
    assert decode(text) == {"UNIQ_KEY": "batch", "TAGS": "t"}
    assert find(text, "UNIQ_KEY") == "batch"


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    assert decode(b"a\x01\xff\x02") == {"a": "\ufffd"}


@pytest.mark.parametrize("values", [{"": "v"}, {"a\x01": "v"}, {"a\x02": "v"}, {"a": "v\x02w"}])
def test_separators_cannot_be_written(values: dict[str, str]) -> None:
    with pytest.raises(PropertiesError):
        encode({"before": "b"} | values)


def test_a_value_may_hold_the_inner_separator() -> None:
    assert decode(encode({"a": "v\x01w", "b": "x"})) == {"a": "v\x01w", "b": "x"}


def test_reserved_names() -> None:
    assert {"KEYS", "TAGS", "__SHARDINGKEY", "1ST_POP_TIME", "__CRC32#"} <= properties.RESERVED
    assert properties.TRANSIENT_PREFIX not in properties.RESERVED
    assert " " not in properties.RESERVED
    assert len(properties.RESERVED) == 68
