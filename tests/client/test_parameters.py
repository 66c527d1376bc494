"""Arguments are checked: the error names the argument, its value and what is allowed."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.parameters import (
    flag,
    function,
    one_of,
    point_in_time,
    seconds,
    seconds_or_none,
    shown,
    text,
    texts,
    unknown_option,
    whole,
)
from pocketmq.message.message import MessageQueue


@pytest.mark.parametrize(
    ("value", "result"), [(3, 3.0), (0, 0.0), (0.5, 0.5), (timedelta(minutes=1), 60.0)]
)
def test_seconds_are_numbers_or_a_timedelta(value: Any, result: float) -> None:
    assert seconds("timeout", value) == result
    assert isinstance(seconds("timeout", value), float)


@pytest.mark.parametrize("value", ["3", True, None, [3], b"3", 3j])
def test_other_types_are_no_seconds(value: Any) -> None:
    with pytest.raises(TypeError, match=r"timeout must be seconds.*not ") as raised:
        seconds("timeout", value)
    assert repr(value) in str(raised.value)


@pytest.mark.parametrize(
    "value", [-3, -0.1, math.nan, math.inf, 10**400, timedelta(seconds=-1), 1e12]
)
def test_seconds_out_of_range_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="timeout must be"):
        seconds("timeout", value)


def test_zero_seconds_are_refused_where_they_make_no_sense() -> None:
    with pytest.raises(ValueError, match=r"interval must be above 0 seconds.*not 0"):
        seconds("interval", 0, above_zero=True)


def test_none_passes_where_it_is_allowed() -> None:
    assert seconds_or_none("attempt_timeout", None) is None
    assert seconds_or_none("attempt_timeout", 2) == 2.0


def test_a_point_in_time_is_a_datetime_or_milliseconds() -> None:
    moment = datetime(2026, 11, 23, tzinfo=UTC)
    in_ms = int(moment.timestamp()) * 1000
    assert point_in_time("deliver_at", moment) == point_in_time("deliver_at", in_ms) == in_ms


def test_seconds_in_place_of_milliseconds_are_refused_with_a_hint() -> None:
    with pytest.raises(ValueError, match=r"deliver_at .* not 1795370851; as seconds this is 2026-"):
        point_in_time("deliver_at", 1795370851)


@pytest.mark.parametrize("value", [1795370851.5, "now", True, None])
def test_other_types_are_no_point_in_time(value: Any) -> None:
    with pytest.raises(TypeError, match="deliver_at must be a datetime or whole Unix millisec"):
        point_in_time("deliver_at", value)


@pytest.mark.parametrize("value", [-1, 0, 10**20, datetime.min, datetime.max])
def test_points_in_time_out_of_range_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="deliver_at"):
        point_in_time("deliver_at", value)


def test_whole_numbers_have_bounds() -> None:
    assert whole("retries", 0) == 0
    assert whole("queue", 3, 0, 3) == 3
    with pytest.raises(ValueError, match="retries must be 0 or more, not -1"):
        whole("retries", -1)
    with pytest.raises(ValueError, match="queue must be a whole number from 0 to 3, not 4"):
        whole("queue", 4, 0, 3)
    for wrong in (1.5, "1", True, None):
        with pytest.raises(TypeError, match="retries must be a whole number, 0 or more, not"):
            whole("retries", wrong)  # type: ignore[arg-type]


def test_texts_are_texts() -> None:
    assert text("topic", "orders") == "orders"
    assert text("tag", "", empty=True) == ""
    assert shown(MessageQueue("T", "a", 0)).endswith("queue_id=0)")
    with pytest.raises(TypeError, match=r"topic must be a text \(str\), not 3"):
        text("topic", 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="topic must not be empty"):
        text("topic", "")
    assert texts("topics", ["a", "b"]) == ("a", "b")
    for wrong in ("a", b"a", 3, None):
        with pytest.raises(TypeError, match="topics must be a list of str"):
            texts("topics", wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="each of topics must be a text"):
        texts("topics", ["a", 2])  # type: ignore[list-item]


def test_a_choice_names_what_is_allowed_and_the_nearest() -> None:
    assert one_of("compression", "zlib", ["zlib", "lz4"]) == "zlib"
    with pytest.raises(ValueError, match="must be one of 'zlib', 'lz4', not 'zlibb'; did you mea"):
        one_of("compression", "zlibb", ["zlib", "lz4"])
    with pytest.raises(ValueError, match="queue must be one of 0, 1, not True"):
        one_of("queue", True, [0, 1])


def test_flags_and_functions() -> None:
    assert flag("tls", False) is False
    with pytest.raises(TypeError, match="tls must be True or False, not 1"):
        flag("tls", 1)  # type: ignore[arg-type]
    assert function("check", len) is len
    with pytest.raises(TypeError, match="check must be a function, not 'len'"):
        function("check", "len")  # type: ignore[type-var]


def test_an_unknown_option_names_the_nearest() -> None:
    error = unknown_option("Producer", "retrys", ["retries", "timeout"])
    assert str(error) == "Producer has no option 'retrys'; did you mean 'retries'?"
    assert str(unknown_option("Producer", "xyz", ["retries"])) == "Producer has no option 'xyz'"


class _Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


_ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.timedeltas(),
    st.datetimes(),
    st.lists(st.integers()),
    st.builds(_Unprintable),
)


@given(_ANYTHING)
def test_nothing_but_type_and_value_errors_comes_out(value: Any) -> None:
    checks: list[Any] = [
        seconds, seconds_or_none, point_in_time, whole, flag, text, texts, function,
    ]  # fmt: skip
    for check in checks:
        told = _refusal(check, value)
        assert told is None or ("argument" in told and len(told) < 300)


def _refusal(check: Any, value: Any) -> str | None:
    try:
        check("argument", value)
    except (TypeError, ValueError) as error:
        return str(error)
    return None
