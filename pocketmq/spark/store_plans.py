"""The planning of store reads that batches and streams share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from pocketmq.spark.options.options import Options
from pocketmq.spark.partition_reading import FileReader, TaskReader
from pocketmq.store.scan.planning.offsets import LATEST, OffsetBounds
from pocketmq.store.scan.planning.partitioning import PartitionLimits
from pocketmq.store.scan.planning.plan import ScanRequest
from pocketmq.store.scan.queues.selection import Selection
from pocketmq.store.scan.stream_offsets import StreamQueue

WITHOUT_BODIES: Final = 16
"""How many times their usual size partitions have if no bodies are read."""


def limits_per_store(
    options: Options, stores: int, columns: Collection[str] = ("body",)
) -> PartitionLimits:
    """Return how finely to split each of a number of stores if these columns are read. Each task
    costs Spark 35 ms, so partitions are larger without bodies."""
    return PartitionLimits(
        least=-(-options.min_partitions // stores),
        cores=options.parallelism,
        most_records=options.max_records_per_partition,
        wider=1 if "body" in columns else WITHOUT_BODIES,
    )


def request_of(spans: Mapping[StreamQueue, tuple[int, int]]) -> ScanRequest:
    """Return the bounds that select the offsets from the first up to (not including) the second of
    each queue."""
    starting: dict[str, dict[int, int]] = {}
    ending: dict[str, dict[int, int]] = {}
    for queue, (begin, stop) in spans.items():
        starting.setdefault(queue.topic, {})[queue.queue_id] = begin
        ending.setdefault(queue.topic, {})[queue.queue_id] = stop
    return ScanRequest(
        wants=lambda topic, queue_id: queue_id in starting.get(topic, {}),
        starting=OffsetBounds(LATEST, starting),
        ending=OffsetBounds(LATEST, ending),
    )


def task_reader(options: Options, schema: Any, selection: Selection) -> TaskReader:
    """Return the reader of the tasks, for an Arrow schema."""
    files = FileReader(schema, selection, options.decompress, options.fail_on_data_loss)
    if options.live is None:
        return files
    # Imported on use: reading files needs no package of the client.
    from pocketmq.spark.live.reading import LiveReader

    return LiveReader(files, options.live)
