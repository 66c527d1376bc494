"""The Spark data source `rocketmq` over the files of stores.

`spark.read.format("rocketmq").load(DIR)` finds it through the top-level module
`pyspark_rocketmq`; `spark.dataSource.register(RocketMQDataSource)` names it. The modules: `options`
reads what a user asks for, `schema` has the columns as Spark types, `filters` turns pushed filters
into a selection, `reader` plans and reads, `source` is what Spark is given. All reading is done by
`pocketmq.store.scan`.
"""

from __future__ import annotations

from pocketmq.store.datasource.source import RocketMQDataSource

__all__ = ["RocketMQDataSource"]
