"""Writes the batches of a stream into a table, each once.

The executors write Parquet files that belong to no table yet. The driver commits them together,
with the ids of the query and the batch. If Spark repeats a batch after a crash of the driver and
the table has it, nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pocketmq.spark.sessions.needed_packages import needed_for

with needed_for("table_sink"):
    from pocketmq.tables.body_decoder import BodyDecoder
    from pocketmq.tables.errors import TableError
    from pocketmq.tables.table import TableFormat, check_keeper, open_table
    from pocketmq.tables.table_writer import OnError, TableWriter, table_schema

_QUERY_ID = "sql.streaming.queryId"
_FILES = "rows array<string>, deadLetters array<string>"


def table_sink(
    directory: Path | str,
    format: TableFormat = "parquet",
    *,
    decoder: BodyDecoder | None = None,
    on_error: OnError = "dead-letter",
    compression: str = "zstd",
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that keeps a table up to date, each row exactly once.

    The directory must be at the same path on the driver and on all executors. A query with a new
    checkpoint is a new query, and adds its rows. Does not work with Spark Connect.

    Args:
        directory: of the table; created if it does not exist.
        format: `parquet` or `delta`.
        decoder: of the column `body`; None leaves it as it is.
        on_error: how to treat bodies that cannot be decoded: `dead-letter`, `skip`, `fail`.
        compression: `zstd`, `snappy`, `gzip` or `none`.

    Raises (from the function):
        TableError: the table cannot be written, has other columns, or is kept by exports.

    Example::

        orders.writeStream.foreachBatch(table_sink("/data/orders", "delta"))
    """
    path = Path(directory).expanduser().resolve()

    def write(frame: DataFrame, batch_id: int) -> None:
        context = getattr(frame.sparkSession, "sparkContext", None)
        if context is None:  # a session of Spark Connect
            raise TableError(
                "table_sink does not work with Spark Connect, which does not tell the id of the "
                "query: start the query in a session of its own driver, or keep the table with "
                "`pocketmq export`"
            )
        query = context.getLocalProperty(_QUERY_ID)
        if query is None:
            raise TableError("table_sink is for foreachBatch of a streaming query")
        table = open_table(path, format)
        try:
            if table.last.batches.get(query, -1) >= batch_id:
                return
            check_keeper(table, "table_sink")
            schema = _arrow_schema(frame.schema)
            columns = tuple(schema.names)
            table.widen(table_schema(schema, columns, decoder))
            number = table.last.number + 1

            def write_files(batches: Iterable[Any]) -> Iterator[Any]:
                if not path.is_dir():
                    raise TableError(
                        f"this executor does not see {path}: the table must be at the same path on "
                        "the driver and on every executor, on a shared file system for instance"
                    )
                files = TableWriter(
                    path, number, schema, columns,
                    decoder=decoder, on_error=on_error, compression=compression,
                )  # fmt: skip
                for batch in batches:
                    files.add(batch.cast(schema))
                rows, dead = files.close()
                if rows or dead:
                    yield pa.RecordBatch.from_pydict({"rows": [rows], "deadLetters": [dead]})

            written = frame.mapInArrow(write_files, _FILES).collect()
            files = [name for row in written for name in row.rows]
            dead_letters = [name for row in written for name in row.deadLetters]
            table.commit(
                table.last.following(
                    files=files, dead_letters=dead_letters, batches={query: batch_id}
                )
            )
        finally:
            table.close()

    return write


def _arrow_schema(schema: StructType) -> Any:
    """Return the columns as Arrow has them, with times in UTC. PySpark 4.3 has to be told the time
    zone; older ones do not take it."""
    if "timezone" in signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)
