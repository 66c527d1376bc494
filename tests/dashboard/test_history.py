"""Samples over time: bounded, with rates."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.admin.traffic import Look, Progress
from pocketmq.dashboard.history import History, Span, Timeline


class Clock:
    """Unix seconds, set by the test."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def look(topics: dict[str, int] | None = None, **groups: tuple[int, int, int]) -> Look:
    return Look(0.0, topics or {}, {name: Progress(*each) for name, each in groups.items()})


def test_the_lag_and_the_rates_of_a_group() -> None:
    clock = Clock()
    history = History(clock=clock)
    assert history.lag("g") is None
    assert history.group_speed("g") is None
    for second in range(4):
        history.add(look(g=(100 + 50 * second, 100 + 10 * second, 40 * second)))
        clock.now += 5
    assert history.lag("g") == 120
    assert history.lags("g") == [0, 40, 80, 120]
    speed = history.group_speed("g")
    assert speed is not None
    assert (speed.arriving, speed.consuming, speed.seconds_to_catch_up) == (10.0, 2.0, None)
    assert [(point.lag, point.arriving) for point in history.group("g")] == [
        (40, 10.0), (80, 10.0), (120, 10.0),
    ]  # fmt: skip


def test_the_rate_of_a_topic_is_of_the_last_seconds() -> None:
    clock = Clock()
    history = History(clock=clock)
    for end in (0, 1000, 1000, 1000, 1000, 1000, 1100):
        history.add(look({"t": end}))
        clock.now += 5
    assert history.topic_rate("t") == 6.7  # 100 in 15 s
    assert [point.arriving for point in history.topic("t")][:2] == [200.0, 100.0]


def test_a_group_that_was_not_in_the_last_sample_has_no_lag_now() -> None:
    history = History(clock=Clock())
    history.add(look(g=(1, 1, 0), h=(1, 1, 0)))
    history.add(look(h=(1, 1, 0)))
    assert history.lag("g") is None
    assert history.group_speed("g") is None
    assert history.lag("h") == 0
    assert "g" in history.groups


def test_a_day_has_a_sample_every_five_minutes_and_all_of_the_last_hour() -> None:
    clock = Clock()
    history = History(clock=clock)
    for number in range(900):
        history.add(look(g=(number, 0, number)))
        clock.now += 5
    hour = [point.lag for point in history.group("g", Span.HOUR)]
    assert hour == [*range(181, 900)]
    day = [point.lag for point in history.group("g", Span.DAY)]
    assert day == [60, 120, 180, *hour]


@given(
    st.lists(
        st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(0, 2**62))), max_size=40
    )
)
def test_a_timeline_keeps_the_last_samples_of_a_bounded_number_of_series(
    samples: list[dict[str, tuple[int]]],
) -> None:
    slots, most = 5, 3
    timeline = Timeline(slots, most, 1)
    kept: dict[str, list[tuple[float, tuple[int, ...]]]] = {}
    for number, values in enumerate(samples):
        timeline.add(float(number), values)
        for name in [*kept]:
            kept[name] = [each for each in kept[name] if each[0] > number - slots]
            if not kept[name] and name not in values:
                del kept[name]
        for name, figures in values.items():
            if name in kept or len(kept) < most:
                kept.setdefault(name, []).append((float(number), figures))
        assert {name: [*timeline.read(name)] for name in timeline.names} == kept
        assert timeline.samples == min(number + 1, slots)
        for name, expected in kept.items():
            last = [*timeline.read(name, last=2)]
            assert last == [each for each in expected if each[0] > number - 2]
            every = [*timeline.read(name, stride=2)]
            assert every == [each for each in expected if (number - each[0]) % 2 == 0]
