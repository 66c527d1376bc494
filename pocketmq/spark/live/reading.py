"""Reads partitions from brokers, on an executor."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pocketmq.spark.live.partition import LivePartition
from pocketmq.spark.options.live_options import LiveOptions
from pocketmq.spark.partition_reading import FileReader
from pocketmq.spark.sessions.needed_packages import needed_for
from pocketmq.store.errors import StoreError
from pocketmq.store.scan.records.pulled import PulledQueue, PulledReader

with needed_for("reading from running brokers"):
    from pocketmq.client.consumer.expression import EVERYTHING
    from pocketmq.spark.live.pulls import TaskPulls

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LiveReader:
    """Reads the planned partitions of brokers and files.

    Attributes:
        files: reads the partitions of files. Its options apply to brokers too.
        live: how brokers are asked.
    """

    files: FileReader
    live: LiveOptions

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the records of one partition as `pyarrow.RecordBatch`es.

        Raises what `FileReader.read` raises, and:
            QueueNotRead: a broker did not answer within the timeout, or refused.
            RecordsLost, PulledCorrupt: records are gone or corrupt (failOnDataLoss).
            OSError: a file of TLS cannot be read.
        """
        if isinstance(partition, LivePartition):
            return self._pulled(partition)
        return self.files.read(partition)

    def _pulled(self, partition: LivePartition) -> Iterator[Any]:
        files, live = self.files, self.live
        expected = sum(part.stop - part.start for part in partition.ranges)

        def lose(count: int, error: StoreError) -> None:
            nonlocal expected
            if files.fail_on_data_loss:
                raise error
            expected -= count
            log.warning("left out %d offsets: %s", count, error)

        reader = PulledReader(
            files.schema.names,
            lose,
            selection=files.selection,
            tags=live.expression.tags.tags or None,
            decompress=files.decompress,
        )
        for part, answers in TaskPulls(partition.ranges, live, lose):
            queue = PulledQueue(part.broker, part.topic, part.queue_id)
            for batch in reader.read(queue, answers, part.start, part.stop):
                # The same arrays with Spark's schema, which may declare columns not nullable.
                yield pa.RecordBatch.from_arrays(batch.columns, schema=files.schema)
        holes = expected - reader.seen
        if holes > 0 and live.expression == EVERYTHING:  # otherwise brokers filter out messages
            log.warning(
                "left out %d offsets of %s: they have no message; it was lost in a damaged log, or "
                "in a crash",
                holes,
                ", ".join(
                    f"{part.broker} {part.topic}/{part.queue_id}" for part in partition.ranges
                ),
            )
