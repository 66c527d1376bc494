"""How much one trigger of a stream reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pocketmq.spark.streams.admission import Admission, TriggerLimits, divide

LAGS = st.dictionaries(st.text(max_size=2), st.integers(0, 2**62), max_size=12)


@given(LAGS, st.integers(1, 2**63))
def test_a_limit_is_divided_to_the_last_offset(lags: dict[str, int], most: int) -> None:
    shares = divide(lags, most)
    behind = [queue for queue, lag in lags.items() if lag]
    assert list(shares) == list(lags)
    assert all(0 <= shares[queue] <= lag for queue, lag in lags.items())
    assert all(shares[queue] for queue in behind)
    assert sum(shares.values()) == min(sum(lags.values()), max(most, len(behind)))


@given(LAGS, st.integers(1, 2**63))
def test_a_larger_lag_gets_no_smaller_share(lags: dict[str, int], most: int) -> None:
    shares = divide(lags, most)
    by_lag = sorted(lags, key=lambda queue: (lags[queue], shares[queue]))
    assert [shares[queue] for queue in by_lag] == sorted(shares.values())


def test_a_limit_is_divided_in_proportion() -> None:
    lags = {"a": 6_000_000, "b": 3_000_000, "c": 1_000_000, "d": 0}
    assert divide(lags, 100) == {"a": 60, "b": 30, "c": 10, "d": 0}
    assert divide(lags, 101) == {"a": 61, "b": 30, "c": 10, "d": 0}
    assert divide({"a": 1_000_000, "b": 1}, 10) == {"a": 9, "b": 1}
    assert divide({"b": 5, "a": 5}, 3) == {"b": 2, "a": 1}


def test_a_trigger_waits_for_enough_offsets_but_not_for_ever() -> None:
    now = 0.0
    admission = Admission(TriggerLimits(least=10, delay=60), clock=lambda: now)
    assert not admission.waits(3)  # the first never does
    assert admission.waits(3)
    assert not admission.waits(10)
    now = 59.0
    assert admission.waits(9)
    now = 60.0
    assert not admission.waits(9)
    assert admission.waits(9)


def test_nothing_to_read_is_not_a_late_trigger() -> None:
    now = 0.0
    admission = Admission(TriggerLimits(least=10, delay=60), clock=lambda: now)
    assert not admission.waits(0)
    assert not admission.waits(1)
    now = 61.0
    assert not admission.waits(0)
    assert not admission.waits(1)
