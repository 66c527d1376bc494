"""Reads a partition where its records are: in files, or at brokers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition

from pocketmq.spark.live.partition import LivePartition
from pocketmq.spark.options import Options
from pocketmq.spark.slice_partition import read_slices
from pocketmq.store.scan.selection import Selection


def read_partition(
    partition: InputPartition, options: Options, schema: Any, selection: Selection
) -> Iterator[Any]:
    """Return the records of one partition as `pyarrow.RecordBatch`es of an Arrow schema.

    Raises what `read_slices` and `read_live` raise.
    """
    if isinstance(partition, LivePartition) and options.live is not None:
        # Imported on use: reading files takes no package of the client.
        from pocketmq.spark.live.reading import read_live

        return read_live(partition, options, options.live, schema, selection)
    return read_slices(partition, options, schema, selection)
