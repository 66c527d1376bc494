"""A table is kept by exports or by `table_sink`: the other one refuses it. Both can join files."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake", reason="pip install 'pocketmq[tables]'")

from pocketmq.cli import main
from pocketmq.remoting.serving.service import ExitCode
from pocketmq.tables.errors import TableError
from pocketmq.tables.table import TableFormat, open_table
from pocketmq.tables.table_writer import TableWriter
from tests.spark.stream_store import GrowingStore
from tests.tables.rows_in import rows_in

FORMATS = pytest.mark.parametrize("format", ["parquet", "delta"])
ROWS = pa.schema([("queueOffset", pa.int64())])


def batch_of(number: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"queueOffset": [number]}, ROWS)


def kept_by_a_query(path: Path, format: TableFormat, batches: int) -> None:
    """A table as `table_sink` leaves it after some batches with a row each."""
    table = open_table(path, format)
    for number in range(batches):
        table.widen(ROWS)
        writer = TableWriter(path, table.last.number + 1, ROWS, ("queueOffset",))
        writer.add(batch_of(number))
        files, _ = writer.close()
        table.commit(table.last.following(files=files, batches={"query": number}))
    table.close()


@FORMATS
def test_small_files_of_a_sink_are_joined_and_nothing_else(
    format: TableFormat, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "table"
    kept_by_a_query(table, format, 3)
    compact = ["export", "--compact", "--to", str(table), "--format", format]
    assert main([*compact, "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == {"table": str(table), "compacted": 3}
    assert sorted(row["queueOffset"] for row in rows_in(table, format)) == [0, 1, 2]
    after = open_table(table, format)
    assert after.last.batches == {"query": 2}
    after.close()
    assert main(compact) == ExitCode.OK
    assert capsys.readouterr().err == f"joined 0 files of {table}\n"


@FORMATS
def test_an_export_refuses_the_table_of_a_sink(
    format: TableFormat, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, table = GrowingStore(tmp_path / "store"), tmp_path / "table"
    store.add(5)
    kept_by_a_query(table, format, 2)
    arguments = ["export", "--compact", "--to", str(table), "--format", format]
    assert main([*arguments, "--store", str(store.root)]) == ExitCode.FAILURE
    assert f"the table {table} is kept by table_sink" in capsys.readouterr().err
    assert len(rows_in(table, format)) == 2


def test_a_sink_refuses_the_table_of_an_export(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")
    from pocketmq.spark import table_sink

    store, table = GrowingStore(tmp_path / "store"), tmp_path / "table"
    store.add(5)
    assert main(["export", "--to", str(table), "--store", str(store.root)]) == ExitCode.OK
    context = SimpleNamespace(getLocalProperty=lambda _: "query")
    frame: Any = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
    with pytest.raises(TableError, match="is kept by `pocketmq export`"):
        table_sink(table)(frame, 0)
    assert len(rows_in(table, "parquet")) == 5


@pytest.mark.parametrize(
    ("options", "said", "code"),
    [
        (("--to", "t"), "need --store DIR, the store to read; only --compact", ExitCode.USAGE),
        (("a.parquet",), "need --store DIR, the store to read", ExitCode.USAGE),
        (
            ("--to", "t", "--compact", "-t", "orders"),
            "--topic needs --store DIR",
            ExitCode.USAGE,
        ),
        (("--to", "t", "--compact", "--skip-lost"), "--skip-lost needs --store", ExitCode.USAGE),
        (("--to", "no-table", "--compact"), "there is no table in no-table", ExitCode.UNAVAILABLE),
    ],
)
def test_without_a_store(
    options: tuple[str, ...], said: str, code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", *options]) == code
    assert said in capsys.readouterr().err
    assert not Path("no-table").exists()


@pytest.mark.parametrize("key", ["files", "dead_letters", "replaced"])
@pytest.mark.parametrize("name", ["../victim.parquet", "/etc/hostname", ".."])
def test_a_commit_names_only_files_of_its_table(key: str, name: str, tmp_path: Path) -> None:
    table = tmp_path / "table"
    kept_by_a_query(table, "parquet", 1)
    commit = table / "_pocketmq" / "commit.json"
    fields = json.loads(commit.read_bytes())
    fields[key] = [name]
    commit.write_text(json.dumps(fields))
    victim = tmp_path / "victim.parquet"
    victim.write_bytes(b"precious")
    with pytest.raises(TableError, match=rf"commit\.json is damaged: .*\$\.{key}\[0\]"):
        open_table(table, "parquet")
    assert victim.read_bytes() == b"precious"
