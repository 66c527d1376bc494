"""A query reads the columns that it needs, and gives what it gives with all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")

from pocketmq.spark import pruned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def loaded(spark: SparkSession, root: Path, **options: str) -> DataFrame:
    return spark.read.format("rocketmq").options(**options).load(str(root))


def read_columns(frame: DataFrame) -> list[set[str]]:
    """The columns of each source in a query."""
    explained = StringIO()
    with redirect_stdout(explained):
        frame.explain(extended=True)
    plan = explained.getvalue().partition("Optimized Logical Plan")[2].partition("Physical Plan")[0]
    relations = re.findall(r"RelationV2\[(.*?)\] rocketmq", plan)
    return [set(re.findall(r"(\w+)#", relation)) for relation in relations]


def rows(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


QUERIES: dict[str, tuple[str, set[str]]] = {
    "columns": ("SELECT topic, queueOffset FROM {t}", {"topic", "queueOffset"}),
    "filter": ("SELECT topic FROM {t} WHERE tags = 'TagA' OR flag = 1", {"topic", "flag", "tags"}),
    "count": ("SELECT count(*) FROM {t}", {"queueId"}),
    "group": ("SELECT tags, count(*) FROM {t} GROUP BY tags", {"tags"}),
    "join": (
        "SELECT a.topic FROM {t} a JOIN {t} b ON a.msgId = b.msgId WHERE b.flag = 0",
        {"topic", "msgId", "flag"},
    ),
    "subquery": (
        "SELECT topic FROM {t} WHERE queueOffset = (SELECT max(queueOffset) FROM {t})",
        {"topic", "queueOffset"},
    ),
    "union": (
        "SELECT queueOffset FROM (SELECT * FROM {t} WHERE queueId = 1"
        " UNION ALL SELECT * FROM {t} WHERE flag = 0)",
        {"queueOffset", "queueId", "flag"},
    ),
    "window": (
        "SELECT tags, row_number() OVER (PARTITION BY topic ORDER BY physicalOffset) FROM {t}",
        {"tags", "topic", "physicalOffset"},
    ),
    "generate": ("SELECT queueOffset, explode(keys) FROM {t}", {"queueOffset", "keys"}),
    "cte": ("WITH c AS (SELECT * FROM {t}) SELECT body FROM c LIMIT 3", {"body"}),
}  # fmt: skip


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_reads_what_it_needs(spark: SparkSession, golden_clean: Path, name: str) -> None:
    sql, columns = QUERIES[name]
    frame = loaded(spark, golden_clean)
    before = frame.columns

    def query(messages: DataFrame) -> DataFrame:
        return spark.sql(sql, t=messages)

    found = pruned(frame, query)
    assert all(each == columns for each in read_columns(found))
    assert rows(found) == rows(query(frame))
    assert frame.columns == before
    assert read_columns(frame) == [set(before)]


ALL: list[Callable[[DataFrame], DataFrame]] = [
    lambda t: t,
    lambda t: t.where("queueId = 1"),
    lambda t: t.unionAll(t),
]


@pytest.mark.parametrize("number", range(len(ALL)))
def test_all_columns_are_read_where_all_are_needed(
    spark: SparkSession, golden_clean: Path, number: int
) -> None:
    frame = loaded(spark, golden_clean)
    found = pruned(frame, ALL[number])
    assert all(each == set(frame.columns) for each in read_columns(found))
    assert found.columns == frame.columns


def test_options_and_metadata_columns_are_kept(spark: SparkSession, golden_clean: Path) -> None:
    topic = loaded(spark, golden_clean).first()["topic"]  # type: ignore[index]
    frame = loaded(spark, golden_clean, subscribe=topic, includeMetadata="true")
    found = pruned(frame, lambda t: t.groupBy("bornHost").count())
    assert read_columns(found) == [{"bornHost"}]
    assert rows(found) == rows(frame.groupBy("bornHost").count())


def test_a_frame_that_is_no_read_is_refused(spark: SparkSession, golden_clean: Path) -> None:
    with pytest.raises(ValueError, match="need a DataFrame as"):
        pruned(spark.range(3), lambda t: t)
    with pytest.raises(ValueError, match="need a DataFrame as"):
        pruned(loaded(spark, golden_clean).where("flag = 0"), lambda t: t)
