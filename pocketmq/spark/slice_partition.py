"""Partitions of files, as the driver plans them and executors read them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.datasource import InputPartition

from pocketmq.store.scan.queues.noted_queues import NotedQueues
from pocketmq.store.scan.queues.queue_slice import QueueSlice
from pocketmq.store.scan.queues.selection import EVERYTHING, Range
from pocketmq.store.scan.store_files import StoreFiles


class SlicePartition(InputPartition):
    """Slices of queues of one store, and the physical offsets between which they are read."""

    def __init__(
        self, files: StoreFiles, slices: Sequence[QueueSlice], physical: Range = EVERYTHING
    ) -> None:
        self.physical = physical
        self.files = files.needed_for(slices)
        self.slices = tuple(slices)

    def __repr__(self) -> str:
        ranges = ", ".join(f"{s.topic}/{s.queue_id} {s.start}..{s.stop}" for s in self.slices)
        return f"SlicePartition({self.files}: {ranges})"


class NotedPartition(InputPartition):
    """The records between two physical offsets of one store, in very many queues."""

    def __init__(self, files: StoreFiles, queues: NotedQueues) -> None:
        self.files = files
        self.queues = queues

    def __repr__(self) -> str:
        count = sum(map(len, self.queues.spans.values()))
        return f"NotedPartition({self.files}: {count} queues, {self.queues.physical})"
