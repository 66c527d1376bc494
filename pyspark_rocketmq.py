"""Makes `spark.read.format("rocketmq")` work without registering anything.

PySpark looks for `DefaultSource` in top-level modules whose names begin with `pyspark_`.
"""

from pocketmq.spark.source import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
