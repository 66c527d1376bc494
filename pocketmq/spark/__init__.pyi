# The public names of pocketmq.spark: type checkers read this file, and pocketmq/_lazy.py reads it
# at run time.

from pocketmq.spark.batch_sink import table_sink as table_sink
from pocketmq.spark.group_offsets import GroupOffsets as GroupOffsets
from pocketmq.spark.java import SparkUnavailable as SparkUnavailable
from pocketmq.spark.needed_columns import pruned as pruned
from pocketmq.spark.registration import register as register
from pocketmq.spark.source import RocketMQDataSource as RocketMQDataSource
from pocketmq.spark.spark_session import session as session
from pocketmq.spark.stream_lag import lag as lag
