"""The data source within Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.store.made_store import MadeStore, comparable, damage, golden_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@contextmanager
def pushdown(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PUSHDOWN, "true")
    try:
        yield
    finally:
        spark.conf.unset(PUSHDOWN)


def load(spark: SparkSession, root: Path | str, **options: str) -> DataFrame:
    return spark.read.format("rocketmq").options(**options).load(str(root))


def collected(frame: DataFrame) -> dict[int, dict[str, Any]]:
    rows = [comparable(row.asDict()) for row in frame.collect()]
    found = {row["physicalOffset"]: row for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_golden_stores_as_they_lie_there(
    spark: SparkSession, name: str, request: pytest.FixtureRequest
) -> None:
    """Nothing was registered: Spark finds the source by the module pyspark_rocketmq."""
    root = request.getfixturevalue(f"golden_{name}")
    frame = load(spark, root, includeSystemTopics="true", includeMetadata="true", minPartitions="4")
    assert collected(frame) == golden_rows(name)


def test_the_class_can_be_registered(spark: SparkSession, golden_killed: Path) -> None:
    import pocketmq

    spark.dataSource.register(pocketmq.spark.RocketMQDataSource)
    assert load(spark, golden_killed).count() == 730


def test_two_stores_as_one(spark: SparkSession, golden_clean: Path, golden_killed: Path) -> None:
    frame = load(spark, f"{golden_clean},{golden_killed}", minPartitions="5")
    expected = [*golden_rows("clean").values(), *golden_rows("killed").values()]
    visible = {"Flood"} | {row["topic"] for row in expected if row["topic"].startswith("Golden_")}
    counts = {row["topic"]: row["count"] for row in frame.groupBy("topic").count().collect()}
    assert counts == {topic: sum(row["topic"] == topic for row in expected) for topic in visible}
    both = spark.read.format("rocketmq").load([str(golden_clean), str(golden_killed)])
    assert both.count() == sum(counts.values())


def test_sql(spark: SparkSession, golden_clean: Path) -> None:
    load(spark, golden_clean, subscribe="Golden_tags").createOrReplaceTempView("tagged")
    rows = spark.sql(
        "SELECT tags, count(*) AS n, min(CAST(body AS STRING)) AS body, max(properties['région']) "
        "AS region FROM tagged WHERE storeTimestamp > '2026-01-01' AND array_contains(keys, 'id6') "
        "GROUP BY tags"
    ).collect()
    assert [row.asDict() for row in rows] == [
        {"tags": "AaBB", "n": 1, "body": "tagged 6", "region": "côte-1"}
    ]


def test_fewer_columns_by_schema(spark: SparkSession, golden_clean: Path) -> None:
    frame = (
        spark.read.format("rocketmq")
        .schema("tags string, topic string, queueOffset bigint not null")
        .load(str(golden_clean))
    )
    assert frame.columns == ["tags", "topic", "queueOffset"]
    tags = {row["tags"] for row in frame.where("topic = 'Golden_tags'").collect()}
    assert tags == {row["tags"] for row in golden_rows("clean").values()
                    if row["topic"] == "Golden_tags"}  # fmt: skip
    wrong = spark.read.format("rocketmq").schema("body string").load(str(golden_clean))
    with pytest.raises(Exception, match="column body is binary, not string"):
        wrong.collect()


CONDITIONS: list[tuple[str, Callable[[dict[str, Any]], bool]]] = [
    ("topic = 'Golden_tags' AND queueId < 2", lambda row: row["topic"] == "Golden_tags"
     and row["queueId"] < 2),
    ("topic IN ('Golden_big', 'Golden_plain') AND queueOffset BETWEEN 2 AND 4",
     lambda row: row["topic"] in ("Golden_big", "Golden_plain") and 2 <= row["queueOffset"] <= 4),
    ("physicalOffset >= 100000 AND physicalOffset < 150000",
     lambda row: 100000 <= row["physicalOffset"] < 150000),
    ("tags = 'AaAa'", lambda row: row["tags"] == "AaAa"),
    ("tags IS NULL", lambda row: row["tags"] is None),
    ("topic <> 'Golden_plain' OR queueId = 3",
     lambda row: row["topic"] != "Golden_plain" or row["queueId"] == 3),
    ("storeTimestamp > timestamp_millis(1795240479000)",
     lambda row: row["storeTimestamp"] > 1795240479000),
    ("bornTimestamp <= timestamp_millis(1795240479372)",
     lambda row: row["bornTimestamp"] <= 1795240479372),
    ("queueId = 17 AND tags = 'lvl18'", lambda row: row["queueId"] == 17),
]  # fmt: skip


@pytest.mark.parametrize("pushed", [False, True])
def test_conditions_pushed_or_not(spark: SparkSession, golden_clean: Path, pushed: bool) -> None:
    columns = "topic string, queueId int, queueOffset bigint, physicalOffset bigint, tags string"
    times = ", bornTimestamp timestamp, storeTimestamp timestamp"
    reader = spark.read.format("rocketmq").schema(columns + times)
    reader = reader.option("includeSystemTopics", "true").option("pushFilters", "oneQuery")
    for condition, holds in CONDITIONS:
        expected = {offset for offset, row in golden_rows("clean").items() if holds(row)}
        with pushdown(spark) if pushed else nullcontext():
            frame = reader.load(str(golden_clean)).where(condition)
            found = [row["physicalOffset"] for row in frame.collect()]
        assert len(found) == len(set(found)), condition
        assert set(found) == expected, condition
        assert expected, condition


def test_what_is_pushed_is_not_read(
    spark: SparkSession, golden_clean: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pushdown(spark):
        frame = load(spark, golden_clean, pushFilters="oneQuery").where(
            "topic = 'Golden_tags' AND queueOffset < 5"
        )
        frame.explain()
        plan = capsys.readouterr().out
        assert "BatchScan rocketmq" in plan
        assert not re.search(r"\bFilter\b", plan)
        assert frame.count() == 4 * 5


def test_a_filter_of_one_query_is_not_met_by_the_next(
    spark: SparkSession, golden_clean: Path
) -> None:
    """What Spark before SPARK-58551 would do with a DataFrame whose filters were pushed."""
    with pushdown(spark):
        frame = load(spark, golden_clean)
        assert frame.where("topic = 'Golden_big'").count() == 22
        frame.where("topic = 'Golden_big'").explain()
        assert frame.count() == 377
        tags = frame.where("topic = 'Golden_tags'")
        assert frame.unionAll(tags).count() == 377 + 140


def test_a_dataframe_is_a_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    store = MadeStore(tmp_path)
    store.put()
    root = store.write()
    frame = load(spark, root)
    assert frame.count() == 1
    store.put()
    store.write()
    assert frame.count() == 1
    assert load(spark, root).count() == 2


def test_a_corrupt_record(spark: SparkSession, tmp_path: Path) -> None:
    store = MadeStore(tmp_path)
    places = [store.put(body=b"body") for _ in range(50)]
    root = store.write()
    path = root / "commitlog" / f"{0:020d}"
    damage(path, places[20] + 90)
    with pytest.raises(Exception, match=f"{path} at byte {places[20]}: T/0 has its record 20"):
        load(spark, root).collect()
    assert load(spark, root, failOnDataLoss="false").count() == 49


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffset": "latest"}, "did you mean startingOffsets"),
        ({"startingOffsets": json.dumps({"Flood": {"0": 200}})}, "records 183 to 199 are gone"),
    ],
)
def test_mistakes_are_told(
    spark: SparkSession, golden_killed: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        load(spark, golden_killed, **options).collect()


def test_tables_of_a_catalog(spark: SparkSession, tmp_path: Path) -> None:
    made = MadeStore(tmp_path / "store")
    for number in range(4):
        made.put("ab"[number % 2], body=b"%d" % number)
    store = made.write()
    spark.sql(
        f"CREATE TABLE of_a USING rocketmq OPTIONS (path '{store}', subscribe 'a') "
        "TBLPROPERTIES ('team' = 'orders')"
    )
    spark.sql(f"CREATE TABLE of_all USING rocketmq LOCATION '{store}' COMMENT 'all of them'")
    try:
        assert spark.sql("SELECT count(*) FROM of_a WHERE topic = 'a'").collect() == [(2,)]
        joined = "SELECT of_all.queueOffset FROM of_all JOIN of_a USING (physicalOffset)"
        assert sorted(spark.sql(joined).collect()) == [(0,), (1,)]
        assert {"of_a", "of_all"} <= {row.tableName for row in spark.sql("SHOW TABLES").collect()}
    finally:
        spark.sql("DROP TABLE of_a")
        spark.sql("DROP TABLE of_all")
    assert (store / "commitlog").is_dir()
