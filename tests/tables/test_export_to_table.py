"""`pocketmq export --to`: tables that are kept up to date."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="pip install 'pocketmq[tables]'")

from pocketmq.cli import main
from pocketmq.remoting.serving.service import ExitCode
from pocketmq.store.scan.records.columns import ALL_COLUMNS
from pocketmq.tables import exports
from pocketmq.tables.table import open_table
from tests.spark.stream_store import GrowingStore
from tests.store.made_store import MadeStore, comparable, golden_rows, held_open, unpack_golden
from tests.tables.rows_in import dead_letters_in, rows_in

FORMATS = pytest.mark.parametrize("format", ["parquet", "delta"])


def export(store: Path, table: Path, format: str, *options: str) -> int:
    arguments = ("export", "--to", str(table), "--store", str(store), "--format", format)
    return main([*arguments, *options])


def places(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return sorted((row["topic"], row["queueId"], row["queueOffset"]) for row in rows)


@FORMATS
def test_each_export_goes_on_where_the_last_commit_ended(
    format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, table = GrowingStore(tmp_path / "store"), tmp_path / "tables" / "all"
    store.add(40)
    assert export(store.root, table, format, "--file-size", "0.002") == ExitCode.OK
    store.add(3)
    store.add(2, "T", 1)
    capsys.readouterr()
    assert export(store.root, table, format, "--json") == ExitCode.OK
    said = json.loads(capsys.readouterr().out)
    assert said["messages"] == said["stored"] == 5
    assert said["offsets"] == {"T": {"broker-a": {"0": 43, "1": 2}}}
    assert export(store.root, table, format) == ExitCode.OK
    assert capsys.readouterr().err == f"wrote 0 messages to {table}\n"
    expected = [("T", 0, n) for n in range(43)] + [("T", 1, n) for n in range(2)]
    assert places(rows_in(table, format)) == expected


def test_many_queues_share_batches(tmp_path: Path) -> None:
    """A batch of its own for each queue cost 2 ms of CPU."""
    made = MadeStore(tmp_path / "store")
    for number in range(120):
        made.put(f"T{number % 3}", queue_id=number // 3 % 20)
    root = made.write()
    table = open_table(tmp_path / "table", "parquet")
    batches: list[int] = []
    try:
        done = exports.export(
            table, [root], columns=("topic", "queueId", "queueOffset"), advanced=batches.append
        )
        position = table.last.position
    finally:
        table.close()
    assert done.messages == sum(batches) == 120
    assert len(batches) < 10
    assert {(at.topic, at.queue_id): to.offset for at, to in position.items()} == {
        (f"T{topic}", queue_id): 2 for topic in range(3) for queue_id in range(20)
    }
    assert places(rows_in(tmp_path / "table", "parquet")) == [
        (f"T{topic}", queue_id, offset)
        for topic in range(3) for queue_id in range(20) for offset in range(2)
    ]  # fmt: skip


@FORMATS
@pytest.mark.parametrize("name", ["clean"])
def test_golden_stores(format: str, name: str, tmp_path: Path) -> None:
    root = unpack_golden(name, tmp_path / "store")
    options = ("--columns", ",".join(ALL_COLUMNS), "--file-size", "0.01")
    assert export(root, tmp_path / "table", format, *options) == ExitCode.OK
    found = {row["physicalOffset"]: row for row in rows_in(tmp_path / "table", format)}
    expected = golden_rows(name)
    assert found
    assert len(found) == len(rows_in(tmp_path / "table", format))
    for physical, row in found.items():
        assert comparable(row) == expected[physical] | {"brokerName": row["brokerName"]}


@FORMATS
def test_small_files_are_joined(
    format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, table = GrowingStore(tmp_path / "store"), tmp_path / "table"
    for _ in range(3):
        store.add(5)
        assert export(store.root, table, format) == ExitCode.OK
    capsys.readouterr()
    store.add(5)
    assert export(store.root, table, format, "--compact", "--json") == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["compacted"] in (3, 4)
    assert places(rows_in(table, format)) == [("T", 0, n) for n in range(20)]
    store.add(1)
    assert export(store.root, table, format) == ExitCode.OK
    assert places(rows_in(table, format)) == [("T", 0, n) for n in range(21)]
    if format == "parquet":
        assert len(list(table.glob("*.parquet"))) == 2


@FORMATS
def test_bodies_that_do_not_decode_become_dead_letters(
    format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = MadeStore(tmp_path / "store")
    for body in (b"broken", b'{"id":1}', b'{"id":"2"}', b'{"id":3}'):
        made.put("orders", body=body)
    root = made.write()
    schema = tmp_path / "orders.schema"
    schema.write_text("id bigint")
    decode = ("--decode", "json", "--schema", str(schema), "--columns", "queueOffset,body")
    assert export(root, tmp_path / "table", format, *decode, "--json") == ExitCode.OK
    said = json.loads(capsys.readouterr().out)
    assert (said["messages"], said["deadLetters"]) == (2, 2)
    assert rows_in(tmp_path / "table", format) == [
        {"queueOffset": 1, "body": {"id": 1}},
        {"queueOffset": 3, "body": {"id": 3}},
    ]
    dead = dead_letters_in(tmp_path / "table")
    assert [(row["topic"], row["queueOffset"], row["body"]) for row in dead] == [
        ("orders", 0, b"broken"),
        ("orders", 2, b'{"id":"2"}'),
    ]
    assert dead[1]["reason"] == "Expected `int | null`, got `str` - at `$.id`"

    assert export(root, tmp_path / "some", format, *decode, "--on-error", "skip") == ExitCode.OK
    assert len(rows_in(tmp_path / "some", format)) == 2
    assert not dead_letters_in(tmp_path / "some")
    assert "left out 2 that cannot be decoded" in capsys.readouterr().err

    fails = export(root, tmp_path / "none", format, *decode, "--on-error", "fail")
    assert fails == ExitCode.FAILURE
    assert "the body of the message orders/store/0/0 cannot be decoded" in capsys.readouterr().err
    assert not rows_in(tmp_path / "none", format)


@FORMATS
def test_a_batch_of_dead_letters_only(format: str, tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "store")
    schema = tmp_path / "orders.schema"
    schema.write_text("id bigint")
    decode = ("--decode", "json", "--schema", str(schema))
    for count in (2, 4):
        store.add(2)
        assert export(store.root, tmp_path / "table", format, *decode) == ExitCode.OK
        assert len(dead_letters_in(tmp_path / "table")) == count
    assert not rows_in(tmp_path / "table", format)


@FORMATS
def test_columns_can_be_added(
    format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = MadeStore(tmp_path / "store")
    table, schema = tmp_path / "table", tmp_path / "orders.schema"

    def run(fields: str, columns: str) -> int:
        made.put("orders", body=b'{"id":1,"name":"x"}')
        schema.write_text(fields)
        decode = ("--decode", "json", "--schema", str(schema), "--columns", columns)
        return export(made.write(), table, format, *decode)

    assert run("id bigint", "body,queueOffset") == ExitCode.OK
    assert run("name string, id bigint", "queueOffset,tags,body") == ExitCode.OK
    rows = sorted(rows_in(table, format), key=lambda row: int(row["queueOffset"]))
    assert rows[0]["body"]["id"] == rows[1]["body"]["id"] == 1
    assert rows[1]["body"]["name"] == "x"
    assert "tags" in rows[1]
    capsys.readouterr()
    assert run("name string, id string", "queueOffset,tags,body") == ExitCode.FAILURE
    assert "the column body.id is int64, in the new rows it is string" in capsys.readouterr().err
    assert run("name string, id bigint", "tags,body") == ExitCode.FAILURE
    assert "has a column queueOffset, which the new rows lack" in capsys.readouterr().err
    assert len(rows_in(table, format)) == 2


def test_several_brokers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stores = [GrowingStore(tmp_path / name, name) for name in ("a", "b")]
    for store in stores:
        store.add(3)
    table = tmp_path / "table"
    more = ("--store", str(stores[1].root))
    assert export(stores[0].root, table, "parquet", *more) == ExitCode.OK
    assert len(rows_in(table, "parquet")) == 6
    assert export(stores[0].root, table, "parquet") == ExitCode.FAILURE
    assert "has messages of the broker b, and none of the stores is its" in capsys.readouterr().err
    twin = GrowingStore(tmp_path / "twin", "a")
    assert export(stores[0].root, table, "parquet", "--store", str(twin.root)) == ExitCode.FAILURE
    assert "is a store of the broker a, like" in capsys.readouterr().err


def test_lost_messages_end_the_export_unless_they_are_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, table = GrowingStore(tmp_path / "store"), tmp_path / "table"
    store.add(10)
    assert export(store.root, table, "parquet") == ExitCode.OK
    shorter = GrowingStore(tmp_path / "shorter")  # the broker began anew
    shorter.add(4)
    assert export(shorter.root, table, "parquet") == ExitCode.FAILURE
    assert "T/0: the records 4 to 9 are gone: the queue ends at 4" in capsys.readouterr().err
    assert export(shorter.root, table, "parquet", "--skip-lost") == ExitCode.OK
    assert "6 were lost before" in capsys.readouterr().err
    shorter.add(1)
    assert export(shorter.root, table, "parquet") == ExitCode.OK
    assert places(rows_in(table, "parquet")).count(("T", 0, 4)) == 2


@FORMATS
@pytest.mark.parametrize("new", [4, 10, 16])
def test_a_topic_that_is_created_again(
    format: str, new: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, table = GrowingStore(tmp_path / "store"), tmp_path / "table"
    store.add(10)
    store.add(2, "other")
    assert export(store.root, table, format) == ExitCode.OK
    store.delete("T")
    store.add(new)
    capsys.readouterr()
    assert export(store.root, table, format) == ExitCode.FAILURE
    said = capsys.readouterr().err
    assert "T/0 was read up to offset 10, and is not the same queue any more" in said
    assert "with --skip-lost" in said
    assert export(store.root, table, format, "--skip-lost") == ExitCode.OK
    assert "1 queue recreated or deleted" in capsys.readouterr().err
    expected = [("T", 0, n) for n in (*range(10), *range(new))]
    expected += [("other", 0, n) for n in range(2)]
    assert places(rows_in(table, format)) == sorted(expected)
    assert export(store.root, table, format) == ExitCode.OK


def test_a_topic_that_is_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, table = GrowingStore(tmp_path / "store"), tmp_path / "table"
    store.add(10)
    store.add(2, "other")
    assert export(store.root, table, "parquet") == ExitCode.OK
    store.delete("T")
    store.write_checkpoint()
    assert export(store.root, table, "parquet", "--topic", "other") == ExitCode.OK
    capsys.readouterr()
    assert export(store.root, table, "parquet") == ExitCode.FAILURE
    assert "T/0 was read up to offset 10" in capsys.readouterr().err
    assert export(store.root, table, "parquet", "--skip-lost", "--json") == ExitCode.OK
    said = json.loads(capsys.readouterr().out)
    assert (said["replaced"], said["offsets"]) == (1, {"other": {"broker-a": {"0": 2}}})
    assert export(store.root, table, "parquet") == ExitCode.OK


def test_a_table_whose_commits_have_offsets_alone(tmp_path: Path) -> None:
    store, table = GrowingStore(tmp_path / "store"), tmp_path / "table"
    store.add(10)
    assert export(store.root, table, "parquet") == ExitCode.OK
    commit = table / "_pocketmq" / "commit.json"
    fields = json.loads(commit.read_bytes())
    fields["offsets"]["T"]["broker-a"]["0"] = 10
    commit.write_text(json.dumps(fields))
    store.add(5)
    assert export(store.root, table, "parquet") == ExitCode.OK
    assert places(rows_in(table, "parquet")) == [("T", 0, n) for n in range(15)]


def test_unflushed_messages_of_an_open_store_wait(tmp_path: Path) -> None:
    store, table = GrowingStore(tmp_path / "store"), tmp_path / "table"
    store.add(5)
    with held_open(store.root):  # without a checkpoint nothing was flushed
        assert export(store.root, table, "parquet") == ExitCode.OK
        assert not rows_in(table, "parquet")
    (store.root / "abort").unlink()  # has the id of this process, which is alive
    assert export(store.root, table, "parquet") == ExitCode.OK
    assert len(rows_in(table, "parquet")) == 5


@FORMATS
def test_two_writers(format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, table = GrowingStore(tmp_path / "store"), tmp_path / "table"
    store.add(1)
    open_one = open_table(table, format)  # type: ignore[arg-type]
    assert export(store.root, table, format) == ExitCode.FAILURE
    assert f"another process is writing to the table {table}" in capsys.readouterr().err
    open_one.close()
    assert export(store.root, table, format) == ExitCode.OK
    other = {"parquet": "delta", "delta": "parquet"}[format]
    assert export(store.root, table, other) == ExitCode.FAILURE
    assert f"choose the format {format}" in capsys.readouterr().err


def test_a_damaged_commit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, table = GrowingStore(tmp_path / "store"), tmp_path / "table"
    store.add(1)
    assert export(store.root, table, "parquet") == ExitCode.OK
    commit = table / "_pocketmq" / "commit.json"
    commit.write_bytes(commit.read_bytes()[:-10])
    assert export(store.root, table, "parquet") == ExitCode.FAILURE
    assert f"{commit} is damaged" in capsys.readouterr().err
    assert len(rows_in(table, "parquet")) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "need either FILE or --to DIR"),
        (("a.parquet", "--to", "t"), "need either FILE or --to DIR"),
        (("a.parquet", "--compact"), "--compact is for tables: give --to DIR"),
        (("a.parquet", "--store", "."), "several stores need --to DIR"),
        (("--to", "t", "--from", "-1h"), "--from and --until go with FILE only"),
        (("--to", "t", "--decode", "json"), "--decode and --schema go together"),
        (("--to", "t", "--on-error", "skip"), "--on-error goes with --decode"),
        (
            ("--to", "t", "--decode", "json", "--schema", "none", "--columns", "tags"),
            "--decode needs the column body",
        ),
        (("--to", "t", "--decode", "json", "--schema", "no-file"), "cannot read no-file"),
    ],
)
def test_options_that_do_not_go_together(
    options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", *options, "--store", "."]) == ExitCode.USAGE
    assert said in capsys.readouterr().err
