"""The priority in the properties of a message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message import properties as names
from pocketmq.message.priority import MOST_PRIORITY, priority_of

NUMBERS = [
    ("0", 0), ("-0", 0), ("+7", 7), ("007", 7), ("٣", 3), (str(MOST_PRIORITY), MOST_PRIORITY),
    ("-1", None), ("x", None), ("", None), (" 1", None), ("1 ", None), ("1_0", None), ("1.0", None),
    ("0x1", None), ("+", None), ("1\n", None), (str(MOST_PRIORITY + 1), None), ("9" * 9_999, None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "priority"), NUMBERS)
def test_only_a_number_from_zero_on_is_a_priority(text: str, priority: int | None) -> None:
    assert priority_of({names.PRIORITY: text}) == priority


def test_a_message_without_the_property_has_none() -> None:
    assert priority_of({}) is None


@given(st.integers(-(2**40), 2**40))
def test_every_number(number: int) -> None:
    allowed = 0 <= number <= MOST_PRIORITY
    assert priority_of({names.PRIORITY: str(number)}) == (number if allowed else None)


@given(st.text())
def test_any_text(text: str) -> None:
    priority = priority_of({names.PRIORITY: text})
    assert priority is None or 0 <= priority <= MOST_PRIORITY
