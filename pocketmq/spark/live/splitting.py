"""Splits ranges of queues into partitions of about as many messages each.

Brokers do not say how many bytes a range has, so messages are what is counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pocketmq.spark.live.partition import LivePartition, LiveRange
from pocketmq.store.scan.planning.partitioning import PartitionLimits

SPLIT_MESSAGES: Final = 131_072
"""A partition has about as many at most: as many of 1 KiB as a partition of files has."""
WORTH_A_CORE: Final = 4096
"""Fewer messages than this are not split only to keep another core busy."""


def split(ranges: Iterable[LiveRange], limits: PartitionLimits) -> list[LivePartition]:
    """Return the ranges in partitions, each of which has at least one offset. Long ones are cut,
    short ones are put together."""
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
                # Of equal size but for one message, since the last one may be no larger.
                bound = total * (len(partitions) + 1) // count
    return partitions
