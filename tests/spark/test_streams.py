"""Streams within Spark."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.stream_store import GrowingStore, OpenStore
from tests.store.made_store import damage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need pyspark 4.2")

from pyspark.sql import functions

from pocketmq.spark import lag, left_out
from pocketmq.store.scan.stream_offsets import StreamQueue

pytestmark = pytest.mark.spark

SCHEMA = "topic string, queueId int, queueOffset bigint"


class Copy:
    """A query that copies a store to Parquet files, and goes on where it ended."""

    def __init__(self, spark: SparkSession, store: Path, target: Path, **options: str) -> None:
        self._spark = spark
        self._options = {"path": str(store), "startingOffsets": "earliest", **options}
        self._rows = target / "rows"
        self._checkpoint = target / "checkpoint"

    def start(self, **trigger: Any) -> StreamingQuery:
        source = self._spark.readStream.format("rocketmq").schema(SCHEMA).options(**self._options)
        sink = source.load().writeStream.format("parquet")
        sink = sink.option("checkpointLocation", str(self._checkpoint))
        if trigger:
            sink = sink.trigger(**trigger)
        return sink.start(str(self._rows))

    def counts(self) -> dict[tuple[str, int], int]:
        """How many messages of each queue are there: 0, 1, ... each once."""
        rows = self._spark.read.schema(SCHEMA).parquet(str(self._rows)).collect()
        counts: dict[tuple[str, int], int] = {}
        for row in sorted(rows):
            queue = row["topic"], row["queueId"]
            assert row["queueOffset"] == counts.get(queue, 0)
            counts[queue] = row["queueOffset"] + 1
        return counts


def test_a_stream_copies_each_message_once_also_over_restarts(
    spark: SparkSession, tmp_path: Path
) -> None:
    with OpenStore(tmp_path / "store") as store:
        store.add(100)
        copy = Copy(spark, store.root, tmp_path, subscribePattern="T.*", minPartitions="2")
        query = copy.start()
        try:
            query.processAllAvailable()
            assert copy.counts() == {("T", 0): 100}
            store.add(7, queue_id=1)
            store.add(5, "T2")
            store.add(9, "other")
            query.processAllAvailable()
            assert copy.counts() == {("T", 0): 100, ("T", 1): 7, ("T2", 0): 5}
        finally:
            query.stop()
        store.add(3)
        query = copy.start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
    assert copy.counts() == {("T", 0): 103, ("T", 1): 7, ("T2", 0): 5}


def test_available_now_ends_while_a_broker_writes(spark: SparkSession, tmp_path: Path) -> None:
    with OpenStore(tmp_path / "store") as store:
        store.add(20)
        copy = Copy(spark, store.root, tmp_path, maxOffsetsPerTrigger="8")
        query = copy.start(availableNow=True)
        while query.isActive:
            # After the first trigger the end is known, and there is always more to read.
            if query.recentProgress:
                store.add(10)
        query.awaitTermination(120)
    assert [progress.numInputRows for progress in query.recentProgress] == [8, 8, 4]
    assert copy.counts() == {("T", 0): 20}


def test_progress_shows_how_far_the_stream_is_behind(spark: SparkSession, tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "store")
    store.add(20)
    copy = Copy(spark, store.root, tmp_path, maxOffsetsPerTrigger="8")
    query = copy.start(availableNow=True)
    query.awaitTermination(120)
    assert [progress.numInputRows for progress in query.recentProgress] == [8, 8, 4]
    queue = StreamQueue("T", "broker-a", 0)
    assert [lag(progress) for progress in query.recentProgress] == [
        {queue: 12},
        {queue: 4},
        {queue: 0},
    ]


def test_progress_shows_how_many_messages_are_lost(spark: SparkSession, tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "store")
    places = [store.put("T", 0, b"%d" % number) for number in range(20)]
    store.write()
    for number in (9, 12):
        damage(store.root / "commitlog" / f"{0:020d}", places[number] + 4)  # its magic code
    options = {"maxOffsetsPerTrigger": "8", "failOnDataLoss": "false"}
    source = spark.readStream.format("rocketmq").option("startingOffsets", "earliest")
    sink = source.options(**options).load(str(store.root)).writeStream.format("noop")
    sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = sink.trigger(availableNow=True).start()
    query.awaitTermination(120)
    assert [progress.numInputRows for progress in query.recentProgress] == [8, 6, 4]
    assert [left_out(progress) for progress in query.recentProgress] == [0, 2, 0]


def test_an_error_ends_the_query(spark: SparkSession, tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "store")
    store.add(20)
    query = Copy(spark, store.root, tmp_path, endingOffsets="latest").start()
    with pytest.raises(Exception, match="option endingOffsets = 'latest': a stream does not"):
        query.awaitTermination(120)


def test_windows_over_the_time_of_birth(spark: SparkSession, tmp_path: Path) -> None:
    """Also those of the hour that a clock in Berlin shows twice."""
    end_of_summer = 1_792_890_000_000  # 2026-10-25T01:00Z
    half_hour = 1_800_000
    born = [end_of_summer + half_hour * number for number in (-2, -1, 0, 1, -1, 2, 20)]
    store = GrowingStore(tmp_path / "store")
    store.add(0)
    source = spark.readStream.format("rocketmq").option("startingOffsets", "earliest")
    rows = source.load(str(store.root)).withWatermark("bornTimestamp", "2 hours")
    counts = rows.groupBy(functions.window("bornTimestamp", "1 hour")).count()
    sink = counts.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        for part in born[:4], born[4:]:  # the state is kept between queries
            for at in part:
                store.put("T", 0, born_timestamp=at)
            store.write()
            query = sink.trigger(availableNow=True).format("parquet").start(str(tmp_path / "rows"))
            query.awaitTermination(120)
        begin = functions.unix_millis("window.start")
        done = spark.read.parquet(str(tmp_path / "rows")).select(begin, "count").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert sorted(map(tuple, done)) == [
        (end_of_summer - 2 * half_hour, 3),
        (end_of_summer, 2),
        (end_of_summer + 2 * half_hour, 1),
    ]


def test_a_batch_that_is_repeated_upserts_the_same_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = GrowingStore(tmp_path / "store")
    store.add(0)
    table = sqlite3.connect(tmp_path / "orders.db", check_same_thread=False)
    table.execute("CREATE TABLE orders (id TEXT PRIMARY KEY, state TEXT, place INTEGER)")
    batches: list[int] = []

    def upsert(rows: DataFrame, batch: int) -> None:
        batches.append(batch)
        found = rows.selectExpr("keys[0]", "CAST(body AS STRING)", "queueOffset").collect()
        with table:
            table.executemany(
                "INSERT INTO orders VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE "
                "SET state = excluded.state, place = excluded.place WHERE place < excluded.place",
                found,
            )

    source = spark.readStream.format("rocketmq").option("startingOffsets", "earliest")
    sink = source.load(str(store.root)).writeStream.foreachBatch(upsert)
    sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint"))
    for state in (b"paid", b"sent"):
        for order in range(10):
            store.put("T", 0, state, {"KEYS": f"o-{order}"})
        store.write()
        sink.trigger(availableNow=True).start().awaitTermination(120)
        # As if the driver had been killed before it noted the end of the batch.
        for name in (str(batches[-1]), f".{batches[-1]}.crc"):
            (tmp_path / "checkpoint" / "commits" / name).unlink()
        sink.trigger(availableNow=True).start().awaitTermination(120)
        assert table.execute("SELECT DISTINCT state, count(*) FROM orders").fetchall() == [
            (state.decode(), 10)
        ]
    table.close()
    assert len(batches) == 2 * len(set(batches)) == 4
