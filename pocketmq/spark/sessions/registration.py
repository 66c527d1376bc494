"""Registers the source with a session, which gives it the session's parallelism."""

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

    Spark finds the installed source by itself, but tells it nothing about the session: the number
    of partitions then follows the cores of the driver's machine. For a registered source it follows
    `spark.default.parallelism`, or the session's cores if that is not set. Call this again after
    executors have joined. With Spark Connect, only an explicit `spark.default.parallelism` is
    visible. In PySpark 4.0, an installed source cannot be replaced (SPARK-51919): it stays, and a
    warning is logged.
    """
    # Spark sends a class without a module by value, and so with its attributes.
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
