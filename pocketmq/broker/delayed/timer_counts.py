"""The timed messages by topic, for the metrics of the broker. Reference: TimerMetrics."""

from __future__ import annotations

from typing import Final

from pocketmq.monitoring.families import Histogram

#: Seconds, the upper borders of rocketmq_delay_message_latency.
DELAY_BOUNDS: Final = (60, 600, 3600, 43_200, 86_400, 259_200)

MOST_TOPICS: Final = 20_000  # the one that a waiting message names need not exist


class TimerCounts:
    """The timed messages of one broker since its start.

    Attributes:
        enqueued, dequeued: how many entered the timer and left it, by topic.
        delays: seconds that messages were to wait when they came.
    """

    def __init__(self) -> None:
        self.enqueued: dict[str, int] = {}
        self.dequeued: dict[str, int] = {}
        self.delays = Histogram(DELAY_BOUNDS)
        self._waiting: dict[str, int] = {}

    @property
    def waiting(self) -> dict[str, int]:
        """Messages that came since the start and wait, by topic."""
        return self._waiting

    def enter(self, topic: str, delay_ms: int) -> None:
        """Count a message that begins to wait for `delay_ms`."""
        if topic not in self.enqueued and len(self.enqueued) >= MOST_TOPICS:
            return
        self.enqueued[topic] = self.enqueued.get(topic, 0) + 1
        self._waiting[topic] = self._waiting.get(topic, 0) + 1
        self.delays.add((topic,), max(delay_ms, 0) / 1000)

    def leave(self, topic: str, *, delivered: bool) -> None:
        """Count a message that waits no more: it is `delivered`, or was taken back. It may be from
        before the start."""
        if delivered and (topic in self.dequeued or len(self.dequeued) < MOST_TOPICS):
            self.dequeued[topic] = self.dequeued.get(topic, 0) + 1
        left = self._waiting.get(topic, 0)
        if left:
            self._waiting[topic] = left - 1

    def forget_topic(self, topic: str) -> None:
        """Remove the counts of a deleted topic."""
        for table in (self.enqueued, self.dequeued, self._waiting):
            table.pop(topic, None)
        self.delays.forget((topic,))
