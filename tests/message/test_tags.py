from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message.tags import (
    MAX_LENGTH,
    MAX_TAGS,
    TagExpression,
    TagExpressionError,
    tag_hash,
)
from pocketmq.store.encoding.tags_codes import tags_code


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("标签", 857175),
        ("😀", 1772899),
        ("AaAa", 2031744),
        ("BBBB", 2031744),
        ("AaBB", 2031744),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_known_hashes(tag: str, code: int) -> None:
    assert tag_hash(tag) == code


def test_long_tags_are_not_remembered() -> None:
    """A peer may send new tags without end, of up to 32 KiB each."""
    tracemalloc.start()
    try:
        for number in range(200):
            tag_hash(f"{number:3000}")
            tags_code(b"TAGS\x01%03000d\x02" % number)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 500_000


@given(st.text())
def test_a_hash_is_a_signed_32_bit_number(tag: str) -> None:
    assert -(2**31) <= tag_hash(tag) < 2**31


@given(st.text(max_size=20), st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]))
def test_one_more_character(tag: str, last: str) -> None:
    assert (31 * tag_hash(tag) + ord(last) - tag_hash(tag + last)) % 2**32 == 0


@pytest.mark.parametrize("text", ["*", "", None, "  ", " * "])
def test_every_message(text: str | None) -> None:
    expression = TagExpression(text)
    assert expression.matches_all
    assert expression.text == "*"
    assert expression.matches(None)
    assert expression.matches("anything")
    assert expression.matches_code(0)


def test_several_tags() -> None:
    expression = TagExpression(" TagA || TagB|| ||TagA")
    assert expression.tags == {"TagA", "TagB"}
    assert expression.codes == {tag_hash("TagA"), tag_hash("TagB")}
    assert expression.matches("TagB")
    assert not expression.matches("TagC")
    assert not expression.matches(None)
    assert expression.matches_code(tag_hash("TagA"))
    assert not expression.matches_code(0)
    assert expression == TagExpression.of(["TagB", "TagA"])


def test_equal_codes_are_not_equal_tags() -> None:
    expression = TagExpression("AaAa")
    assert expression.matches_code(tag_hash("BBBB"))
    assert not expression.matches("BBBB")


@pytest.mark.parametrize("text", ["||", " || ", "||||"])
def test_an_expression_without_tag(text: str) -> None:
    with pytest.raises(TagExpressionError):
        TagExpression(text)


@pytest.mark.parametrize("text", ["||".join(map(str, range(MAX_TAGS + 1))), "t" * (MAX_LENGTH + 1)])
def test_expressions_are_bounded(text: str) -> None:
    with pytest.raises(TagExpressionError, match=f"{MAX_LENGTH} and {MAX_TAGS} are allowed"):
        TagExpression(text)
    most = "||".join(map(str, range(MAX_TAGS)))
    assert len(TagExpression(most).tags) == MAX_TAGS
