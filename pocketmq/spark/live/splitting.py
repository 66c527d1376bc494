"""Splits ranges of queues into partitions with about equal numbers of messages.

Brokers do not report the size of a range in bytes, so messages are counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pocketmq.spark.live.partition import LivePartition, LiveRange
from pocketmq.store.scan.planning.partitioning import PartitionLimits

SPLIT_MESSAGES: Final = 131_072
"""About the most messages of a partition: as many as a partition of files has of 1 KiB each."""
WORTH_A_CORE: Final = 4096
"""Fewer messages than this are not split just to keep another core busy."""


def split(ranges: Iterable[LiveRange], limits: PartitionLimits) -> list[LivePartition]:
    """Divide the ranges into partitions, each with at least one offset. Long ranges are cut, short
    ones are combined."""
    wanted = [part for part in ranges if part.start < part.stop]
    total = sum(part.stop - part.start for part in wanted)
    if not total:
        return []
    count = limits.partitions(total, total, SPLIT_MESSAGES, WORTH_A_CORE)
    partitions = []
    current: list[LiveRange] = []
    done, bound = 0, total // count
    for part in wanted:
        start = part.start
        while start < part.stop:
            stop = min(part.stop, start + bound - done)
            current.append(part._replace(start=start, stop=stop))
            done += stop - start
            start = stop
            if done == bound:
                partitions.append(LivePartition(current))
                current = []
                # Sizes differ by one message at most, because the last one must not be larger.
                bound = total * (len(partitions) + 1) // count
    return partitions
