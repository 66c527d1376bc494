"""Registers the source with a session, so that it knows what only the session knows."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyspark
from pyspark.errors import AnalysisException

from pocketmq.spark.source import RocketMQDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


def register(spark: SparkSession) -> None:
    """Register the source with a session that was started elsewhere.

    Spark finds the installed source by itself, but tells it nothing of the session: partitions then
    follow the cores of the driver's machine. When registered, they follow
    `spark.default.parallelism`, or the session's cores where that is not set. Call it again when
    executors have joined since. With Spark Connect only a `spark.default.parallelism` that is set
    can be seen. PySpark 4.0 lets nothing replace an installed source (SPARK-51919); there the
    installed one stays, and a warning is logged.
    """
    # Spark sends a class that no module has by value, so with what it knows.
    known = {"parallelism": _parallelism(spark), "__module__": "__main__"}
    try:
        spark.dataSource.register(type("Registered", (RocketMQDataSource,), known))
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        logger.warning(
            "rocketmq: PySpark %s keeps the installed source, so its partitions follow the "
            "driver's cores",
            pyspark.__version__,
        )


def _parallelism(spark: SparkSession) -> int | None:
    if hasattr(spark, "_jsparkSession"):
        return spark.sparkContext.defaultParallelism
    text = spark.conf.get("spark.default.parallelism", "")
    return int(text) if text else None
