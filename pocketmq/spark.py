"""The Spark data source over stored messages: `pip install 'pocketmq[spark]'`.

spark.dataSource.register(RocketMQDataSource)
spark.read.format("rocketmq").option("subscribe", "orders").load("./store")
"""

from pocketmq._extras import require

try:
    from pocketmq.store.datasource import RocketMQDataSource as RocketMQDataSource
except ModuleNotFoundError:
    require("spark", __name__)
    raise
