"""Charts as numbers."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.dashboard.chart import Series, line_chart, short_number, sparkline

NOW = 1_000_000.0


def numbers(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.e+]+) (-?[\d.e+]+)", path)]


@given(
    st.lists(st.tuples(st.floats(0, 3600), st.floats(0, 1e15)), min_size=1, max_size=800),
    st.sampled_from([(880, 220), (340, 180)]),
)
def test_lines_stay_inside_and_the_axis_holds_them(
    given_points: list[tuple[float, float]], size: tuple[int, int]
) -> None:
    points = sorted((NOW - ago, value) for ago, value in given_points)
    width, height = size
    chart = line_chart(
        [Series("lag", "lag", points)], now=NOW, longest=3600, width=width, height=height
    )
    assert chart is not None
    [line] = chart.lines
    drawn = numbers(line.path)
    assert 1 <= len(drawn) <= 241
    assert all(chart.left - 0.1 <= x <= chart.right + 0.1 for x, _ in drawn)
    assert all(chart.top - 0.1 <= y <= chart.bottom + 0.1 for _, y in drawn)
    assert chart.values[0].label == "0"
    assert 2 <= len(chart.values) <= 6
    assert len(chart.times) <= 8
    assert all(chart.left - 0.1 <= tick.at <= chart.right + 0.1 for tick in chart.times)


def test_what_is_older_than_the_chart_is_left_out() -> None:
    series = [Series("lag", "lag", [(NOW - 4000, 5.0)])]
    assert line_chart(series, now=NOW, longest=3600, width=880, height=220) is None
    assert line_chart([], now=NOW, longest=3600, width=880, height=220) is None


def test_a_peak_is_never_left_out() -> None:
    points = [(NOW - 3600 + n, 1000.0 if n == 1234 else 0.0) for n in range(3600)]
    chart = line_chart([Series("lag", "lag", points)], now=NOW, longest=3600, width=880, height=220)
    assert chart is not None
    assert min(y for _, y in numbers(chart.lines[0].path)) == chart.top


def test_a_young_chart_begins_with_its_first_sample() -> None:
    points = [(NOW - 90 + n, 1.0) for n in range(90)]
    chart = line_chart([Series("lag", "lag", points)], now=NOW, longest=3600, width=880, height=220)
    assert chart is not None
    assert [tick.label for tick in chart.times] == [
        "now", "−15 s", "−30 s", "−45 s", "−1 min", "−75 s", "−90 s",
    ]  # fmt: skip


def test_numbers_of_an_axis() -> None:
    assert list(map(short_number, (0, 0.5, 20, 1500, 2_000_000, 3.25e9))) == [
        "0", "0.5", "20", "1.5k", "2M", "3.25G",
    ]  # fmt: skip


def test_a_small_picture_needs_two_values() -> None:
    assert sparkline([], width=96, height=24) == ""
    assert sparkline([1.0], width=96, height=24) == ""
    assert sparkline([0.0, 10.0], width=96, height=24) == "M1.0 23.0 L95.0 1.0"
