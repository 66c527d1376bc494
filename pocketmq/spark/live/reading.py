"""Reads a partition from brokers, on an executor."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from pocketmq.spark.live.options import LiveOptions
from pocketmq.spark.live.partition import LivePartition
from pocketmq.spark.live.pulls import TaskPulls
from pocketmq.spark.options import Options
from pocketmq.store.errors import StoreError
from pocketmq.store.scan.pulled import PulledQueue, PulledReader
from pocketmq.store.scan.selection import Selection

log = logging.getLogger(__name__)


def read_live(
    partition: LivePartition, options: Options, live: LiveOptions, schema: Any, selection: Selection
) -> Iterator[Any]:
    """Return the messages of a partition as `pyarrow.RecordBatch`es of an Arrow schema.

    Raises:
        QueueNotRead: a broker did not answer within the timeout, or refused.
        RecordsLost, PulledCorrupt: records are gone or corrupt (failOnDataLoss).
        OSError: a file of TLS cannot be read.
    """

    def lose(count: int, error: StoreError) -> None:
        if options.fail_on_data_loss:
            raise error
        log.warning("left out %d offsets: %s", count, error)

    reader = PulledReader(
        schema.names,
        lose,
        selection=selection,
        tags=live.expression.tags.tags or None,
        decompress=options.decompress,
    )
    for part, answers in TaskPulls(partition.ranges, live, lose):
        queue = PulledQueue(part.broker, part.topic, part.queue_id)
        for batch in reader.read(queue, answers, part.start, part.stop):
            # The same arrays under Spark's schema, which may call columns not nullable.
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
