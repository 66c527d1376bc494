"""Spark over stored messages: the data source `rocketmq`, and a session that has it.

    spark = pocketmq.spark.session()
    spark.read.format("rocketmq").option("subscribe", "orders").load("./store")

Needs `pip install 'pocketmq[spark]'` and Java. If Spark cannot run, the error says what is missing
and what to type.

`spark.read.format("rocketmq")` also works in sessions that are started elsewhere: PySpark finds the
source through the top-level module `pyspark_rocketmq`. The modules: `options` reads what a user
asks for, `schema` has the columns as Spark types, `filters` turns pushed filters into a selection,
`batch_reader` plans and reads, `source` is what Spark is given, `registration` tells it what a
session knows, `needed_columns` finds out what a query
needs, `session` and `java` start Spark.
All reading is done by `pocketmq.store.scan`. `live` pulls the same rows from running brokers.
`partition_reading` reads a partition of either; `connection_options` says how brokers are reached.

Of streams: `stream_reader` says how far there is something to read; it asks for the ends of the
queues through `stream_queues`, which `stream_stores` and `live.stream_brokers` answer.
`admission` limits a trigger, `lag` tells how far a query is behind, and `group_offsets` commits how
far it is for a consumer group.

Of writing: `writer_options` reads what a user asks for, `message_columns` checks the columns,
`rows` and `json_body` make messages of rows, `row_sender` sends them, `writer` is what Spark is
given. All sending is done by `pocketmq.client`.

`table_sink` writes the batches of a stream into a table of `pocketmq.tables`.
"""

from __future__ import annotations

from importlib.util import find_spec

from pocketmq._extras import MissingExtra

try:
    from pocketmq.spark.source import RocketMQDataSource
except ModuleNotFoundError as error:
    # Not the first package of the extra that is missing: executors need less than it has.
    missing = (error.name or "").partition(".")[0]
    if missing and find_spec(missing) is None:
        raise MissingExtra(__name__, missing, "spark") from error
    raise
from pocketmq.spark.group_offsets import GroupOffsets
from pocketmq.spark.java import SparkUnavailable
from pocketmq.spark.lag import lag
from pocketmq.spark.needed_columns import pruned
from pocketmq.spark.registration import register
from pocketmq.spark.session import session
from pocketmq.spark.table_sink import table_sink

__all__ = [
    "GroupOffsets",
    "RocketMQDataSource",
    "SparkUnavailable",
    "lag",
    "pruned",
    "register",
    "session",
    "table_sink",
]
