"""Spark reads orders from brokers and sends the paid ones to another topic, as a user who may do
that and nothing else (docs/spark.md, Grants): python spark_secure.py ACCESS_KEY SECRET_KEY"""

import sys

from pocketmq.spark import session

access_key, secret_key = sys.argv[1:]
signed = {"namesrv": "127.0.0.1:9876", "accessKey": access_key, "secretKey": secret_key}

spark = session("paid orders")
orders = spark.read.format("rocketmq").options(subscribe="orders", **signed).load()
paid = orders.where("tags = 'paid'").select("body", "tags", "keys")
paid.write.format("rocketmq").options(topic="paid", **signed).mode("append").save()
spark.stop()
