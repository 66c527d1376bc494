"""The driver's part of a read: checks the options and creates a reader."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from pocketmq.archive.archives import brokers_under
from pocketmq.spark.batch_reader import PushdownReader, RocketMQReader
from pocketmq.spark.options.option_error import is_of_catalog, shown, without_catalog
from pocketmq.spark.options.options import Options, Use
from pocketmq.spark.schema import ddl
from pocketmq.store.scan.planning.snapshot import check_store
from pocketmq.store.scan.records.columns import ALL_COLUMNS, COLUMNS

_OPTIONS: Final = "rocketmq.options"
"""The metadata key for the options of a table of Spark's catalog, in its first column."""


def columns_of(options: Mapping[str, str]) -> str | StructType:
    """Return the columns of the source. Checks the options and the paths.

    Raises:
        OptionError: an option has an invalid value, or does not exist.
        NoStore, NoArchive: a path has none.
        ArchiveError: an archive cannot be read.
    """
    parsed = Options.parse(options)
    for root in parsed.roots:
        check_store(root)
    for location in parsed.archives:
        brokers_under(location)
    if is_of_catalog(options):
        return _table_schema(parsed, without_catalog(options))
    return ddl(parsed.include_metadata)


def _table_schema(parsed: Options, given: Mapping[str, str]) -> StructType:
    """Return the columns of a table of Spark's catalog, with its options in the first one.

    Spark keeps the options of such a table, but passes only the schema to a Python source that
    reads it. Raises OptionError for a secret, which the catalog would show.
    """
    for name in ("accessKey", "secretKey", "securityToken"):
        if name.lower() in given:
            raise shown(name, "", "cannot be an option of a table; use CREATE TEMPORARY VIEW")
    columns = ALL_COLUMNS if parsed.include_metadata else COLUMNS
    schema = from_arrow_schema(pa.schema(list(columns.items())))
    schema[0].metadata[_OPTIONS] = json.dumps(given)
    return schema


def _options_of(options: Mapping[str, str], schema: StructType) -> Mapping[str, str]:
    """Return the options of a read, including those of a table of the catalog."""
    kept = next((field.metadata[_OPTIONS] for field in schema if _OPTIONS in field.metadata), None)
    return options if kept is None else {**json.loads(kept), **options}


def batch_reader(
    options: Mapping[str, str], schema: StructType, parallelism: int | None
) -> DataSourceReader:
    """Return a reader for `spark.read`. `parallelism`: of the session, if known.

    Raises OptionError, SchemaError.
    """
    parsed = Options.parse(_options_of(options, schema), Use.BATCH, parallelism)
    wanted = PUSHED_PER_SCAN if parsed.push_filters is None else parsed.push_filters
    if wanted and _spark_pushes():
        return PushdownReader(parsed, schema)
    return RocketMQReader(parsed, schema)


def stream_reader(
    options: Mapping[str, str], schema: StructType, parallelism: int | None
) -> DataSourceStreamReader:
    """Return a reader for `spark.readStream`.

    Raises NotImplementedError with older versions of PySpark, and the errors of
    `RocketMQStreamReader`.
    """
    if not hasattr(DataSourceStreamReader, "getDefaultReadLimit"):
        raise NotImplementedError(
            "streams of the source rocketmq need pyspark 4.2 or newer; this is "
            f"{pyspark.__version__}; spark.read works with it"
        )
    from pocketmq.spark.streams.stream_reader import (
        RocketMQStreamReader,  # older versions cannot import it
    )

    options = _options_of(options, schema)
    return RocketMQStreamReader(Options.parse(options, Use.STREAM, parallelism), schema)


PUSHED_PER_SCAN: Final = hasattr(DataSourceReader, "pushLimit")
"""Whether this Spark keeps pushed filters with the scan they were pushed for. The change that added
limits to Python sources (SPARK-58551) moved them there."""


def _spark_pushes() -> bool:
    """Return whether Spark is about to push filters down to the requested reader.

    The configuration is not available here, in a Python worker. But Spark uses a different worker
    module if pushing is on and the query has filters, and only that module calls `pushFilters`.
    """
    name = "pyspark.sql.worker.data_source_pushdown_filters"
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return name in sys.modules or (main is not None and main.name == name)
