"""A partition as batches and streams have it: planned on the driver, read on an executor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pocketmq.spark.options import Options
from pocketmq.store.scan.noted_queues import NotedQueues
from pocketmq.store.scan.offsets import LATEST, OffsetBounds
from pocketmq.store.scan.partitioning import PartitionLimits
from pocketmq.store.scan.plan import ScanRequest
from pocketmq.store.scan.queue_slice import QueueSlice
from pocketmq.store.scan.reader import SliceReader
from pocketmq.store.scan.selection import EVERYTHING, Range, Selection
from pocketmq.store.scan.store_files import StoreFiles
from pocketmq.store.scan.stream_offsets import StreamQueue


class SlicePartition(InputPartition):
    """Slices of queues of one store, and between which physical offsets they are read."""

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
    """What lies between two places of the log of one store, in very many queues."""

    def __init__(self, files: StoreFiles, queues: NotedQueues) -> None:
        self.files = files
        self.queues = queues

    def __repr__(self) -> str:
        count = sum(map(len, self.queues.spans.values()))
        return f"NotedPartition({self.files}: {count} queues, {self.queues.physical})"


def limits_per_store(options: Options, stores: int) -> PartitionLimits:
    """Return how finely to split each of a number of stores."""
    return PartitionLimits(
        least=-(-options.min_partitions // stores),
        cores=options.parallelism,
        most_records=options.max_records_per_partition,
    )


def request_of(spans: Mapping[StreamQueue, tuple[int, int]]) -> ScanRequest:
    """Return what asks for the offsets between the first and (without it) the second of each
    queue."""
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


def read_slices(
    partition: InputPartition, options: Options, schema: Any, selection: Selection
) -> Iterator[Any]:
    """Return the records of one partition as `pyarrow.RecordBatch`es of an Arrow schema.

    Raises:
        NotVisible: the store is not at its path on this machine.
        StoreCorrupt, RecordsLost: a record is corrupt or gone (failOnDataLoss).
    """
    slices: Iterable[QueueSlice]
    if isinstance(partition, NotedPartition):
        slices = partition.queues.slices(partition.files)
        selection &= Selection(physical_offset=partition.queues.physical)
    elif isinstance(partition, SlicePartition):
        slices = partition.slices
        selection &= Selection(physical_offset=partition.physical)
    else:
        return  # what Spark makes up when there are no partitions
    partition.files.check_visible()
    reader = SliceReader(
        partition.files,
        schema.names,
        selection=selection,
        decompress=options.decompress,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    for part in slices:
        for batch in reader.read(part):
            # The same arrays under Spark's schema, which may call columns not nullable.
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
