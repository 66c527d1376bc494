"""Tables that streams keep up to date."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pocketmq.tables.body_decoder import BodyDecoder
from tests.spark.stream_store import GrowingStore
from tests.tables.rows_in import dead_letters_in, rows_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need pyspark 4.2")

from pocketmq.spark import table_sink

pytestmark = pytest.mark.spark

Sink = Callable[["DataFrame", int], None]


class Copy:
    """A store with one queue, the query that copies it to a table, and the table."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.store = GrowingStore(directory / "store")
        self.table = directory / "table"
        self._spark = spark
        self._checkpoint = directory / "checkpoint"

    def send(self, *bodies: bytes) -> None:
        for body in bodies:
            self.store.put(body=body)
        self.store.write()

    def run(self, sink: Sink, *columns: str, per_batch: int = 1000) -> None:
        """Copy what is there, with some columns, and go on where the last run ended."""
        query = (
            self._spark.readStream.format("rocketmq")
            .options(startingOffsets="earliest", maxOffsetsPerTrigger=str(per_batch))
            .load(str(self.store.root))
            .select("queueOffset", "body", *columns)
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    def rows(self) -> list[dict[str, Any]]:
        return by_offset(rows_in(self.table, "parquet"))


def by_offset(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: int(row["queueOffset"]))


def numbered(*numbers: int) -> list[dict[str, Any]]:
    return [{"queueOffset": number, "body": b"%d" % number} for number in numbers]


@pytest.fixture
def copy(spark: SparkSession, tmp_path: Path) -> Copy:
    return Copy(spark, tmp_path)


def test_a_batch_that_spark_repeats_is_not_written_again(copy: Copy) -> None:
    sink = table_sink(copy.table)
    written: list[int] = []

    def dies_after_the_second(frame: DataFrame, batch_id: int) -> None:
        sink(frame, batch_id)
        written.append(batch_id)
        if batch_id == 1:
            raise RuntimeError("the driver dies")

    def notes(frame: DataFrame, batch_id: int) -> None:
        written.append(batch_id)
        sink(frame, batch_id)

    copy.send(*(b"%d" % number for number in range(5)))
    with pytest.raises(Exception, match="the driver dies"):
        copy.run(dies_after_the_second, per_batch=2)
    # The table has the batch, Spark does not know.
    assert written == [0, 1]
    assert copy.rows() == numbered(0, 1, 2, 3)
    copy.run(notes, per_batch=2)
    assert written == [0, 1, 1, 2]
    assert copy.rows() == numbered(0, 1, 2, 3, 4)


def test_bodies_that_do_not_decode(copy: Copy) -> None:
    def sink(on_error: Any) -> Sink:
        decoder = BodyDecoder("json", "id bigint NOT NULL")
        return table_sink(copy.table, decoder=decoder, on_error=on_error)

    def row(number: int) -> dict[str, Any]:
        return {"queueOffset": number, "body": {"id": number}}

    copy.send(b'{"id":0}', b"{", b'{"id":2}')
    copy.run(sink("dead-letter"))
    assert copy.rows() == [row(0), row(2)]
    (dead,) = dead_letters_in(copy.table)
    assert dead.pop("reason")
    assert dead == {"queueOffset": 1, "body": b"{"}

    copy.send(b'{"id":3}', b"[]")
    with pytest.raises(Exception, match="UndecodableBody: the body of the message 4 cannot"):
        copy.run(sink("fail"))
    assert copy.rows() == [row(0), row(2)]

    copy.run(sink("skip"))
    assert copy.rows() == [row(0), row(2), row(3)]
    assert len(dead_letters_in(copy.table)) == 1


def test_columns_are_added_while_the_query_is_stopped(copy: Copy, spark: SparkSession) -> None:
    def sink(schema: str) -> Sink:
        return table_sink(copy.table, decoder=BodyDecoder("json", schema))

    copy.send(b'{"id":0,"name":"a"}')
    copy.run(sink("id bigint"))
    copy.send(b'{"id":1,"name":"b"}')
    copy.run(sink("id bigint, name string"), "queueId")
    table = spark.read.option("mergeSchema", "true").parquet(str(copy.table))
    found = table.select("queueOffset", "body.id", "body.name", "queueId").orderBy("queueOffset")
    assert [tuple(row) for row in found.collect()] == [(0, 0, None, None), (1, 1, "b", 0)]

    copy.send(b'{"id":2,"name":"c"}')
    with pytest.raises(Exception, match="has a column queueId, which the new rows lack"):
        copy.run(sink("id bigint, name string"))
    assert len(copy.rows()) == 2
