"""Timed messages by topic, for the metrics of the broker. Reference: TimerMetrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from pocketmq.message.tags import string_hash
from pocketmq.monitoring.families import Histogram

#: Seconds, the upper bounds of rocketmq_delay_message_latency.
DELAY_BOUNDS: Final = (60, 600, 3600, 43_200, 86_400, 259_200)

MOST_TOPICS: Final = 20_000  # a limit is needed: waiting messages may name topics that do not exist


_hash_of: Final = lru_cache(MOST_TOPICS)(string_hash)


class TimerCounts:
    """The timed messages of one broker.

    Waiting messages are counted by the hash of their topic. The units of the timer log contain it,
    so a broker that starts can count them without reading the messages. A recall counts as -1 while
    it waits in the slot of the message that it recalls, as in the timer wheel.

    Attributes:
        enqueued, dequeued: messages that entered the timer, and that were delivered, since the
            start, by topic.
        delays: the delays of the messages when they were sent, in seconds.
    """

    def __init__(self) -> None:
        self.enqueued: dict[str, int] = {}
        self.dequeued: dict[str, int] = {}
        self.delays = Histogram(DELAY_BOUNDS)
        self._waiting: dict[int, int] = {}

    def waiting(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the number of waiting messages by topic, without topics that have none."""
        if not self._waiting:
            return {}
        counts = ((topic, self._waiting.get(_hash_of(topic), 0)) for topic in topics)
        return {topic: count for topic, count in counts if count > 0}

    def begin(self, waiting: Mapping[int, int]) -> None:
        """Set the number of messages that already wait, by the hash of their topic."""
        self._waiting = dict(waiting)

    def enter(self, topic: str, *, is_recall: bool) -> None:
        """Count a message or a recall that starts to wait."""
        self._add(topic, -1 if is_recall else 1)

    def sent(self, topic: str, delay_ms: int) -> None:
        """Count a message that was sent with a delay of `delay_ms`."""
        if topic not in self.enqueued and len(self.enqueued) >= MOST_TOPICS:
            return
        self.enqueued[topic] = self.enqueued.get(topic, 0) + 1
        self.delays.add((topic,), max(delay_ms, 0) / 1000)

    def leave(self, topic: str, *, is_recall: bool = False) -> None:
        """Count a message or a recall that stops waiting, or that is about to `enter` again."""
        self._add(topic, 1 if is_recall else -1)

    def deliver(self, topic: str) -> None:
        """Count a message that is delivered."""
        self.leave(topic)
        if topic in self.dequeued or len(self.dequeued) < MOST_TOPICS:
            self.dequeued[topic] = self.dequeued.get(topic, 0) + 1

    def forget_topic(self, topic: str) -> None:
        """Remove the counts of a deleted topic."""
        self.enqueued.pop(topic, None)
        self.dequeued.pop(topic, None)
        self._waiting.pop(_hash_of(topic), None)
        self.delays.forget((topic,))

    def _add(self, topic: str, count: int) -> None:
        key = _hash_of(topic)
        waiting = self._waiting.get(key, 0) + count
        if waiting:
            self._waiting[key] = waiting
        else:
            self._waiting.pop(key, None)
