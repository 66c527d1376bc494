"""The writers that Spark is given: they send the rows of a DataFrame or a stream to brokers.

Each task sends its rows itself and ends when brokers have stored them all. The driver commits
nothing: RocketMQ has no transactions over many messages. Messages of a failed task attempt stay,
and the next attempt sends them again with the same row ids.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyspark
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pocketmq.spark.message_columns import check_columns
from pocketmq.spark.sessions.needed_packages import needed_for

with needed_for("writing to brokers"):
    from pocketmq.spark.options.writer_options import WriterOptions
    from pocketmq.spark.rows import Rows
    from pocketmq.spark.writing.row_sender import send_rows


#: PySpark 4.0 has none; there the name stands for an unused base.
_StreamArrowWriter: Final[Any] = getattr(
    datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter
)


def batch_writer(
    given: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """Return the writer of `DataFrame.write`, for options as Spark gives them.

    Raises:
        ValueError: an option is invalid or unknown; the mode is overwrite; or messages cannot be
            made from the columns.
    """
    options = WriterOptions.parse(given, streaming=False)
    if overwrite:
        raise ValueError(
            "mode overwrite: messages that are stored cannot be replaced; "
            'use df.write.format("rocketmq").mode("append")'
        )
    _check(schema, options)
    # Created once, on the driver, so that another attempt of a task gives its rows the same ids.
    return _BatchWriter(options, options.write_id or str(uuid.uuid4()))


def stream_writer(
    given: Mapping[str, str], schema: StructType, overwrite: bool
) -> datasource.DataSourceStreamWriter:
    """Return the writer of `DataFrame.writeStream`, for options as Spark gives them.

    Raises:
        ValueError: as for `batch_writer`, with output mode complete instead of overwrite.
        NotImplementedError: this PySpark is older than 4.1.
    """
    options = WriterOptions.parse(given, streaming=True)
    if _StreamArrowWriter is datasource.DataSourceStreamWriter:
        raise NotImplementedError(
            f"streams to RocketMQ need PySpark 4.1 or newer; this is {pyspark.__version__}. "
            "Batch writes work with it, also in foreachBatch"
        )
    if overwrite:
        raise ValueError(
            "output mode complete: messages that are stored cannot be replaced; "
            'use outputMode("append")'
        )
    _check(schema, options)
    return _StreamWriter(options)


def _check(schema: StructType, options: WriterOptions) -> None:
    check_columns(schema, topic_given=options.topic is not None, json_body=options.json_body)


def _send(batches: Iterator[Any], options: WriterOptions, write_id: str) -> WriterCommitMessage:
    context = TaskContext.get()
    assert context is not None  # Spark calls writers only in tasks
    partition = context.partitionId()
    rows = Rows(
        options.topic,
        json_body=options.json_body,
        id_prefix=f"{write_id}/{partition}/" if options.row_ids else None,
        most_messages=options.batch_messages,
        most_bytes=options.batch_bytes,
    )
    try:
        send_rows(batches, rows, options)
    except Exception as error:
        error.add_note(f"in partition {partition} of the write; rows are counted from 0")
        raise
    return WriterCommitMessage()


class _BatchWriter(DataSourceArrowWriter):
    """Sends the partitions of one DataFrame."""

    def __init__(self, options: WriterOptions, write_id: str) -> None:
        self._options = options
        self._write_id = write_id

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of one partition."""
        return _send(iterator, self._options, self._write_id)


class _StreamWriter(_StreamArrowWriter):  # type: ignore[misc]  # 4.0 lacks the name
    """Sends the partitions of the batches of one query."""

    def __init__(self, options: WriterOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of one partition of one batch."""
        context = TaskContext.get()
        assert context is not None
        # Both stay the same if the batch is rewritten after a restart. Spark passes the batch's
        # number only to `commit`, but tasks find it where Spark's own sources do.
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        return _send(iterator, self._options, f"{query}/{batch}")
