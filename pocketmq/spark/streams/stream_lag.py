"""Computes how far a stream is, and what it left out, from the progress that Spark reports."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pocketmq.store.scan.stream_offsets import Offsets, StreamQueue, offsets_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress


def lag(progress: StreamingQueryProgress) -> dict[StreamQueue, int]:
    """Return the offsets that a trigger left unread, by topic, broker and queue id.

    Other sources do not count. If a query reads a queue twice, as a join can, the larger lag
    counts. Queues that were read to their end have 0. The ends are those at the beginning of the
    trigger.

    Args:
        progress: `query.lastProgress`, one of `query.recentProgress`, or `event.progress` of a
            `StreamingQueryListener`.

    Example::

        for queue, offsets in pocketmq.spark.lag(query.lastProgress).items():
            print(queue.topic, queue.broker, queue.queue_id, offsets)
    """
    behind: dict[StreamQueue, int] = {}
    for source in progress.sources:
        ends, latest = read_offsets(source.endOffset), read_offsets(source.latestOffset)
        for queue, end in latest.items():
            left = max(end - ends.get(queue, 0), 0)
            behind[queue] = max(left, behind.get(queue, 0))
    return behind


def left_out(progress: StreamingQueryProgress) -> int:
    """Return how many offsets a trigger passed without a row: messages lost, with
    `failOnDataLoss=false`.

    The first trigger of a query, new queues, and queues that began anew do not count. With the
    options `tags` and `sql`, messages that brokers filter out count as well. Spark counts the rows:
    a `foreachBatch` function that reads a batch twice hides losses, and one that reads a part of it
    makes some up.

    Args:
        progress: as for `lag`.

    Example::

        lost = sum(pocketmq.spark.left_out(progress) for progress in query.recentProgress)
    """
    count = 0
    for source in progress.sources:
        starts, ends = read_offsets(source.startOffset), read_offsets(source.endOffset)
        passed = sum(max(end - starts.get(queue, end), 0) for queue, end in ends.items())
        count += max(passed - source.numInputRows, 0)
    return count


def read_offsets(text: str | None) -> Offsets:
    """Return the offsets of a `rocketmq` source; none for another source, whose progress has a
    different form (Spark gives all Python sources the same name)."""
    try:
        return offsets_of(json.loads(text or "{}"))
    except ValueError:
        return {}
