"""Spark over stored messages: the data source `rocketmq`, and a session with it.

    spark = pocketmq.spark.session()
    spark.read.format("rocketmq").option("subscribe", "orders").load("./store")

Needs `pip install 'pocketmq[spark]'` and Java. If Spark cannot run, the error says what is missing
and how to install it.

`spark.read.format("rocketmq")` also works in sessions started elsewhere: PySpark finds the source
through the top-level module `pyspark_rocketmq`. The stub `__init__.pyi` lists the public names.
Each is loaded when it is first used, because executors have fewer packages than the driver. The
modules: `source` is the data source class, `readers` its part on the driver, `options` parses the
options, `schema` has the columns as Spark types, `filters` turns pushed filters into a selection,
`batch_reader` plans, `registration` gives the source the settings of a session, `needed_columns`
finds the columns that a query needs, `spark_session` and `java` start Spark. All reading is done by
`pocketmq.store.scan`. `live` pulls the same rows from running brokers; `connection_options` has the
options for connecting to them.

Executors only load `source`, `slice_partition` (the planned partitions) and `partition_reading`,
which reads them.

Streams: `stream_reader` plans triggers; it gets the ends of the queues through `stream_queues`,
which `stream_stores` and `live.stream_brokers` implement. `admission` limits a trigger,
`stream_lag` computes the lag of a query and what it left out, and `group_offsets` commits its
offsets for a consumer group.

Writing: `writer_options` parses the options, `message_columns` checks the columns, `rows` and
`json_body` turn rows into messages, `row_sender` sends them, and `writer` is the interface to
Spark. All sending is done by `pocketmq.client`.

`batch_sink` writes the batches of a stream into a table of `pocketmq.tables`.
"""

from __future__ import annotations

from importlib.util import find_spec

from pocketmq._extras import MissingExtra
from pocketmq._lazy import attach

if find_spec("pyspark") is None:
    raise MissingExtra(__name__, "pyspark", "spark")

__getattr__, __dir__ = attach(__name__)
