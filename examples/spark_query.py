"""Spark SQL over the files of a broker: python examples/spark_query.py STORE [TOPIC]"""

import sys

from pocketmq.spark import session

store = sys.argv[1]
topic = sys.argv[2] if len(sys.argv) > 2 else "orders"

spark = session("orders")
messages = spark.read.format("rocketmq").option("subscribe", topic).load(store)
messages.createOrReplaceTempView("messages")
spark.sql(
    """
    SELECT tags, count(*) AS messages, min(storeTimestamp) AS first, max(storeTimestamp) AS last
    FROM messages GROUP BY tags ORDER BY tags
    """
).show(truncate=False)
spark.stop()
