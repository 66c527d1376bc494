from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.selector.latency import (
    IDLE_LATENCY,
    LATENCY_MAX_MS,
    NOT_AVAILABLE_DURATION_MS,
    PEAK_MEMORY,
    LatencyFaultTolerance,
)
from tests.client.simulation import Clock


@pytest.mark.parametrize(
    ("latency_ms", "isolation_ms"),
    [
        (0, 0),
        (49, 0),
        (50, 0),
        (100, 0),
        (549, 0),
        (550, 2000),
        (1799, 2000),
        (1800, 5000),
        (3000, 6000),
        (5000, 10_000),
        (14_999, 10_000),
        (15_000, 30_000),
        (90_000, 30_000),
    ],
)
def test_isolation_follows_the_table_of_release_5_3_3(latency_ms: int, isolation_ms: int) -> None:
    clock = Clock()
    tolerance = LatencyFaultTolerance(clock)
    tolerance.record("a", latency_ms / 1000)
    assert tolerance.is_available("a") is (isolation_ms == 0)
    assert bool(tolerance.on_trial) is (isolation_ms > 0)
    clock.advance(isolation_ms / 1000)
    assert tolerance.is_available("a")
    tolerance.record("a", 0.001)
    assert not tolerance.on_trial


def test_a_failed_send_counts_as_one_of_ten_seconds() -> None:
    clock = Clock()
    tolerance = LatencyFaultTolerance(clock)
    tolerance.record("a", 0.001, isolate=True)
    clock.advance(9.99)
    assert not tolerance.is_available("a")
    clock.advance(0.02)
    assert tolerance.is_available("a")


def test_isolation_is_prolonged_but_not_cut_short() -> None:
    clock = Clock()
    tolerance = LatencyFaultTolerance(clock)
    tolerance.record("a", 6.0)
    clock.advance(1.0)
    tolerance.record("a", 0.001)
    tolerance.record("a", 0.6)
    clock.advance(8.9)
    assert not tolerance.is_available("a")
    clock.advance(0.2)
    assert tolerance.is_available("a")


def test_unreachable_is_not_available_even_after_its_isolation() -> None:
    clock = Clock()
    tolerance = LatencyFaultTolerance(clock)
    tolerance.record("a", 0.1, isolate=True, reachable=False)
    clock.advance(3600)
    assert not tolerance.is_available("a")
    assert not tolerance.is_reachable("a")
    assert tolerance.on_trial
    tolerance.mark_reachable("a")
    assert tolerance.is_available("a")
    tolerance.record("a", 0.1)
    assert not tolerance.on_trial


def test_an_answered_probe_ends_the_isolation() -> None:
    clock = Clock()
    tolerance = LatencyFaultTolerance(clock)
    for name, reachable in (("silent", False), ("refused", True)):
        tolerance.record(name, 0.1, isolate=True, reachable=reachable)
        clock.advance(1.0)
        assert not tolerance.is_available(name)
        tolerance.mark_reachable(name)
        assert tolerance.is_reachable(name)
        assert tolerance.is_available(name)


def test_after_an_isolation_one_send_at_a_time_until_one_is_fast() -> None:
    clock = Clock()
    tolerance = LatencyFaultTolerance(clock)
    tolerance.record("a", 0.6)
    clock.advance(2.0)
    item = tolerance.item("a")
    assert tolerance.is_available("a")
    item.in_flight = 1
    assert not tolerance.is_available("a")
    tolerance.record("a", 0.6)
    item.in_flight = 0
    assert not tolerance.is_available("a")
    clock.advance(2.0)
    tolerance.record("a", 0.1)
    item.in_flight = 5
    assert tolerance.is_available("a")


def test_a_late_fast_answer_does_not_end_a_trial_before_it_began() -> None:
    clock = Clock()
    tolerance = LatencyFaultTolerance(clock)
    tolerance.record("a", 0.6)
    tolerance.record("a", 0.001)
    clock.advance(2.0)
    tolerance.item("a").in_flight = 1
    assert not tolerance.is_available("a")


def test_the_peak_rises_at_once_and_falls_in_its_time() -> None:
    clock = Clock()
    item = LatencyFaultTolerance(clock).item("a")
    assert item.peak == IDLE_LATENCY
    item.observe(0.030, 0.0, 2.0)
    assert item.peak == 0.030
    item.observe(0.050, 0.1, 2.0)
    assert item.peak == 0.050
    item.observe(0.030, 0.1 + PEAK_MEMORY, 2.0)
    assert item.peak == pytest.approx(0.030 + 0.020 / math.e)


def test_the_penalty_is_latency_times_what_is_in_flight() -> None:
    clock = Clock()
    tolerance = LatencyFaultTolerance(clock)
    item = tolerance.item("a")
    item.observe(0.030, clock(), 2.0)
    assert item.penalty(clock()) == pytest.approx(0.030)
    for _ in range(3):
        tolerance.began("a", clock())
    assert item.penalty(clock()) == pytest.approx(4 * 0.030)


def test_a_broker_that_owes_an_answer_is_expected_to_need_as_long_as_it_is_quiet() -> None:
    clock = Clock()
    tolerance = LatencyFaultTolerance(clock)
    item = tolerance.item("a")
    item.observe(0.030, clock(), 2.0)
    clock.advance(1.0)
    assert item.penalty(clock()) == pytest.approx(0.030)
    tolerance.began("a", clock())
    clock.advance(0.2)
    tolerance.began("a", clock())
    clock.advance(0.1)
    assert item.penalty(clock()) == pytest.approx(3 * 0.3)
    item.observe(0.030, clock(), 2.0)
    assert item.penalty(clock()) == pytest.approx(3 * 0.030)


def test_after_a_silence_or_on_trial_only_the_new_latency_counts() -> None:
    clock = Clock()
    item = LatencyFaultTolerance(clock).item("a")
    item.observe(0.050, 0.0, 2.0)
    item.observe(0.040, 2.0, 2.0)
    assert item.peak == 0.040
    item.on_trial = True
    item.observe(0.030, 2.1, 2.0)
    assert item.peak == 0.030
    item.observe(0.0, 5.0, 2.0)
    assert item.peak == IDLE_LATENCY


def test_a_successful_send_makes_reachable() -> None:
    tolerance = LatencyFaultTolerance(Clock())
    tolerance.record("a", 0.1, isolate=True, reachable=False)
    tolerance.record("a", 0.1)
    assert tolerance.is_reachable("a")


def test_an_unknown_broker_is_available() -> None:
    tolerance = LatencyFaultTolerance(Clock())
    tolerance.record("a", 1.0, isolate=True, reachable=False)
    assert tolerance.is_available("b")
    assert tolerance.is_reachable("b")


def test_forgotten_brokers_are_as_unknown_ones() -> None:
    tolerance = LatencyFaultTolerance(Clock())
    tolerance.record("a", 1.0, isolate=True, reachable=False)
    tolerance.record("b", 0.01)
    tolerance.retain({"b"})
    assert [item.broker_name for item in tolerance] == ["b"]
    assert tolerance.is_available("a")
    # No unreachable broker is left to keep the selector off its short way.
    assert not tolerance.on_trial
    tolerance.record("c", 0.01, reachable=False)
    tolerance.mark_reachable("c")
    assert not tolerance.due_suspects(1.0)


def test_suspects_are_the_unreachable_and_the_isolated_and_due_at_intervals() -> None:
    clock = Clock()
    tolerance = LatencyFaultTolerance(clock)
    tolerance.record("well", 0.01)
    tolerance.record("isolated", 0.01, isolate=True)
    tolerance.record("gone", 0.01, isolate=True, reachable=False)
    assert tolerance.due_suspects(2.0) == ["isolated", "gone"]
    assert tolerance.due_suspects(2.0) == []
    clock.advance(2.0)
    tolerance.mark_reachable("isolated")
    assert tolerance.due_suspects(2.0) == ["gone"]
    clock.advance(3600)
    assert tolerance.due_suspects(2.0) == ["gone"]


def test_the_tables_can_be_set_and_are_checked() -> None:
    clock = Clock()
    tolerance = LatencyFaultTolerance(
        clock, latency_max_ms=(10, 20), not_available_duration_ms=(100, 200)
    )
    assert tolerance.isolation_for(0.009) == 0
    assert tolerance.isolation_for(0.010) == pytest.approx(0.1)
    assert tolerance.isolation_for(5) == pytest.approx(0.2)
    tolerance.record("a", 0.015)
    assert not tolerance.is_available("a")
    with pytest.raises(ValueError, match="length"):
        LatencyFaultTolerance(clock, latency_max_ms=LATENCY_MAX_MS, not_available_duration_ms=(1,))
    with pytest.raises(ValueError, match="rise"):
        LatencyFaultTolerance(clock, latency_max_ms=(2, 1), not_available_duration_ms=(1, 1))


steps = st.lists(
    st.tuples(
        st.sampled_from(["answered", "failed", "silent", "probed"]),
        st.one_of(st.floats(0, 0.01), st.floats(0, 20)),
        st.sampled_from([0.0, 0.001, 0.5, 3.0, 40.0]),
    ),
    max_size=30,
)


@given(steps=steps, durations=st.sampled_from([NOT_AVAILABLE_DURATION_MS, (1, 0, 5, 0, 1, 0, 9)]))
def test_an_answer_counts_as_a_recorded_one(
    steps: list[tuple[str, float, float]], durations: tuple[float, ...]
) -> None:
    clock = Clock()
    quick, slow = (
        LatencyFaultTolerance(clock, not_available_duration_ms=durations) for _ in range(2)
    )
    for what, latency, pause in steps:
        clock.advance(pause)
        if what == "answered":
            quick.answered("a", latency, clock(), 2.0)
            slow.record("a", latency, stale_after=2.0)
        for tolerance in quick, slow:
            if what == "probed":
                tolerance.mark_reachable("a")
            elif what != "answered":
                tolerance.record("a", latency, isolate=True, reachable=what != "silent")
        assert quick.states() == slow.states()
        assert [item.peak for item in quick] == [item.peak for item in slow]
        assert quick.on_trial == slow.on_trial
