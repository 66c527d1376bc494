"""Writing within Spark, to a broker of ours."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pocketmq.testing import RocketMQ

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def write(frame: DataFrame, server: RocketMQ, **options: str) -> None:
    writer = frame.write.format("rocketmq").option("namesrv", server.namesrv).options(**options)
    writer.mode("append").save()


def load(spark: SparkSession, server: RocketMQ, topic: str) -> DataFrame:
    return spark.read.format("rocketmq").option("subscribe", topic).load(str(server.store))


def test_what_was_read_is_written_back(spark: SparkSession, rocketmq_module: RocketMQ) -> None:
    server = rocketmq_module
    columns = ("topic", "body", "tags", "keys", "properties", "flag")
    frame = spark.sql(
        "SELECT 'First' topic, CAST(concat('body ', id) AS BINARY) body, if(id % 2 = 0, 'even', "
        "null) tags, array(concat('k', id), 'all') keys, map('id', string(id)) properties, "
        "int(id) flag FROM range(0, 300, 1, 3)"
    )
    write(frame, server)
    write(load(spark, server, "First"), server, topic="Second", rowIds="false")
    own = "map_filter(properties, (name, value) -> name = 'id') properties"
    expected = {row["flag"]: row.asDict() for row in frame.collect()}
    copies = load(spark, server, "First,Second").selectExpr(
        *columns[:4], own, "flag", "properties['SPARK_ROW_ID'] id"
    )
    ids: list[str] = []
    rows: dict[str, dict[int, dict[str, Any]]] = {"First": {}, "Second": {}}
    for copy in copies.collect():
        row = copy.asDict()
        row_id = row.pop("id")
        ids += [row_id]  # with rowIds=false it is copied like any other property
        rows[row["topic"]][row["flag"]] = row
    for topic in rows:
        assert rows[topic] == {flag: {**row, "topic": topic} for flag, row in expected.items()}
    assert len(ids) == 600
    assert len(set(ids)) == 300
    assert len({row_id.rsplit("/", 2)[0] for row_id in ids}) == 1  # one write
    numbers: dict[str, set[int]] = {}
    for row_id in ids:
        numbers.setdefault(row_id.split("/")[1], set()).add(int(row_id.split("/")[2]))
    assert set(numbers) == {"0", "1", "2"}
    assert all(found == set(range(len(found))) for found in numbers.values())


def test_an_empty_frame_and_one_of_json(spark: SparkSession, rocketmq_module: RocketMQ) -> None:
    server = rocketmq_module
    frame = spark.sql("SELECT id, timestamp '2026-11-23 00:00:00Z' at FROM range(3)")
    write(frame.where("id > 5"), server, topic="Json", bodyFormat="json")
    write(frame, server, topic="Json", bodyFormat="json", writeId="job-7")
    messages = server.sync.drain("Json")
    assert sorted(message.body for message in messages) == [
        b'{"id":%d,"at":"2026-11-23T00:00:00Z"}' % number for number in range(3)
    ]
    assert {message.properties["SPARK_ROW_ID"].split("/")[0] for message in messages} == {"job-7"}


def test_mistakes_are_told_before_anything_runs(
    spark: SparkSession, rocketmq_module: RocketMQ
) -> None:
    from pyspark.errors import AnalysisException

    server = rocketmq_module
    frame = spark.sql("SELECT 'b' body, 1 id")
    with pytest.raises(AnalysisException, match="column id is not part of a message"):
        write(frame, server, topic="T")
    with pytest.raises(AnalysisException, match=r"option secret = '\(hidden\)'.*secretKey") as told:
        write(frame, server, topic="T", secret="hunter2")
    assert "hunter2" not in str(told.value)
    overwrite = frame.drop("id").write.format("rocketmq").mode("overwrite")
    with pytest.raises(AnalysisException, match="cannot be replaced"):
        overwrite.options(namesrv=server.namesrv, topic="T").save()


def test_a_wrong_row_is_named(spark: SparkSession, rocketmq_module: RocketMQ) -> None:
    frame = spark.sql("SELECT if(id = 700, '', 'body') body FROM range(0, 1000, 1, 2)")
    with pytest.raises(Exception, match=r"row 200 \(topic Wrong\): its body is empty") as told:
        write(frame, rocketmq_module, topic="Wrong")
    assert "in partition 1 of the write" in str(told.value)


def test_a_stream_that_repeats_a_batch_repeats_its_ids(
    spark: SparkSession, rocketmq_module: RocketMQ, tmp_path: Path
) -> None:
    server = rocketmq_module
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()

    def run() -> None:
        stream = spark.readStream.text(str(source)).withColumnRenamed("value", "body")
        writer = stream.writeStream.format("rocketmq").trigger(availableNow=True)
        writer = writer.options(namesrv=server.namesrv, topic="Stream")
        query: Any = writer.option("checkpointLocation", str(checkpoint)).start()
        assert query.awaitTermination(120)

    for batch in range(2):
        (source / f"{batch}.txt").write_text("".join(f"{batch} {row}\n" for row in range(50)))
        run()
    assert len(load(spark, server, "Stream").collect()) == 100
    # As if the driver had died before it noted that the last batch is written.
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    run()
    read = load(spark, server, "Stream").selectExpr(
        "CAST(body AS STRING) body", "properties['SPARK_ROW_ID'] id"
    )
    bodies = Counter(row["body"] for row in read.collect())
    assert bodies == {f"{batch} {row}": batch + 1 for batch in range(2) for row in range(50)}
    once = read.dropDuplicates(["id"]).collect()
    assert sorted(row["body"] for row in once) == sorted(bodies)


def test_a_stream_with_a_wrong_option_fails(
    spark: SparkSession, rocketmq_module: RocketMQ, tmp_path: Path
) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.txt").write_text("row\n")
    stream = spark.readStream.text(str(tmp_path / "source"))
    writer = stream.writeStream.format("rocketmq").trigger(availableNow=True)
    query = writer.options(namesrv=rocketmq_module.namesrv, topic="T").start(
        checkpointLocation=str(tmp_path / "checkpoint")
    )
    with pytest.raises(Exception, match="column value is not part of a message"):
        query.awaitTermination(120)
