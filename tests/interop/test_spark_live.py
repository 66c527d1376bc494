"""Reads from brokers of both makes: as Spark's workers do them, without Spark, and by Spark."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pocketmq.message.message import Message
from pocketmq.sync import Producer
from tests.interop.harness.cluster import Cluster
from tests.interop.harness.official import JavaPeer
from tests.store.made_store import comparable, rows_of

pytest.importorskip("pyspark")

from pocketmq.spark import GroupOffsets
from pocketmq.spark.source import RocketMQDataSource
from tests.spark.test_batch_reader import schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def send(cluster: Cluster, topic: str, count: int) -> None:
    with Producer("live", namesrv=cluster.address, compress_over=1000) as producer:
        for number in range(count):
            body = b"%d" % number + b"x" * (number * 11 % 2000)
            tag = ("even", "odd")[number % 2]
            producer.send(Message(topic, body, tags=tag, properties={"number": str(number)}))


def rows(**options: str) -> list[dict[str, Any]]:
    """All columns of all rows, in the order of the log."""
    source = RocketMQDataSource({"includeMetadata": "true", **options})
    reader = source.reader(schema_of(source))
    found = [row for partition in reader.partitions() for row in rows_of(reader.read(partition))]
    return sorted(map(comparable, found), key=lambda row: row["physicalOffset"])


def test_rows_are_those_of_the_files(cluster: Cluster, topic: str) -> None:
    send(cluster, topic, 200)
    files = rows(path=str(cluster.broker.store), subscribe=topic)
    live = {"namesrv": cluster.address, "subscribe": topic}
    assert len(files) == 200
    assert rows(**live, maxRecordsPerPartition="30") == files
    assert rows(**live, tags="odd") == [row for row in files if row["tags"] == "odd"]
    few = [row for row in files if int(row["properties"]["number"]) < 20]
    assert rows(**live, sql="number < 20") == few
    middle = str(files[100]["storeTimestamp"])
    later = [row for row in files if row["storeTimestamp"] >= int(middle)]
    assert rows(**live, startingTimestamp=middle) == later


def test_a_stream_and_its_group(cluster: Cluster, topic: str, admin: JavaPeer) -> None:
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need pyspark 4.2")
    send(cluster, topic, 40)
    source = RocketMQDataSource(
        {"namesrv": cluster.address, "subscribe": topic, "startingOffsets": "earliest"}
    )
    reader: Any = source.streamReader(schema_of(source))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    found = [
        row
        for partition in reader.partitions(start, end)
        for row in rows_of(reader.read(partition))
    ]
    assert len(found) == 40
    group = f"Stream_{topic}"
    progress: Any = SimpleNamespace(sources=[SimpleNamespace(endOffset=json.dumps(end))])
    GroupOffsets(group, namesrv=cluster.address).commit(progress)
    send(cluster, topic, 7)
    told = admin.mqadmin("consumerProgress", "-g", group, "-n", cluster.address)
    assert "Consume Diff Total: 7" in told


@pytest.mark.long
@pytest.mark.spark
def test_spark_reads_an_official_broker(
    spark: SparkSession, official_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    """A batch and a stream."""
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need pyspark 4.2")
    send(official_cluster, topic, 100)
    live = {"namesrv": official_cluster.address, "subscribe": topic}
    batch = spark.read.format("rocketmq").options(**live, maxRecordsPerPartition="30").load()
    columns = ("queueId", "queueOffset", "body", "tags", "properties")
    found = sorted(batch.select(*columns).collect())
    assert sorted(int(row["properties"]["number"]) for row in found) == list(range(100))
    stream = spark.readStream.format("rocketmq").options(
        **live, startingOffsets="earliest", maxOffsetsPerTrigger="60"
    )
    query = (
        stream.load()
        .select(*columns)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    assert query.awaitTermination(120)
    assert len(query.recentProgress) == 2
    assert sorted(spark.read.parquet(str(tmp_path / "rows")).collect()) == found
