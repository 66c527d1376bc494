"""`pocketmq query`, in a process of its own where it needs Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pocketmq.archive.location import Location
from pocketmq.archive.sync import sync
from pocketmq.cli import main
from pocketmq.cli.command_parser import CommandParser
from pocketmq.cli.stored import query as query_command
from pocketmq.remoting.serving.service import ExitCode
from pocketmq.store.scan.planning.tail import take_snapshot
from tests.spark.query_process import QueryProcess, command_environment, query_process
from tests.store.made_store import (
    NOW,
    MadeStore,
    damage,
    held_open,
    store_with_a_broken_topic,
    write,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def java() -> None:
    pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")
    from pocketmq.spark.sessions.java import SparkUnavailable, find_java

    try:
        find_java()
    except SparkUnavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def query(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueryProcess]:
    with query_process(tmp_path_factory.mktemp("queries")) as queries:
        yield queries


@pytest.mark.spark
@pytest.mark.usefixtures("java")
def test_the_command_as_users_run_it(golden_clean: Path) -> None:
    sql = "SELECT tags, count(*) AS n FROM Golden_tags WHERE tags LIKE 'Tag%' GROUP BY 1 ORDER BY 1"
    ended = subprocess.run(
        [sys.executable, "-m", "pocketmq", "query", sql, "--store", golden_clean],
        cwd=golden_clean.parent,
        env=command_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == ExitCode.OK, ended.stderr
    cells = [line.replace("│", " ").split() for line in ended.stdout.splitlines()]
    assert ["TagA", "20"] in cells
    assert ["TagB", "20"] in cells
    assert ended.stderr == "", "Spark's start is quiet"


@pytest.mark.spark
def test_json_lines_and_odd_names_of_a_store_and_an_archive(
    query: QueryProcess, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        store = MadeStore(tmp_path / name)
        store.put("my-topic|x", body=b"text", properties={"KEYS": "a b", "own": "1"})
        store.put("my-topic|x", body=b"\xff\x00")
        store.write()
    sql = "SELECT body, keys, properties, queueOffset, storeSize FROM `my-topic|x` ORDER BY 4"
    archives = f"file://{tmp_path}/archives"
    sync(tmp_path / "two", Location(archives).open(), everything=True, clock=lambda: NOW)
    arguments = ("--json", "--metadata", "--store", archives)
    ended = query(sql, *arguments, "--store", tmp_path / "one")
    assert ended.returncode == ExitCode.OK, ended.stderr
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [row["queueOffset"] for row in rows] == [0, 0, 1, 1]
    assert rows[0]["body"] == "text"
    assert rows[0]["keys"] == ["a", "b"]
    assert rows[0]["properties"] == {"KEYS": "a b", "own": "1"}
    assert rows[2]["bodyBase64"] == "/wA="
    assert rows[2]["storeSize"] == 91 + 2 + 10


@pytest.mark.spark
def test_times_are_local_unless_they_name_a_zone(query: QueryProcess, tmp_path: Path) -> None:
    """And what was printed can be asked for."""
    store = MadeStore(tmp_path / "store")
    store.put(store_timestamp=NOW)
    root = store.write()
    printed = "2026-11-21 13:57:20.000+08:00"
    times = ("2026-11-21 13:57:20", "2026-11-21 05:57:20Z", printed)
    conditions = " AND ".join(f"storeTimestamp = '{time}'" for time in times)
    ended = query(f"SELECT storeTimestamp FROM T WHERE {conditions}", "--store", root)
    assert printed in ended.stdout, ended.stderr


@pytest.mark.spark
def test_values_within_values_as_json(query: QueryProcess, tmp_path: Path) -> None:
    store = MadeStore(tmp_path / "store")
    for body in (b"text", b"\xff"):
        store.put(body=body, store_timestamp=NOW)
    root = store.write()
    sql = (
        "SELECT struct(queueOffset AS at, body) AS one, array(body, body) AS two, "
        "map('b', body) AS map, struct(storeTimestamp AS time) AS three FROM T ORDER BY queueOffset"
    )
    ended = query(sql, "--json", "--store", root)
    time = {"time": "2026-11-21T13:57:20+08:00"}
    assert [json.loads(line) for line in ended.stdout.splitlines()] == [
        {
            "one": {"at": 0, "body": "text"},
            "two": ["text", "text"],
            "map": {"b": "text"},
            "three": time,
        },
        {
            "one": {"at": 1, "bodyBase64": "/w=="},
            "twoBase64": ["/w==", "/w=="],
            "map": {"bBase64": "/w=="},
            "three": time,
        },
    ], ended.stderr


@pytest.mark.spark
def test_a_topic_without_messages_is_an_empty_table(query: QueryProcess, tmp_path: Path) -> None:
    store = MadeStore(tmp_path / "store")
    store.put("orders")
    topics = b'{"topicConfigTable":{"later":{"readQueueNums":4},"Orders":{"readQueueNums":4}}}'
    write(tmp_path / "store" / "config" / "topics.json", topics)
    sql = "SELECT (SELECT count(*) FROM later) AS later, count(*) AS orders FROM orders"
    ended = query(sql, "--json", "--store", store.write())
    assert ended.stdout == '{"later":0,"orders":1}\n', ended.stderr


@pytest.mark.spark
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_closed_pipe_ends_the_query(
    query: QueryProcess, golden_killed: Path, form: tuple[str, ...]
) -> None:
    arguments: list[str | Path] = ["SELECT * FROM Flood", *form, "--store", golden_killed]
    ended = query(*arguments, head=True)
    assert ended.returncode == ExitCode.OK, ended.stderr
    assert "pocketmq/cli" not in ended.stderr  # of a traceback; PySpark's workers may show theirs


@pytest.mark.spark
def test_an_unknown_table(query: QueryProcess, golden_killed: Path) -> None:
    ended = query("SELECT * FROM flod", "--store", golden_killed)
    assert ended.returncode == ExitCode.UNAVAILABLE
    assert "`flod` cannot be found" in ended.stderr
    assert "Topics in the store: Flood" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.spark
def test_topics_that_spark_does_not_tell_apart_are_no_tables(
    query: QueryProcess, tmp_path: Path
) -> None:
    store = MadeStore(tmp_path / "store")
    for topic in ("Orders-x", "orders-x", "other"):
        store.put(topic, body=topic.encode())
    root = store.write()
    ended = query("SELECT body FROM `orders-x`", "--json", "--store", root)
    assert ended.returncode == ExitCode.UNAVAILABLE
    assert ended.stdout == ""
    assert "Topics Orders-x, orders-x are not available as tables" in ended.stderr
    ended = query("SELECT body FROM OTHER", "--json", "--store", root)
    assert ended.stdout == '{"body":"other"}\n', ended.stderr
    assert "no tables" not in ended.stderr


@pytest.mark.spark
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_corrupt_record_is_one_line(
    query: QueryProcess, tmp_path: Path, form: tuple[str, ...]
) -> None:
    store = MadeStore(tmp_path / "store")
    places = [store.put(body=b"body") for _ in range(9)]
    root = store.write()
    damage(root / "commitlog" / f"{0:020d}", places[3] + 90)
    ended = query("SELECT body FROM T", *form, "--store", root)
    assert ended.returncode == ExitCode.STORE_CORRUPT, ended.stderr
    file = root / "commitlog" / f"{0:020d}"
    begin = f"error: StoreCorrupt: {file} at byte {places[3]}: T/0 has its record 3"
    assert ended.stderr.startswith(begin)
    assert ended.stderr.count("\n") == 1


@pytest.mark.spark
def test_only_the_topics_of_the_statement_are_opened(query: QueryProcess, tmp_path: Path) -> None:
    root = store_with_a_broken_topic(tmp_path)
    with held_open(root):
        ended = query("SELECT count(*) AS n FROM Orders", "--json", "--store", root)
    assert ended.stdout == '{"n":3}\n', ended.stderr


@pytest.mark.spark
def test_columns_that_a_statement_does_not_need_are_not_read(
    query: QueryProcess, tmp_path: Path
) -> None:
    """A count takes the consume queues alone, so that a corrupt log does not disturb it."""
    store = MadeStore(tmp_path / "store")
    places = [store.put(body=b"body") for _ in range(9)]
    root = store.write()
    damage(root / "commitlog" / f"{0:020d}", places[3] + 90)
    ended = query("SELECT count(*) AS n FROM T", "--json", "--store", root)
    assert ended.stdout == '{"n":9}\n', ended.stderr


@pytest.mark.spark
def test_a_row_that_fails_shows_no_stack_of_java(query: QueryProcess, golden_killed: Path) -> None:
    sql = "SELECT 1 DIV (queueOffset - queueOffset) FROM Flood"
    ended = query(sql, "--json", "--store", golden_killed)
    assert ended.returncode == ExitCode.FAILURE
    # A worker of PySpark may complain before, since nobody takes its rows any more.
    assert ended.stderr.splitlines()[-1].startswith("error: [DIVIDE_BY_ZERO] ")
    assert "at org.apache" not in ended.stderr


@pytest.mark.spark
def test_json_takes_a_store_in_small_parts(spark: SparkSession, tmp_path: Path) -> None:
    """Java would run out of memory with those of a scan."""
    store = MadeStore(tmp_path)
    for n in range(100):
        store.put(queue_id=n % 2, body=bytes(1000))
    store.put("other")
    snapshots = [take_snapshot(store.write())]
    conf = "spark.sql.python.filterPushdown.enabled"
    try:
        for form, count in ((), 1), (("--json",), 11):
            arguments = ["query", "SELECT * FROM t", *form, "--store", str(tmp_path)]
            options = parser().parse_args(arguments)
            query_command.create_views(spark, options, snapshots, json_bytes=10_000)
            assert spark.table("T").rdd.getNumPartitions() == count
            assert not spark.catalog.tableExists("other")
    finally:
        spark.conf.unset(conf)
        spark.catalog.dropTempView("T")


def parser() -> CommandParser:
    made = CommandParser()
    query_command.add_parser(made.add_subparsers())
    return made


def test_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    assert main(["query", "SELECT 1", "--store", str(tmp_path)]) == ExitCode.UNAVAILABLE
    assert f"error: no store at {tmp_path}" in capsys.readouterr().err


def test_a_store_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    # Not one without permission: root, as which tests may run, reads all.
    path = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    path.mkdir(parents=True)
    (tmp_path / "commitlog").mkdir()
    assert main(["query", "SELECT 1", "--store", str(tmp_path)]) == ExitCode.UNAVAILABLE
    assert f"error: cannot read {path}: Not a regular file" in capsys.readouterr().err


def test_a_statement_and_a_store_are_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", "SELECT 1"]) == ExitCode.USAGE
    assert "--store" in capsys.readouterr().err
