# The public names of pocketmq.spark: type checkers read this file, and pocketmq/_lazy.py reads it
# at run time.

from pocketmq.spark.options.needed_columns import pruned as pruned
from pocketmq.spark.sessions.java import SparkUnavailable as SparkUnavailable
from pocketmq.spark.sessions.registration import register as register
from pocketmq.spark.sessions.spark_session import session as session
from pocketmq.spark.source import RocketMQDataSource as RocketMQDataSource
from pocketmq.spark.streams.group_offsets import GroupOffsets as GroupOffsets
from pocketmq.spark.streams.stream_lag import lag as lag
from pocketmq.spark.streams.stream_lag import left_out as left_out
from pocketmq.spark.writing.batch_sink import table_sink as table_sink
