"""Lag and rates over time: samples in memory of a bounded number of topics and groups.

All series share the times of the samples, so a series has one array of integers for each of its
figures. Two timelines keep the last hour in fine and the last day in coarse steps.
"""

from __future__ import annotations

import enum
import time
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from pocketmq.client.admin.traffic import Look, Progress, Speed, rate, speed

_ROUGH_PERIOD: Final = 300.0
_FINE_SLOTS: Final = 720
_ROUGH_SLOTS: Final = 288
#: The most topics, and groups, to keep: 8 KiB for each topic and 24 KiB for each group.
MOST_SERIES: Final = 1000
#: Seconds over which a rate is measured: consumers store their offsets every five.
_RATE_WINDOW: Final = 15.0
#: Samples used for a current rate.
_MOST_IN_WINDOW: Final = 16
#: Points of the sparklines in lists.
_SKETCHED: Final = 60

_ABSENT: Final = -1


class Span(enum.Enum):
    """The time span of a chart."""

    HOUR = "1h"
    DAY = "24h"


#: A time, and the figures of a series at that time.
Sample: TypeAlias = tuple[float, tuple[int, ...]]


class GroupPoint(NamedTuple):
    """A group at a time (Unix seconds): its lag, and messages a second shortly before it."""

    time: float
    lag: int
    arriving: float
    consuming: float


class TopicPoint(NamedTuple):
    """A topic at a time (Unix seconds): messages a second shortly before it."""

    time: float
    arriving: float


class Timeline:
    """The last `slots` samples of at most `most` series, each with `width` integers per sample."""

    def __init__(self, slots: int, most: int, width: int) -> None:
        self._slots = slots
        self._most = most
        self._width = width
        self._times = array("d", bytes(8 * slots))
        self._series: dict[str, array[int]] = {}
        self._last: dict[str, int] = {}
        self._count = 0

    @property
    def names(self) -> list[str]:
        """The names of the series."""
        return list(self._series)

    @property
    def samples(self) -> int:
        """The number of samples kept."""
        return min(self._count, self._slots)

    def add(self, time: float, values: Mapping[str, tuple[int, ...]]) -> None:
        """Add a sample. A series in none of the kept samples is removed."""
        slot = self._count % self._slots
        self._times[slot] = time
        self._count += 1
        at = slot * self._width
        absent = array("q", [_ABSENT] * self._width)
        for name in [*self._series]:
            if name not in values:
                if self._count - self._last[name] >= self._slots:
                    del self._series[name], self._last[name]
                else:
                    self._series[name][at : at + self._width] = absent
        for name, figures in values.items():
            series = self._series.get(name)
            if series is None:
                if len(self._series) >= self._most:
                    continue
                series = self._series[name] = absent * self._slots
            series[at : at + self._width] = array("q", figures)
            self._last[name] = self._count

    def read(self, name: str, *, last: int | None = None, stride: int = 1) -> Iterator[Sample]:
        """Yield the samples of a series with their times, the oldest first.

        `last`: how many of the newest samples to use; `stride`: yield every `stride`-th sample, and
        the newest.
        """
        series = self._series.get(name)
        if series is None:
            return
        first = max(self._count - min(last or self._slots, self._slots), 0)
        first += (self._count - 1 - first) % stride
        for number in range(first, self._count, stride):
            slot = number % self._slots
            at = slot * self._width
            figures = tuple(series[at : at + self._width])
            if figures[0] != _ABSENT:
                yield self._times[slot], figures


class History:
    """The samples of topics and groups; `clock` returns Unix seconds."""

    def __init__(self, *, most: int = MOST_SERIES, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._most = most
        self._topics = {
            Span.HOUR: Timeline(_FINE_SLOTS, most, 1),
            Span.DAY: Timeline(_ROUGH_SLOTS, most, 1),
        }
        self._groups = {
            Span.HOUR: Timeline(_FINE_SLOTS, most, 3),
            Span.DAY: Timeline(_ROUGH_SLOTS, most, 3),
        }
        self._rough_at = float("-inf")
        #: When the last sample was added, Unix seconds; None before the first.
        self.sampled_at: float | None = None

    def add(self, look: Look) -> None:
        """Add a sample taken now."""
        now = self._clock()
        self.sampled_at = now
        spans = [Span.HOUR]
        if now - self._rough_at >= _ROUGH_PERIOD:
            self._rough_at = now
            spans.append(Span.DAY)
        for span in spans:
            self._topics[span].add(now, {name: (end,) for name, end in look.topics.items()})
            self._groups[span].add(now, look.groups)

    @property
    def topics(self) -> list[str]:
        """The topics that were seen within the hour."""
        return self._topics[Span.HOUR].names

    @property
    def groups(self) -> list[str]:
        """The groups that were seen within the hour."""
        return self._groups[Span.HOUR].names

    def topic(self, name: str, span: Span = Span.HOUR) -> list[TopicPoint]:
        """The rates of a topic, the oldest first."""
        return [
            TopicPoint(at, rate(before[0], now[0], at - earlier))
            for (earlier, before), (at, now) in _windows(self._read(self._topics, name, span))
        ]

    def group(self, name: str, span: Span = Span.HOUR) -> list[GroupPoint]:
        """The lag and the rates of a group, the oldest first."""
        points = []
        for (earlier, before), (at, now) in _windows(self._read(self._groups, name, span)):
            moved = speed(Progress(*before), Progress(*now), at - earlier)
            points.append(GroupPoint(at, now[2], moved.arriving, moved.consuming))
        return points

    def topic_rate(self, name: str) -> float | None:
        """Return the current rate of a topic, messages a second; None while it is unknown."""
        windows = _windows([*self._topics[Span.HOUR].read(name, last=_MOST_IN_WINDOW)])
        if not windows or windows[-1][1][0] != self.sampled_at:
            return None
        (earlier, before), (at, now) = windows[-1]
        return rate(before[0], now[0], at - earlier)

    def group_speed(self, name: str) -> Speed | None:
        """Return the current rates of a group; None while they are unknown."""
        windows = _windows([*self._groups[Span.HOUR].read(name, last=_MOST_IN_WINDOW)])
        if not windows or windows[-1][1][0] != self.sampled_at:
            return None
        (earlier, before), (at, now) = windows[-1]
        return speed(Progress(*before), Progress(*now), at - earlier)

    def lag(self, name: str) -> int | None:
        """Return the lag of a group at the last sample; None if the sample lacks the group."""
        newest = next(self._groups[Span.HOUR].read(name, last=1), None)
        return None if newest is None else newest[1][2]

    def lags(self, name: str) -> list[float]:
        """Return evenly spaced lags of a group within the hour."""
        timeline = self._groups[Span.HOUR]
        samples = timeline.read(name, stride=max(timeline.samples // _SKETCHED, 1))
        return [float(figures[2]) for _, figures in samples]

    def _read(self, timelines: Mapping[Span, Timeline], name: str, span: Span) -> list[Sample]:
        samples = list(timelines[Span.HOUR].read(name))
        if span is Span.DAY:
            begin = samples[0][0] if samples else float("inf")
            samples = [each for each in timelines[Span.DAY].read(name) if each[0] < begin] + samples
        return samples


def _windows(samples: list[Sample]) -> list[tuple[Sample, Sample]]:
    """Pair each sample but the first with the earlier one from which its rates are measured."""
    windows = []
    first = 0
    for number in range(1, len(samples)):
        while first < number - 1 and samples[number][0] - samples[first][0] > _RATE_WINDOW:
            first += 1
        windows.append((samples[first], samples[number]))
    return windows
