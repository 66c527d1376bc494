"""Makes `spark.read.format("rocketmq")` work without registering anything.

PySpark looks for `DefaultSource` in top-level modules whose names begin with `pyspark_`. It imports
them all, in the Python of its workers, to look up any source, and an error here would break that
look-up for every source. So this imports nothing but PySpark; pocketmq is loaded when the source is
used.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The source `rocketmq`. `pocketmq.spark.RocketMQDataSource` explains it and its options."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "rocketmq"

    def schema(self) -> StructType | str:
        """Return the columns, as `RocketMQDataSource` does; likewise below."""
        return self._source().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of batches."""
        return self._source().reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader of streams."""
        return self._source().streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer of batches."""
        return self._source().writer(schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return a writer of streams."""
        return self._source().streamWriter(schema, overwrite)

    def _source(self) -> DataSource:
        """Return the source itself. Raises ImportError that says what to install and where."""
        try:
            from pocketmq.spark.source import RocketMQDataSource
        except ImportError as error:
            missing = (error.name or "").partition(".")[0]
            if not missing or find_spec(missing) is not None:
                raise
            raise ImportError(
                f"the source rocketmq needs the package {missing}. Spark's Python workers run "
                f"{sys.executable}, which does not have it. Type: {sys.executable} -m pip install "
                "'pocketmq[spark]'; or set PYSPARK_PYTHON to a Python that has it",
                name=error.name,
            ) from error
        return RocketMQDataSource(self.options)
