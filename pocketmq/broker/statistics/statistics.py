"""The traffic of the broker: plain counters, and their rates over windows of time.

The hot paths only add to the integers of a `Traffic`; everything else (samples, windows, rates)
happens when `Statistics.tick` is called once a second or when a figure is read. Names and windows
are those of the reference's BrokerStatsManager and StatsItem: a minute in steps of 10 s, an
hour in steps of 10 min, a day in steps of 1 h.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from pocketmq.broker.statistics.message_types import MessageTypes, message_type
from pocketmq.broker.statistics.pop_counts import PopCounts
from pocketmq.broker.statistics.timer_counts import TimerCounts
from pocketmq.broker.statistics.transaction_counts import TransactionCounts
from pocketmq.message.properties import decode
from pocketmq.remoting.monotonic import MonotonicClock, monotonic_ms

MINUTE: Final = "minute"
HOUR: Final = "hour"
DAY: Final = "day"

# window → (ms between two samples, number of samples in the window)
WINDOWS: Final = {
    MINUTE: (10_000, 7),
    HOUR: (600_000, 7),
    DAY: (3_600_000, 25),
}


#: The most pairs of a topic and a group that have counts of their own: any client can pull from
#: each topic in each group, and the counts of a pair take 3 KB, after a day 10 KB.
MOST_PAIRS: Final = 20_000


class Rates(NamedTuple):
    """The figures of one window: the sum, the mean per second, and the mean per call."""

    sum: int
    tps: float
    avgpt: float


class Traffic:
    """Counts that only grow: messages, calls that carried them, and their stored bytes."""

    __slots__ = ("_samples", "messages", "size", "times")

    def __init__(self) -> None:
        self.messages = 0
        self.times = 0
        self.size = 0
        self._samples = {
            window: deque[tuple[int, int, int, int]](maxlen=count)
            for window, (_, count) in WINDOWS.items()
        }

    def add(self, messages: int, times: int, size: int) -> None:
        """Count messages, the calls that carried them, and their stored bytes."""
        self.messages += messages
        self.times += times
        self.size += size

    def sample(self, window: str, now: int) -> None:
        """Record the current counts as a sample of `window`."""
        self._samples[window].append((now, self.messages, self.times, self.size))

    def messages_in(self, window: str, now: int) -> Rates:
        """Return the messages within `window`, up to `now` (ms)."""
        then, messages, times, _ = self._oldest(window)
        return _rates(self.messages - messages, self.times - times, now - then)

    def size_in(self, window: str, now: int) -> Rates:
        """Return the bytes within `window`, up to `now` (ms)."""
        then, _, times, size = self._oldest(window)
        return _rates(self.size - size, self.times - times, now - then)

    def _oldest(self, window: str) -> tuple[int, int, int, int]:
        samples = self._samples[window]
        return samples[0] if samples else (0, 0, 0, 0)


def _rates(total: int, times: int, elapsed_ms: int) -> Rates:
    seconds = max(elapsed_ms, 1000) / 1000  # a new counter would show too high a rate
    return Rates(total, total / seconds, total / times if times else 0.0)


class _PerSecond:
    """One sample a second of a growing count, for rates over 10, 60 and 600 s."""

    def __init__(self) -> None:
        self._samples = deque[tuple[int, int]](maxlen=601)

    def sample(self, now: int, value: int) -> None:
        self._samples.append((now, value))

    def rate(self, seconds: int) -> float:
        if len(self._samples) < 2:
            return 0.0
        last_at, last = self._samples[-1]
        first_at, first = self._samples[max(0, len(self._samples) - 1 - seconds)]
        return (last - first) * 1000 / max(last_at - first_at, 1)

    def text(self) -> str:
        """Return the three rates as RUNTIME_INFO shows them: `"1.0 2.0 3.0"`."""
        return f"{self.rate(10)} {self.rate(60)} {self.rate(600)}"


class Statistics:
    """All counters of one broker. `clock` gives milliseconds since the epoch, which divide days.

    Attributes:
        detailed: messages are also counted by type and size (`types_of`), for metrics.
        dead_letters: messages put into a dead-letter queue, by topic and group.
        timers, transactions: counts of timed messages and of transactions.
        pops: counts of POP's revive log.
    """

    def __init__(
        self,
        cluster: str,
        clock: Callable[[], int],
        monotonic: MonotonicClock = monotonic_ms,
        *,
        detailed: bool = False,
        most_pairs: int = MOST_PAIRS,
    ) -> None:
        self._most_pairs = most_pairs
        self.detailed = detailed
        self._types: dict[str, MessageTypes] = {}
        self.dead_letters: dict[tuple[str, str], int] = {}
        self.timers = TimerCounts()
        self.transactions = TransactionCounts()
        self.pops = PopCounts()
        self._cluster = cluster
        self._clock = clock
        self._monotonic = monotonic
        self.topic_put: dict[str, Traffic] = {}
        self.group_get: dict[str, Traffic] = {}
        self.group_send_back: dict[str, Traffic] = {}
        self._others = self._new()  # of pairs beyond MOST_PAIRS; nobody reads it
        self.put = self._new()
        self.get = self._new()
        self.get_found = 0
        self.get_miss = 0
        self.longest_get = 0  # nanoseconds
        self.timer_enqueued = 0  # timed messages that the timer has read
        self.timer_dequeued = 0  # timed messages that were delivered to their topics
        self.put_rate = _PerSecond()
        self.get_transferred_rate = _PerSecond()
        self.get_found_rate = _PerSecond()
        self.get_miss_rate = _PerSecond()
        self.get_total_rate = _PerSecond()
        self.timer_enqueue_rate = _PerSecond()
        self.timer_dequeue_rate = _PerSecond()
        self.put_totals = DayTotals()
        self.get_totals = DayTotals()
        now = monotonic()
        self._due = {window: now + step for window, (step, _) in WINDOWS.items()}
        self._day = _day_of(clock())

    def _new(self) -> Traffic:
        traffic = Traffic()
        now = self._monotonic()
        for window in WINDOWS:
            traffic.sample(window, now)
        return traffic

    def put_of(self, topic: str) -> Traffic:
        """Return the counter of `topic`; a hot path looks it up once and keeps it."""
        traffic = self.topic_put.get(topic)
        if traffic is None:
            traffic = self.topic_put[topic] = self._new()
        return traffic

    def types_of(self, topic: str) -> MessageTypes:
        """Return the counts by type of `topic`, if these are `detailed`."""
        types = self._types.get(topic)
        if types is None:
            types = self._types[topic] = MessageTypes()
        return types

    def count_put(self, topic: str, size: int, properties: Mapping[str, str]) -> None:
        """Count one message of `size` bytes that was stored in `topic`; not for hot paths."""
        for traffic in (self.put_of(topic), self.put):
            traffic.add(1, 1, size)
        if self.detailed:
            self.types_of(topic).add(message_type(properties), size)

    def count_puts(self, messages: Iterable[tuple[str, int, str]]) -> None:
        """Count stored messages, each given by its topic, size in bytes and encoded properties."""
        sizes: dict[str, list[int]] = {}
        for topic, size, properties in messages:
            sizes.setdefault(topic, []).append(size)
            if self.detailed:
                self.types_of(topic).add(message_type(decode(properties)), size)
        for topic, each in sizes.items():
            for traffic in (self.put_of(topic), self.put):
                traffic.add(len(each), len(each), sum(each))

    def count_dead_letter(self, topic: str, group: str) -> None:
        """Count one message of `topic` that `group` put into its dead-letter queue."""
        key = topic, group
        self.dead_letters[key] = self.dead_letters.get(key, 0) + 1

    def get_of(self, topic: str, group: str) -> Traffic:
        """Return the counter of messages that `group` pulled from `topic`."""
        return self._pair(self.group_get, f"{topic}@{group}")

    def send_back_of(self, topic: str, group: str) -> Traffic:
        """Return the counter of messages of `topic` that `group` sent back."""
        return self._pair(self.group_send_back, f"{topic}@{group}")

    def _pair(self, table: dict[str, Traffic], key: str) -> Traffic:
        traffic = table.get(key)
        if traffic is None:
            if len(table) >= self._most_pairs:
                return self._others
            traffic = table[key] = self._new()
        return traffic

    def forget_topic(self, topic: str) -> None:
        """Remove the counters of a deleted topic."""
        self.topic_put.pop(topic, None)
        self._types.pop(topic, None)
        self.timers.forget_topic(topic)
        self.transactions.forget_topic(topic)
        self.pops.forget_topic(topic)
        for key in [key for key in self.dead_letters if key[0] == topic]:
            del self.dead_letters[key]
        prefix = f"{topic}@"
        for table in (self.group_get, self.group_send_back):
            for name in [name for name in table if name.startswith(prefix)]:
                del table[name]

    def forget_group(self, group: str) -> None:
        """Remove the counters of a deleted group."""
        self.pops.forget_group(group)
        for key in [key for key in self.dead_letters if key[1] == group]:
            del self.dead_letters[key]
        for table in (self.group_get, self.group_send_back):
            for name in [name for name in table if name.partition("@")[2] == group]:
                del table[name]

    def item(self, name: str, key: str, window: str) -> Rates | None:
        """Return the figures for VIEW_BROKER_STATS_DATA; None for an unknown name or key."""
        tables: dict[str, tuple[dict[str, Traffic], bool]] = {
            "TOPIC_PUT_NUMS": (self.topic_put, False),
            "TOPIC_PUT_SIZE": (self.topic_put, True),
            "GROUP_GET_NUMS": (self.group_get, False),
            "GROUP_GET_SIZE": (self.group_get, True),
            "SNDBCK_PUT_NUMS": (self.group_send_back, False),
            "BROKER_PUT_NUMS": ({self._cluster: self.put}, False),
            "BROKER_GET_NUMS": ({self._cluster: self.get}, False),
        }
        table, by_size = tables.get(name, ({}, False))
        traffic = table.get(key)
        if traffic is None:
            return None
        now = self._monotonic()
        return traffic.size_in(window, now) if by_size else traffic.messages_in(window, now)

    def tick(self) -> None:
        """Take the samples that are due; called about once a second."""
        now = self._monotonic()
        self.put_rate.sample(now, self.put.messages)
        self.get_transferred_rate.sample(now, self.get.messages)
        self.get_found_rate.sample(now, self.get_found)
        self.get_miss_rate.sample(now, self.get_miss)
        self.get_total_rate.sample(now, self.get_found + self.get_miss)
        self.timer_enqueue_rate.sample(now, self.timer_enqueued)
        self.timer_dequeue_rate.sample(now, self.timer_dequeued)
        for window, due in self._due.items():
            if now >= due:
                self._due[window] = now + WINDOWS[window][0]
                self._sample_all(window, now)
        if (day := _day_of(self._clock())) != self._day:
            self._day = day
            self.put_totals.next_day(self.put.messages)
            self.get_totals.next_day(self.get.messages)

    def _sample_all(self, window: str, now: int) -> None:
        self.put.sample(window, now)
        self.get.sample(window, now)
        for table in (self.topic_put, self.group_get, self.group_send_back):
            for traffic in table.values():
                traffic.sample(window, now)


class DayTotals:
    """The values of a growing count at the last two midnights (local time)."""

    def __init__(self) -> None:
        self.yesterday_morning = 0
        self.today_morning = 0

    def next_day(self, count: int) -> None:
        """Start a new day with `count`; call this at midnight."""
        self.yesterday_morning, self.today_morning = self.today_morning, count


def _day_of(now_ms: int) -> int:
    return time.localtime(now_ms / 1000).tm_yday
