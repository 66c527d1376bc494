"""Reads from running brokers within Spark."""

from __future__ import annotations

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
