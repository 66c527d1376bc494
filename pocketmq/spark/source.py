"""The data source `rocketmq`, the class that Spark is given.

Spark sends it to the executors with every read, although they never call it. So each method imports
its dependencies on the driver, and importing this module needs only PySpark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from pocketmq.spark.sessions.needed_packages import needed_for

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        InputPartition,
    )
    from pyspark.sql.types import StructType


class RocketMQDataSource(DataSource):
    """The messages in the files of RocketMQ stores (of this project's broker or the official one)
    or of running brokers, and a way to send messages to running brokers.

    Stores may be open, closed, or left by a broker that was killed; nothing is written to them.
    Running brokers return the same rows over the network.

    Example::

        spark.read.format("rocketmq").option("subscribe", "orders").load("/var/rocketmq/store")
        spark.read.format("rocketmq").option("namesrv", "127.0.0.1:9876").load()

    Options (names as in Spark's Kafka source):
        path: directory of a store (storePathRootDir), or the URL of archives that `pocketmq sync`
            has made, such as `s3://bucket/archives`, or the directory of RocketMQ's tiered storage;
            several separated by commas, or a glob; a store that is named twice is read once. If a
            broker's storePathCommitLog is elsewhere, link it in that directory as `commitlog`.
        subscribe, subscribePattern, assign: topics as `a,b`, as a regular expression, or queues
            as `{"a":[0,1]}` or, by the name of the broker, `{"a":{"broker-a":[0,1]}}`. Default:
            every topic but the internal ones.
        startingOffsets, endingOffsets: `earliest`, `latest`, or `{"a":{"0":23,"1":-2}}` with
            -2 for the earliest and -1 for the latest; the end is not included. Of several stores
            each one is read between these offsets of its own queue, unless the brokers are named:
            `{"a":{"broker-a":{"0":23},"broker-b":{"0":42}}}`.
        startingTimestamp, endingTimestamp: of storing, in ms or ISO 8601 (without a zone: local
            time); the end is not included. They override offsets.
        minPartitions, maxRecordsPerPartition: how finely to split.
        failOnDataLoss (true): fail if records are corrupt or missing; false skips them and logs how
            many to stderr of the executor's Python worker.
        includeSystemTopics (false): read internal, retry and dead-letter topics as well.
        includeMetadata (false): more columns: bornHost, storeHost, sysFlag, storeSize, bodyCRC,
            preparedTransactionOffset, offsetMsgId.
        decompress (true): give bodies decompressed.
        pushFilters (auto): see below.

    Options of reads from running brokers. With a path as well, what the files have is read
    from them, and the rest from the brokers:
        namesrv: the name servers, as `host:port;host:port`, or the URL of a list.
        tags, sql: which messages the brokers send, as `a || b`, or as a condition in SQL92.
        consumerGroup (TOOLS_CONSUMER): the group that pulls; nothing is committed.
        accessKey, secretKey, securityToken: sign every request.
        tls, tlsCaFile, tlsCertFile, tlsKeyFile: encrypt connections.
        timeout (60): how long to retry while a broker is unreachable, in seconds.

    Options of streams (`spark.readStream`), which have no endingOffsets, endingTimestamp and
    pushFilters, and begin at the `latest` offsets by default:
        maxOffsetsPerTrigger: divided among the queues in proportion to what each still has.
        minOffsetsPerTrigger, maxTriggerDelay (15m): delay a trigger until there are this many
            offsets, or that time has passed.
        readUnflushed (false): also read messages that a power failure of the broker's machine could
            take.

    A schema given with `.schema(...)` chooses columns; nothing else is read.

    Spark plans a DataFrame once: all queries on it see the stores as of the first one. Call `load`
    again to see newer records.

    Filters: where `spark.sql.python.filterPushdown.enabled` is on, conditions on brokerName,
    topic, queueId, queueOffset, physicalOffset, storeTimestamp, bornTimestamp and tags can be
    applied while reading. Spark 4.1 to 4.3 keep what was planned for one query with the DataFrame
    and use it for later queries without a filter, and for other uses of the DataFrame in the same
    query, which then silently miss rows. So with these versions `auto` does not push;
    `pushFilters=oneQuery` does, and gives right results if each query has its own `load`.

    `DataFrame.write` and `writeStream` send messages instead: see `pocketmq.spark.writing.writer`.
    """

    parallelism: ClassVar[int | None] = None
    """How many tasks the session runs at once, if known; see `registration`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "rocketmq"

    def schema(self) -> str | StructType:
        """All columns. Checks the options and the paths, so that `load` reports mistakes."""
        with needed_for("the source rocketmq"):
            from pocketmq.spark.readers import columns_of
        return columns_of(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns in `schema`."""
        with needed_for("the source rocketmq"):
            from pocketmq.spark.readers import batch_reader
        return batch_reader(self.options, schema, self.parallelism)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader for `spark.readStream`, or one that fails the query with the reason.

        Spark requests it after `start` has returned. PySpark replaces an error at this point by its
        own (UnboundLocalError).
        """
        try:
            with needed_for("the source rocketmq"):
                from pocketmq.spark.readers import stream_reader
            return stream_reader(self.options, schema, self.parallelism)
        except Exception as error:
            return _Refusal(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer with which `DataFrame.write` sends messages."""
        from pocketmq.spark.writing.writer import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer with which `DataFrame.writeStream` sends messages."""
        from pocketmq.spark.writing.writer import stream_writer

        return stream_writer(self.options, schema, overwrite)


class _Refusal(DataSourceStreamReader):
    """Fails a query with a reason, in whichever method Spark calls first."""

    def __init__(self, reason: Exception) -> None:
        self._reason = reason

    def initialOffset(self) -> NoReturn:
        """Raise the reason: a new query calls this first."""
        raise self._reason

    def latestOffset(self, *_: object) -> NoReturn:
        """Raise the reason: a resumed query calls this first."""
        raise self._reason

    def partitions(self, start: object, end: object) -> NoReturn:
        """Raise the reason: a query that repeats a batch calls this first."""
        raise self._reason

    def read(self, partition: InputPartition) -> NoReturn:
        """Raise the reason."""
        raise self._reason
