"""Reads from running brokers within Spark."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pocketmq.message.message import Message
from pocketmq.sync import Producer
from pocketmq.testing import RocketMQ

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def send(server: RocketMQ, topic: str, count: int) -> None:
    with Producer("tests", namesrv=server.namesrv) as producer:
        producer.send_batch([Message(topic, b"%d" % n, tags=f"t{n % 3}") for n in range(count)])


def test_a_query_on_a_broker_gives_what_its_files_give(
    spark: SparkSession, rocketmq_module: RocketMQ, capsys: pytest.CaptureFixture[str]
) -> None:
    server = rocketmq_module
    send(server, "Read", 3000)
    reader = spark.read.format("rocketmq").option("subscribe", "Read")
    files = reader.load(str(server.store))
    secrets = {"accessKey": "ak", "secretKey": "hunter2", "securityToken": "hunter3"}
    live = spark.read.format("rocketmq").options(
        subscribe="Read", namesrv=server.namesrv, maxRecordsPerPartition="500", **secrets
    )
    frame = live.load()
    assert frame.rdd.getNumPartitions() >= 6
    assert frame.count() == 3000
    order = "physicalOffset"
    assert frame.orderBy(order).collect() == files.orderBy(order).collect()
    frame.explain(True)
    assert "hunter" not in capsys.readouterr().out
    assert {row["tags"]: row["count"] for row in frame.groupBy("tags").count().collect()} == {
        "t0": 1000,
        "t1": 1000,
        "t2": 1000,
    }


def test_a_stream_of_files_goes_on_with_the_broker(
    spark: SparkSession, rocketmq_module: RocketMQ, tmp_path: Path
) -> None:
    """One checkpoint; history comes from a copy of the store."""
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need pyspark 4.2")
    server, copy, sink = rocketmq_module, tmp_path / "copy", tmp_path / "sink"
    send(server, "Streamed", 1000)
    shutil.copytree(server.store, copy)
    send(server, "Streamed", 1000)

    def run(**options: str) -> int:
        reader = spark.readStream.format("rocketmq").options(
            subscribe="Streamed", startingOffsets="earliest", maxOffsetsPerTrigger=600, **options
        )
        query = (
            reader.load(str(copy))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(sink))
        )
        assert query.awaitTermination(60)
        frame = spark.read.parquet(str(sink))
        assert frame.select("queueId", "queueOffset").distinct().count() == frame.count()
        return frame.count()

    assert run(readUnflushed="true") == 1000
    assert run(namesrv=server.namesrv) == 2000
    send(server, "Streamed", 500)
    assert run(namesrv=server.namesrv) == 2500
