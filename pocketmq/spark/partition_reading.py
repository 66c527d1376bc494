"""Reads partitions of files on an executor.

To read files, Spark's workers load only this module and its imports. They may have no packages but
numpy and pyarrow, and start sooner without the rest, so planning does not belong here:
`tests/test_architecture.py` has the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pocketmq.spark.slice_partition import NotedPartition, SlicePartition
from pocketmq.store.scan.queues.queue_slice import QueueSlice
from pocketmq.store.scan.queues.selection import Selection
from pocketmq.store.scan.reader import SliceReader

T = TypeVar("T")


class TaskReader(Protocol):
    """The interface with which a task reads its partition. Can be pickled."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the records of one partition as `pyarrow.RecordBatch`es."""


@dataclass(frozen=True, slots=True)
class FileReader:
    """Reads the planned partitions of stores and archives.

    Attributes:
        schema: the Arrow schema that Spark expects.
        selection: which records.
        decompress, fail_on_data_loss: the options of these names.
    """

    schema: Any
    selection: Selection
    decompress: bool
    fail_on_data_loss: bool

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the records of one partition as `pyarrow.RecordBatch`es.

        Raises:
            NotVisible: the store is not at its path on this machine.
            StoreCorrupt, RecordsLost: a record is corrupt or gone (failOnDataLoss).
        """
        slices: Iterable[QueueSlice]
        if isinstance(partition, NotedPartition):
            slices = partition.queues.slices(partition.files)
            physical = partition.queues.physical
        elif isinstance(partition, SlicePartition):
            slices, physical = partition.slices, partition.physical
        else:
            return  # Spark's placeholder if there are no partitions
        partition.files.check_visible()
        reader = SliceReader(
            partition.files,
            self.schema.names,
            selection=self.selection & Selection(physical_offset=physical),
            decompress=self.decompress,
            fail_on_data_loss=self.fail_on_data_loss,
        )
        for batch in reader.read_all(slices):
            # The same arrays under Spark's schema, which may call columns not nullable.
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)


def handed_over(reader: T) -> T:
    """Return the reader for the executors; the planning reader unpickles to it."""
    return reader
