"""SQL92 filters: against the official module's own results, and what is ours (errors, bounds)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message.properties import encode
from pocketmq.message.sql_filter import SqlSyntaxError, compile_sql
from pocketmq.message.sql_filter.expression import MAX_COST
from pocketmq.message.sql_filter.filter import MAX_LENGTH
from pocketmq.message.sql_filter.parser import MAX_TOKENS

GOLDEN = Path(__file__).parents[1] / "data" / "sql_filter.json"

# What the official module throws at evaluation (E) leaves the expression unknown (N).
LETTERS = {True: "T", False: "F", None: "N"}


def judge(text: str, messages: list[dict[str, str]]) -> str:
    try:
        sql = compile_sql(text)
    except SqlSyntaxError:
        return "!"
    return "".join(LETTERS[sql.evaluate(message)] for message in messages)


def test_every_expression_is_judged_as_by_the_official_module() -> None:
    golden: dict[str, Any] = json.loads(GOLDEN.read_text())
    messages = golden["messages"]

    ours = [[text, judge(text, messages)] for text, _ in golden["expressions"]]

    theirs = [[text, result.replace("E", "N")] for text, result in golden["expressions"]]
    assert ours == theirs
    assert sum(result == "!" for _, result in theirs) < len(theirs) * 0.6


@pytest.mark.parametrize(
    ("text", "properties", "result"),
    [
        ("a BETWEEN 1 AND 5", {"a": "5"}, True),
        ("a > 4.5 AND tag IN ('x', 'y')", {"a": "5", "tag": "y"}, True),
        ("a IS NULL", {}, True),
        ("a IS NOT NULL AND b = TRUE", {"a": "", "b": "true"}, True),
        ("a > 5 OR b = 'x'", {"b": "x"}, True),
        ("a > 5 OR b = 'x'", {"b": "y"}, None),
        ("a > 5 AND b = 'x'", {"b": "y"}, False),
        ("a > 5 OR b = 'x'", {"a": "no number", "b": "x"}, None),
        ("name CONTAINS 'o''b'", {"name": "Bo'bo"}, True),
        ("name NOT STARTSWITH 'B'", {}, False),
        ("NOT a = 1", {"a": "1"}, False),
        ("a = 1 LIKE 'what follows is not read'", {"a": "1"}, True),
    ],
)
def test_three_valued_logic(text: str, properties: dict[str, str], result: bool | None) -> None:
    sql = compile_sql(text)
    assert sql.evaluate(properties) is result
    assert sql.matches(properties) is (result is True)


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("a >", 1, 4, "unexpected end"),
        ("a > 1 AND\n  (b # 2)", 2, 6, "'#'"),
        ("a BETWEEN 5 AND 1", 1, 3, "wrong way round"),
        ("a = 1 AND b > 'x'", 1, 13, "'x' cannot be compared by >"),
        ("a > TRUE", 1, 3, "TRUE cannot be compared by >"),
        ("5", 1, 1, "neither true nor false"),
        ("a > 9223372036854775808", 1, 5, "greater than any Long"),
        ("", 1, 1, "unexpected end"),
    ],
)
def test_a_bad_expression_says_where(text: str, line: int, column: int, reason: str) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        compile_sql(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert reason in caught.value.reason
    assert str(caught.value).startswith(f"line {line}, column {column}: ")
    # The second time it comes out of the cache.
    with pytest.raises(SqlSyntaxError, match=f"line {line}, column {column}"):
        compile_sql(text)


def test_length_and_depth_are_bounded() -> None:
    with pytest.raises(SqlSyntaxError, match=f"longer than {MAX_LENGTH}"):
        compile_sql("a = '1'" + " " * MAX_LENGTH)
    with pytest.raises(SqlSyntaxError, match="more than 200 operators"):
        compile_sql("NOT " * 500 + "a")
    # Parentheses alone are no depth.
    assert compile_sql("(" * 4_000 + "a = '1'" + ")" * 4_000).matches({"a": "1"})
    with pytest.raises(SqlSyntaxError, match=f"line 1, column {MAX_TOKENS + 1}: more than"):
        compile_sql("+" * 10_000 + "1 = a")


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("TRUE", 1),
        ("a = 1", 1),
        ("a IN ('1', '2', '3')", 1),
        ("a = 1 OR a <> 2 OR b IS NOT NULL", 4),
        ("(a = 1 AND b = 2) OR (a = 3 AND NOT (b = 4))", 5),
        ("a BETWEEN 1 AND 2", 2),
        ("a CONTAINS 'x'", 8),
        ("a CONTAINS 'x' AND b = '1'", 9),
    ],
)
def test_what_an_expression_costs(text: str, cost: int) -> None:
    assert compile_sql(text).cost == cost


@pytest.mark.parametrize(
    ("term", "most"), [("a = '1'", MAX_COST), ("a STARTSWITH '1'", MAX_COST // 8)]
)
def test_the_work_for_a_message_is_bounded(term: str, most: int) -> None:
    for operator in (" OR ", " AND "):
        text = operator.join([term] * (most // 2))
        assert compile_sql(text).matches({"a": "1"})
        with pytest.raises(SqlSyntaxError, match=f"more than {MAX_COST} comparisons"):
            compile_sql(operator.join([term] * (most + 1)))
    # A list of values is one comparison.
    values = ", ".join(f"'{n}'" for n in range(2_000))
    assert compile_sql(f"a IN ({values})").matches({"a": "7"})


@pytest.mark.parametrize("text", ["9" * 1025, "0" * 1024 + "7.5", "9" * 32_000 + "x"])
@pytest.mark.parametrize("number", ["7.5", "7", "7L"])
def test_a_very_long_text_is_no_number(text: str, number: str) -> None:
    """A message with one took seconds of the broker, for each consumer with such a filter."""
    assert compile_sql(f"a > {number}").evaluate({"a": text}) is None
    assert compile_sql(f"a > {number}").evaluate({"a": "9" * 1000 + "x"}) is None
    assert compile_sql("a = 7.5").matches({"a": "0" * 1000 + "7.5"})


def test_minus_signs_are_no_comments_that_do_not_end() -> None:
    """For each of them the rest of the text was searched for an end, which took seconds."""
    with pytest.raises(SqlSyntaxError, match="words, numbers and signs"):
        compile_sql("a = " + "-" * 30_000 + "1")
    assert compile_sql("a = --" + "x" * 1000 + "\n1").matches({"a": "1"})


@given(st.text(st.sampled_from("ab'= <>()1.5-\n\0é") | st.characters(), max_size=60))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    assert set(judge(text, [{"a": "1", "b": text}])) <= set("TFN!")


def test_what_matches_has_a_needle() -> None:
    golden: dict[str, Any] = json.loads(GOLDEN.read_text())
    messages = golden["messages"]
    looked_for = 0
    for text, _ in golden["expressions"]:
        try:
            sql = compile_sql(text)
        except SqlSyntaxError:
            continue
        if not sql.needles:
            continue
        for message in messages:
            if sql(message):
                looked_for += 1
                encoded = encode(message).encode()
                assert any(needle in encoded for needle in sql.needles), (text, message)
    assert looked_for > 100


@pytest.mark.parametrize(
    ("text", "needles"),
    [
        ("a = 'x'", ["a\x01x"]),
        ("'x' = a", ["a\x01x"]),
        ("a = 1", ["a\x01"]),
        ("a = b", []),  # both may be missing
        ("a > 1", ["a\x01"]),
        ("a BETWEEN 1 AND 5", ["a\x01"]),
        ("a IN ('x', 'y')", ["a\x01x", "a\x01y"]),
        ("a NOT IN ('x', 'y')", ["a\x01"]),
        ("a IN ('1', '2', '3', '4', '5', '6', '7', '8', '9')", ["a\x01"]),
        ("a CONTAINS 'x'", ["a\x01"]),
        ("a NOT CONTAINS 'x'", ["a\x01"]),
        ("a IS NULL", []),
        ("a IS NOT NULL", ["a\x01"]),
        ("NOT (a = 'x')", []),
        ("a = 'x' AND b IS NULL", ["a\x01x"]),
        ("a > 1 AND b = 'longer' AND c > 1", ["b\x01longer"]),
        ("a = 'x' OR b = 'y' OR c > 1", ["a\x01x", "b\x01y", "c\x01"]),
        ("a = 'x' OR b IS NULL", []),
        ("(a = 'x' OR b IS NULL) AND c = 'z'", ["c\x01z"]),
        ("a = '\ufffd'", []),  # it stands for bytes that are no text
        ("TRUE", []),
    ],
)
def test_needles(text: str, needles: list[str]) -> None:
    assert compile_sql(text).needles == tuple(needle.encode() for needle in needles)


def test_the_parser_is_not_loaded_before_it_is_needed() -> None:
    script = (
        "import sys, pocketmq.message.sql_filter as s; assert 'lark' not in sys.modules; "
        "s.compile_sql('a = 1'); assert 'lark' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[2])


def test_a_search_for_a_longer_text_counts_more() -> None:
    costs = [
        compile_sql(f"p {operator} '{'a' * length}'").cost
        for operator in ("CONTAINS", "STARTSWITH")
        for length in (1, 20, 100, 1000)
    ]
    assert costs == [8, 8, 48, 48, 8, 8, 8, 8]
