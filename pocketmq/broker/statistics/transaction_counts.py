"""The outcomes of transactions by topic, for the metrics of the broker. Reference:
TransactionMetrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pocketmq.monitoring.families import Histogram

#: Seconds, the upper bounds of rocketmq_finish_message_latency.
FINISH_BOUNDS: Final = (5, 60, 600, 3600, 43_200, 86_400)


class TransactionCounts:
    """The transactions of one broker since its start.

    Attributes:
        committed, rolled_back: number of transactions by topic.
        finish: seconds from the birth of a half message to its commit.
    """

    def __init__(self) -> None:
        self.committed: dict[str, int] = {}
        self.rolled_back: dict[str, int] = {}
        self.finish = Histogram(FINISH_BOUNDS)
        self._pending: dict[str, int] = {}

    @property
    def pending(self) -> dict[str, int]:
        """Half messages that are neither committed nor rolled back, by topic."""
        return self._pending

    def begin_with(self, pending: Mapping[str, int]) -> None:
        """Set the number of pending half messages, by topic."""
        self._pending = dict(pending)

    def begin(self, topic: str) -> None:
        """Count a half message."""
        self._pending[topic] = self._pending.get(topic, 0) + 1

    def commit(self, topic: str, milliseconds: int) -> None:
        """Count a commit this many milliseconds after the birth of its half message."""
        self.committed[topic] = self.committed.get(topic, 0) + 1
        self.finish.add((topic,), max(milliseconds, 0) / 1000)
        self.end(topic)

    def rollback(self, topic: str) -> None:
        """Count a rollback."""
        self.rolled_back[topic] = self.rolled_back.get(topic, 0) + 1
        self.end(topic)

    def end(self, topic: str) -> None:
        """Stop counting a half message: it ended, or its checks were given up."""
        left = self._pending.get(topic, 0)
        if left:
            self._pending[topic] = left - 1

    def forget_topic(self, topic: str) -> None:
        """Remove the counts of a deleted topic."""
        for table in (self.committed, self.rolled_back, self._pending):
            table.pop(topic, None)
        self.finish.forget((topic,))
