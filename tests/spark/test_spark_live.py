"""Reads from running brokers within Spark."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from queue import Queue
from ssl import create_default_context
from typing import TYPE_CHECKING, Any

import pytest

from pocketmq.client.admin import Admin
from pocketmq.client.credentials import Credentials
from pocketmq.message.message import Message
from pocketmq.sync import Producer
from pocketmq.testing import RocketMQ
from tests.certificates import Authority
from tests.cli.running import Running
from tests.cli.test_credentials import AUTHENTICATION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

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


def copy_now(frame: DataFrame, target: Path) -> StreamingQuery:
    """Copy what there is to Parquet files, `rows` in a directory."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(target / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(target / "rows"))
    )
    assert query.awaitTermination(120)
    return query


def test_a_group_has_the_offsets_of_a_query(
    spark: SparkSession, rocketmq_module: RocketMQ, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need pyspark 4.2")
    from pyspark.sql.streaming.listener import StreamingQueryListener

    from pocketmq.spark import GroupOffsets

    server, topic = rocketmq_module, tmp_path.name  # another one if the test runs twice
    server.sync.create_topic(topic, queues=2)
    with Producer("tests", namesrv=server.namesrv) as producer:
        for queue, count in zip(producer.queues(topic), (100, 30), strict=True):
            producer.send_batch([Message(topic, b"%d" % n) for n in range(count)], queue=queue)
    ended: Queue[str] = Queue()

    class Ended(StreamingQueryListener):
        """Hears the end of a query after the listener that was added before it. Also that of the
        test before, which may come late."""

        def onQueryStarted(self, event: Any) -> None: ...

        def onQueryProgress(self, event: Any) -> None: ...

        def onQueryIdle(self, event: Any) -> None: ...

        def onQueryTerminated(self, event: Any) -> None:
            ended.put(str(event.runId))

    listeners = [GroupOffsets("Listener", namesrv=server.namesrv), Ended()]
    for listener in listeners:
        spark.streams.addListener(listener)
    try:
        frame = spark.readStream.format("rocketmq").options(
            namesrv=server.namesrv,
            subscribe=topic,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=50,
        )
        query = copy_now(frame.load(), tmp_path)
        while ended.get(timeout=120) != str(query.runId):
            pass
    finally:
        for listener in listeners:
            spark.streams.removeListener(listener)
    assert len(query.recentProgress) >= 3
    # What an application does that ends before its listeners are called.
    last = query.lastProgress
    assert last is not None
    GroupOffsets("Direct", namesrv=server.namesrv).commit(last)

    async def offsets(group: str) -> tuple[dict[int, int | None], dict[int, int]]:
        """Of the group, and the ends of the queues."""
        async with Admin(namesrv=server.namesrv) as admin:
            bounds = (await admin.topic_stats(topic)).offset_table
            committed = {at.queue_id: await admin.group_offset(group, at) for at in bounds}
            return committed, {at.queue_id: each.max_offset for at, each in bounds.items()}

    for group in ("Listener", "Direct"):
        committed, ends = asyncio.run(offsets(group))
        assert committed == ends
        assert sum(ends.values()) == 130


def test_a_stream_with_tls_and_credentials(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need pyspark 4.2")
    authority = Authority(tmp_path / "authority")
    own = authority.sign("cluster")
    settings = [
        *AUTHENTICATION,
        "autoCreateTopicEnable=true",
        "tls.server.mode=enforcing",
        f"tls.server.certPath={own.chain}",
        f"tls.server.keyPath={own.key}",
    ]
    ports = ("--listen-port", "0", "--namesrv-port", "0", "--no-grpc")
    given = [f"--set={setting}" for setting in settings]
    ca = str(authority.certificate.chain)
    with Running("serve", "--ephemeral", *ports, *given) as server:
        namesrv = server.wait_for(r"name server listening on ([^\s,]+:\d+)")[1]
        credentials = Credentials("root", "root: password")
        with Producer(
            "tests", namesrv=namesrv, tls=create_default_context(cafile=ca), credentials=credentials
        ) as producer:
            producer.send_batch([Message("Secured", b"%d" % number) for number in range(200)])
        frame = spark.readStream.format("rocketmq").options(
            namesrv=namesrv,
            subscribe="Secured",
            startingOffsets="earliest",
            tlsCaFile=ca,
            accessKey="root",
            secretKey="root: password",
        )
        query = copy_now(frame.load(), tmp_path)
    assert "root: password" not in str(query.lastProgress)
    rows = spark.read.parquet(str(tmp_path / "rows")).select("body").collect()
    assert sorted(int(row["body"]) for row in rows) == list(range(200))
