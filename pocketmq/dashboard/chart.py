"""Line charts as numbers: paths and ticks, for a template to draw as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

#: The most values drawn for one line; if there are more, the largest of each group of neighbours.
_MOST_DRAWN: Final = 240
#: Seconds between two ticks of the time axis.
_TIME_STEPS: Final = (15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600)
_MOST_TICKS: Final = 6
#: The shortest time axis, in seconds.
_SHORTEST: Final = 60.0

_LEFT: Final = 52
_RIGHT: Final = 12
_TOP: Final = 10
_BOTTOM: Final = 24


class Series(NamedTuple):
    """A line: its name, the CSS class for its colour, and its values by Unix seconds."""

    name: str
    style: str
    points: Sequence[tuple[float, float]]


class Tick(NamedTuple):
    """A position on an axis, and its label."""

    at: float
    label: str


class Line(NamedTuple):
    """`path` and `area` are attributes `d` of SVG."""

    name: str
    style: str
    path: str
    area: str
    last: float


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A chart of `width` times `height`, and the rectangle for the lines in it."""

    width: int
    height: int
    left: float
    right: float
    top: float
    bottom: float
    lines: list[Line]
    values: list[Tick]
    times: list[Tick]


def line_chart(
    series: Sequence[Series], *, now: float, longest: float, width: int, height: int
) -> Chart | None:
    """Lay out a chart that ends at `now` and goes back at most `longest` seconds.

    Values are not negative, and the axis begins at 0. Returns None without values to draw.
    """
    shown = [
        each._replace(points=[point for point in each.points if point[0] >= now - longest])
        for each in series
    ]
    moments = [time for each in shown for time, _ in each.points]
    if not moments:
        return None
    begin = min(now - _SHORTEST, *moments)
    left, right, top, bottom = _LEFT, width - _RIGHT, _TOP, height - _BOTTOM
    step, end = _scale(max(value for each in shown for _, value in each.points))

    def x(time: float) -> float:
        return round(left + (right - left) * (time - begin) / max(now - begin, 1e-9), 1)

    def y(value: float) -> float:
        return round(bottom - (bottom - top) * value / end, 1)

    lines = []
    for each in shown:
        if not each.points:
            continue
        places = [(x(time), y(value)) for time, value in _fewer(each.points)]
        path = "M" + " L".join(f"{a:g} {b:g}" for a, b in places)
        if len(places) == 1:
            path += " h0.1"
        area = f"{path} L{places[-1][0]:g} {bottom:g} L{places[0][0]:g} {bottom:g} Z"
        lines.append(Line(each.name, each.style, path, area, each.points[-1][1]))
    return Chart(
        width=width,
        height=height,
        left=left,
        right=right,
        top=top,
        bottom=bottom,
        lines=lines,
        values=[
            Tick(y(value), short_number(value))
            for value in (step * n for n in range(round(end / step) + 1))
        ],
        times=_time_ticks(begin, now, x, most=_MOST_TICKS if width > 500 else 4),
    )


def sparkline(points: Sequence[float], *, width: int, height: int) -> str:
    """Return the attribute `d` of a line through evenly spaced values; empty for fewer than two."""
    if len(points) < 2:
        return ""
    drawn = [value for _, value in _fewer([(float(n), value) for n, value in enumerate(points)])]
    top = max(max(drawn), 1.0)
    stride = (width - 2) / (len(drawn) - 1)
    return "M" + " L".join(
        f"{1 + stride * n:.1f} {1 + (height - 2) * (1 - value / top):.1f}"
        for n, value in enumerate(drawn)
    )


def short_number(value: float) -> str:
    """Format 1500 as 1.5k: three digits and a unit."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def _fewer(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    stride = math.ceil(len(points) / _MOST_DRAWN)
    if stride <= 1:
        return list(points)
    drawn = [
        max(points[n : n + stride], key=lambda point: point[1])
        for n in range(0, len(points) - stride, stride)
    ]
    return [*drawn, points[-1]]


def _scale(most: float) -> tuple[float, float]:
    """Return the step between two ticks, and the end of an axis that includes `most`."""
    rough = max(most, 4.0) / 4
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(n * magnitude for n in (1, 2, 5, 10) if n * magnitude >= rough)
    return step, step * max(math.ceil(most / step), 1)


def _ago(seconds: int) -> str:
    if seconds % 60:
        return f"−{seconds} s"
    return f"−{seconds // 60} min" if seconds < 7200 else f"−{seconds // 3600} h"


def _time_ticks(begin: float, now: float, x: Callable[[float], float], *, most: int) -> list[Tick]:
    length = now - begin
    step = next((each for each in _TIME_STEPS if length / each <= most), _TIME_STEPS[-1])
    ticks = [Tick(x(now), "now")]
    ticks += [Tick(x(now - ago), _ago(ago)) for ago in range(step, int(length) + 1, step)]
    return ticks
