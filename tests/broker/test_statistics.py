"""Counters, their windows, and totals per day."""

from __future__ import annotations

import time

import pytest

from pocketmq.broker.statistics.statistics import DAY, HOUR, MINUTE, Statistics, Traffic
from pocketmq.remoting.monotonic import MonotonicMs


class Clock:
    """Milliseconds that pass when told to."""

    def __init__(self) -> None:
        # Noon, so that hours may pass without a midnight.
        self.now = int(time.mktime((2026, 3, 10, 12, 0, 0, 0, 0, -1)) * 1000)

    def __call__(self) -> MonotonicMs:
        return MonotonicMs(self.now)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def statistics(clock: Clock) -> Statistics:
    return Statistics("C", clock, clock)


def add(traffic: Traffic, messages: int, size: int = 0) -> None:
    traffic.messages += messages
    traffic.times += 1
    traffic.size += size


def pass_seconds(statistics: Statistics, clock: Clock, seconds: int) -> None:
    for _ in range(seconds):
        clock.now += 1000
        statistics.tick()


def test_rates_are_over_the_window(statistics: Statistics, clock: Clock) -> None:
    traffic = statistics.put_of("T")
    add(traffic, 30, 3000)
    add(traffic, 30, 3000)
    clock.now += 30_000

    rates = statistics.item("TOPIC_PUT_NUMS", "T", MINUTE)
    assert rates is not None
    assert (rates.sum, rates.tps, rates.avgpt) == (60, 2.0, 30.0)
    sizes = statistics.item("TOPIC_PUT_SIZE", "T", MINUTE)
    assert sizes is not None
    assert (sizes.sum, sizes.tps, sizes.avgpt) == (6000, 200.0, 3000.0)


def test_a_minute_forgets_what_is_older(statistics: Statistics, clock: Clock) -> None:
    add(statistics.put_of("T"), 100)
    pass_seconds(statistics, clock, 80)
    add(statistics.put_of("T"), 5)

    minute = statistics.item("TOPIC_PUT_NUMS", "T", MINUTE)
    hour = statistics.item("TOPIC_PUT_NUMS", "T", HOUR)
    day = statistics.item("TOPIC_PUT_NUMS", "T", DAY)
    assert minute is not None
    assert hour is not None
    assert day is not None
    assert (minute.sum, hour.sum, day.sum) == (5, 105, 105)


def test_a_counter_born_just_now_shows_no_wild_rate(statistics: Statistics) -> None:
    add(statistics.put_of("T"), 1)

    rates = statistics.item("TOPIC_PUT_NUMS", "T", MINUTE)
    assert rates is not None
    assert rates.tps == 1.0


def test_names_and_keys(statistics: Statistics) -> None:
    add(statistics.get_of("T", "G"), 1, 10)
    add(statistics.put, 2)

    for name, key in (
        ("GROUP_GET_NUMS", "T@G"),
        ("GROUP_GET_SIZE", "T@G"),
        ("BROKER_PUT_NUMS", "C"),
        ("BROKER_GET_NUMS", "C"),
    ):
        assert statistics.item(name, key, MINUTE) is not None, name
    assert statistics.item("TOPIC_PUT_NUMS", "T", MINUTE) is None
    assert statistics.item("BROKER_PUT_NUMS", "other", MINUTE) is None
    assert statistics.item("NO_SUCH", "T", MINUTE) is None


def test_pairs_beyond_a_limit_have_no_counts_of_their_own(
    clock: Clock,
) -> None:
    statistics = Statistics("C", clock, clock, most_pairs=2)
    for count in (statistics.get_of, statistics.send_back_of):
        for group in "GHIJ":
            add(count("T", group), 1)
        add(count("T", "G"), 1)
    for name in ("GROUP_GET_NUMS", "SNDBCK_PUT_NUMS"):
        sums = [
            found and found.sum
            for g in "GHIJ"
            for found in [statistics.item(name, f"T@{g}", MINUTE)]
        ]
        assert sums == [2, 1, None, None]
    statistics.forget_group("G")
    add(statistics.get_of("T", "I"), 1)
    assert statistics.item("GROUP_GET_NUMS", "T@I", MINUTE) is not None


def test_counters_go_with_their_topic_or_group(statistics: Statistics) -> None:
    for group in ("G", "H"):
        statistics.get_of("T", group)
        statistics.get_of("U", group)
    statistics.put_of("T")

    statistics.forget_topic("T")
    statistics.forget_group("G")

    assert not statistics.topic_put
    assert set(statistics.group_get) == {"U@H"}


def test_rates_of_ten_and_sixty_seconds(statistics: Statistics, clock: Clock) -> None:
    statistics.tick()
    pass_seconds(statistics, clock, 50)
    for _ in range(10):
        statistics.put.messages += 60
        pass_seconds(statistics, clock, 1)

    assert statistics.put_rate.text() == "60.0 10.0 10.0"


def test_totals_of_the_day_change_at_midnight(statistics: Statistics, clock: Clock) -> None:
    statistics.put.messages = 7
    clock.now += 24 * 3_600_000
    statistics.tick()
    assert (statistics.put_totals.yesterday_morning, statistics.put_totals.today_morning) == (0, 7)

    statistics.put.messages = 9
    clock.now += 24 * 3_600_000
    statistics.tick()
    assert (statistics.put_totals.yesterday_morning, statistics.put_totals.today_morning) == (7, 9)
