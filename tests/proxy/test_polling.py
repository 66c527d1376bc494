"""How long a receive waits for messages, by the rules of the official proxy."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.proxy.service.polling import ANSWER_MARGIN, polling_ms


@pytest.mark.parametrize(
    ("remaining", "asked", "request_timeout", "expected"),
    [
        (30_000, 15_000, 3_000, 15_000),
        (23_000, 20_000, 3_000, 20_000),
        # Half of the request timeout is left for the answer where the client names no time.
        (20_000, None, 10_000, 15_000),
        (20_000, None, 3_000, 18_500),
        (23_000, None, 3_000, 20_000),
        (math.inf, None, 3_000, 20_000),
        (math.inf, 7_000, 3_000, 7_000),
        # Bounds of what is asked for.
        (30_000, 0, 3_000, 5_000),
        (90_000, 60_000, 3_000, 20_000),
        (12_000, None, 30_000, 5_000),
        # The deadline comes first.
        (15_000, 20_000, 3_000, 15_000 - ANSWER_MARGIN),
        (5_000, 20_000, 3_000, 5_000 - ANSWER_MARGIN),
        (4_999, 20_000, 3_000, None),
        (4_999, 1_000, 3_000, None),
        (-1, None, 3_000, None),
    ],
)
def test_the_time_of_a_receive(
    remaining: float, asked: int | None, request_timeout: float, expected: int | None
) -> None:
    polling = polling_ms(remaining, asked, request_timeout, least=5_000, most=20_000)
    assert polling == expected


@given(
    st.floats(-1e6, 1e6),
    st.none() | st.integers(-(10**6), 10**6),
    st.integers(0, 10**6),
    st.integers(0, 10**5),
    st.integers(1, 10**5),
)
def test_no_receive_waits_until_its_deadline(
    remaining: float, asked: int | None, request_timeout: int, least: int, most: int
) -> None:
    polling = polling_ms(remaining, asked, request_timeout, least=least, most=max(least, most))
    if polling is None:
        assert remaining < least
    else:
        assert 0 <= polling <= max(remaining - ANSWER_MARGIN, 0)
