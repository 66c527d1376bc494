"""A partition of a read from brokers, as Spark hands it to a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition


class LiveRange(NamedTuple):
    """The queue offsets from `start` up to (not including) `stop` of one queue."""

    broker: str
    topic: str
    queue_id: int
    start: int
    stop: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker}/{self.queue_id} {self.start}..{self.stop}"


class LivePartition(InputPartition):
    """Ranges of queues to pull from their brokers one after another."""

    def __init__(self, ranges: Sequence[LiveRange]) -> None:
        self.ranges = tuple(ranges)

    def __repr__(self) -> str:
        return f"LivePartition({', '.join(map(str, self.ranges))})"
