"""Bodies of messages for people."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.dashboard.body_preview import (
    MOST_HEX,
    MOST_JSON,
    MOST_LEVELS,
    MOST_TEXT,
    Form,
    excerpt,
    preview,
)


def test_json_is_indented_and_keeps_its_numbers() -> None:
    shown = preview(b'{"b":12345678901234567890123,"a":[1,2]}')
    assert shown.form is Form.JSON
    assert shown.forms == (Form.JSON, Form.TEXT, Form.HEX)
    assert shown.text == '{\n  "b": 12345678901234567890123,\n  "a": [\n    1,\n    2\n  ]\n}'
    assert not shown.is_cut


@pytest.mark.parametrize(
    "body", [b"hello", b'"text"', b"12", b"{broken", b"[" * 100_000 + b"]" * 100_000, b""]
)
def test_what_is_not_json_is_text(body: bytes) -> None:
    shown = preview(body)
    assert shown.form is Form.TEXT
    assert shown.forms == (Form.TEXT, Form.HEX)


def test_what_is_not_text_is_hexadecimal() -> None:
    shown = preview(b"\xff\x00A", Form.JSON)
    assert shown.form is Form.HEX
    assert shown.forms == (Form.HEX,)
    assert shown.text == "00000000  ff 00 41" + " " * 41 + "..A"


def test_a_form_that_is_asked_for() -> None:
    assert preview(b"{}", Form.TEXT).text == "{}"
    assert preview(b"{}", Form.HEX).text.startswith("00000000  7b 7d")


def test_control_characters_and_turned_lines_are_not_shown() -> None:
    assert preview("a\x1b[31m\u202eb\tc\n".encode()).text == "a\ufffd[31m\ufffdb\tc\n"


@given(st.binary(max_size=3 * MOST_HEX), st.sampled_from(Form))
def test_every_body_has_a_bounded_preview(body: bytes, form: Form) -> None:
    shown = preview(body, form)
    assert shown.size == len(body)
    assert len(shown.text) <= max(MOST_TEXT, 5 * MOST_HEX)
    assert len(excerpt(body, 40)) <= 40
    assert "\n" not in excerpt(body, 40)


def test_large_bodies_are_cut() -> None:
    text = preview(b"x" * (MOST_TEXT + 1))
    assert (len(text.text), text.is_cut) == (MOST_TEXT, True)
    digits = preview(b"\xff" * (MOST_HEX + 1))
    assert (digits.text.count("\n"), digits.is_cut) == (MOST_HEX // 16 - 1, True)
    huge = json.dumps(["x" * 100] * (MOST_JSON // 100)).encode()
    assert Form.JSON not in preview(huge).forms


def test_a_small_body_does_not_become_a_large_one() -> None:
    """Each line of deep JSON begins with as many blanks as it has levels, twice."""
    deep = b"[" * 500 + b"1," * 50_000 + b"1" + b"]" * 500
    assert preview(deep).forms == (Form.TEXT, Form.HEX)
    within = b"[" * MOST_LEVELS + b"]" * MOST_LEVELS
    assert preview(within).form is Form.JSON


def test_a_text_is_known_by_its_beginning() -> None:
    shown = preview("é".encode() * MOST_TEXT * 5 + b"\xff")
    assert (shown.form, len(shown.text), shown.is_cut) == (Form.TEXT, MOST_TEXT, True)


def test_an_excerpt_may_end_in_the_middle_of_a_character() -> None:
    assert excerpt("é".encode() * 1000, 10) == "é" * 9 + "…"
    assert excerpt(b"\xff\xfe" * 100, 12) == "ff fe ff fe…"
    assert excerpt(b"two\n  lines", 20) == "two lines"
