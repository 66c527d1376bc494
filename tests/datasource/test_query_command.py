"""`pocketmq query`, as a process where it needs Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pocketmq.cli import main
from remoting.service import ExitCode
from tests.datasource.conftest import PROJECT
from tests.store.made_store import MadeStore, damage


def query(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command elsewhere than in the project's directory, as users do."""
    pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")
    from pocketmq.spark_session import SparkUnavailable, find_java

    try:
        find_java()
    except SparkUnavailable as missing:
        pytest.skip(str(missing))
    store = Path(arguments[-1])
    return subprocess.run(
        [sys.executable, "-m", "pocketmq", "query", *map(str, arguments)],
        cwd=store.parent,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.spark
def test_a_topic_is_a_table(golden_clean: Path) -> None:
    sql = "SELECT tags, count(*) AS n FROM Golden_tags WHERE tags LIKE 'Tag%' GROUP BY 1 ORDER BY 1"
    ended = query(sql, "--store", golden_clean)
    assert ended.returncode == ExitCode.OK, ended.stderr
    cells = [line.replace("│", " ").split() for line in ended.stdout.splitlines()]
    assert ["TagA", "20"] in cells
    assert ["TagB", "20"] in cells


@pytest.mark.spark
def test_json_lines_and_odd_names(tmp_path: Path) -> None:
    for name in ("one", "two"):
        store = MadeStore(tmp_path / name)
        store.put("my-topic|x", body=b"text", properties={"KEYS": "a b", "own": "1"})
        store.put("my-topic|x", body=b"\xff\x00")
        store.write()
    sql = "SELECT body, keys, properties, queueOffset, storeSize FROM `my-topic|x` ORDER BY 4"
    arguments = ("--format", "json", "--metadata", "--store", tmp_path / "one")
    ended = query(sql, *arguments, "--store", tmp_path / "two")
    assert ended.returncode == ExitCode.OK, ended.stderr
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [row["queueOffset"] for row in rows] == [0, 0, 1, 1]
    assert rows[0]["body"] == "text"
    assert rows[0]["keys"] == ["a", "b"]
    assert rows[0]["properties"] == {"KEYS": "a b", "own": "1"}
    assert rows[2]["bodyBase64"] == "/wA="
    assert rows[2]["storeSize"] == 91 + 2 + 10


@pytest.mark.spark
def test_an_unknown_table(golden_killed: Path) -> None:
    ended = query("SELECT * FROM flod", "--store", golden_killed)
    assert ended.returncode == ExitCode.USAGE
    assert "`flod` cannot be found" in ended.stderr
    assert "Topics in the store: Flood" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.spark
def test_topics_that_spark_does_not_tell_apart_are_no_tables(tmp_path: Path) -> None:
    store = MadeStore(tmp_path / "store")
    for topic in ("Orders-x", "orders-x", "other"):
        store.put(topic, body=topic.encode())
    root = store.write()
    ended = query("SELECT body FROM `orders-x`", "--format", "json", "--store", root)
    assert ended.returncode == ExitCode.USAGE
    assert ended.stdout == ""
    assert "Topics Orders-x, orders-x are no tables: Spark does not tell" in ended.stderr
    ended = query("SELECT body FROM OTHER", "--format", "json", "--store", root)
    assert ended.stdout == '{"body":"other"}\n', ended.stderr
    assert "no tables" not in ended.stderr


@pytest.mark.spark
def test_a_corrupt_record(tmp_path: Path) -> None:
    store = MadeStore(tmp_path / "store")
    places = [store.put(body=b"body") for _ in range(9)]
    root = store.write()
    damage(root / "commitlog" / f"{0:020d}", places[3] + 90)
    ended = query("SELECT count(body) FROM T", "--store", root)
    assert ended.returncode == ExitCode.STORE_CORRUPT, ended.stderr
    assert f"at byte {places[3]}: T/0 has its record 3" in ended.stderr


def test_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    assert main(["query", "SELECT 1", "--store", str(tmp_path)]) == ExitCode.USAGE
    assert f"error: no store at {tmp_path}" in capsys.readouterr().err


def test_a_statement_and_a_store_are_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", "SELECT 1"]) == ExitCode.USAGE
    assert "--store" in capsys.readouterr().err
