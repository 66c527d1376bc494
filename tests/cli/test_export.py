"""`pocketmq export`: a store as a Parquet file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pocketmq.cli import main
from pocketmq.remoting.serving.service import ExitCode
from tests.store.made_store import MadeStore, held_open, store_with_a_broken_topic

parquet = pytest.importorskip("pyarrow.parquet", reason="pip install 'pocketmq[arrow]'")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    made = MadeStore(tmp_path / "store")
    for n in range(3):
        made.put("orders", body=b"o%d" % n)
        made.put("bills", body=b"b%d" % n)
    made.put("%DLQ%billing", body=b"dead")
    return made.write()


def rows(path: Path) -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return table


def test_all_topics_of_applications_are_written(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "all.parquet"
    assert main(["export", str(file), "--store", str(store)]) == ExitCode.OK
    assert capsys.readouterr().err == f"wrote 6 messages to {file}\n"
    assert sorted(row["body"] for row in rows(file)) == [b"b0", b"b1", b"b2", b"o0", b"o1", b"o2"]


def test_topics_and_columns_are_chosen(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "some.parquet"
    arguments = ("-t", "orders", "-t", "%DLQ%billing", "--columns", "topic,body")
    assert main(["export", str(file), "--store", str(store), *arguments]) == ExitCode.OK
    found = rows(file)
    assert found[0].keys() == {"topic", "body"}
    assert sorted(row["body"] for row in found) == [b"dead", b"o0", b"o1", b"o2"]


def test_only_the_topics_that_are_named_are_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = store_with_a_broken_topic(tmp_path / "store")
    with held_open(root):
        for target in ([str(tmp_path / "orders.parquet")], ["--to", str(tmp_path / "table")]):
            arguments = ["export", *target, "--store", str(root)]
            assert main([*arguments, "-t", "orders"]) == ExitCode.OK
            capsys.readouterr()
            assert main(arguments) == ExitCode.UNAVAILABLE
            assert "broken/0" in capsys.readouterr().err
    assert len(rows(tmp_path / "orders.parquet")) == 3


def test_a_terminal_shows_how_much_is_done(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes stderr for a terminal
    for target in ([str(tmp_path / "all.parquet")], ["--to", str(tmp_path / "table")]):
        assert main(["export", *target, "--store", str(store)]) == ExitCode.OK
        assert "6/6" in capsys.readouterr().err


def test_times_bound_what_is_written(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "times.parquet"
    main(["export", str(file), "--store", str(store), "-t", "orders"])
    times = sorted(row["storeTimestamp"] for row in rows(file))
    bounds = ("--from", times[1].isoformat(), "--until", times[2].isoformat())
    assert main(["export", str(file), "--store", str(store), "-t", "orders", *bounds]) == 0
    expected = [time for time in times if times[1] <= time < times[2]]
    assert sorted(row["storeTimestamp"] for row in rows(file)) == expected


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("-t", "ordres"), ExitCode.UNAVAILABLE, "no topic ordres in "),
        (
            ("-t", "ordres"),
            ExitCode.UNAVAILABLE,
            "did you mean orders?; the topics are: bills, orders",
        ),
        (
            ("--columns", "boddy"),
            ExitCode.USAGE,
            "there is no column boddy, did you mean body?",
        ),
    ],
)
def test_what_the_store_does_not_have_is_named(
    store: Path,
    tmp_path: Path,
    arguments: tuple[str, ...],
    code: ExitCode,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "none.parquet"
    assert main(["export", str(file), "--store", str(store), *arguments]) == code
    assert said in capsys.readouterr().err
    assert not file.exists()


def test_a_directory_that_is_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "a.parquet", "--store", str(tmp_path)]) == ExitCode.UNAVAILABLE
    assert f"no store at {tmp_path}" in capsys.readouterr().err


def test_a_store_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "commitlog").mkdir()
    path = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"  # a directory, where a file belongs
    path.mkdir(parents=True)
    assert main(["export", "a.parquet", "--store", str(tmp_path)]) == ExitCode.UNAVAILABLE
    assert f"error: cannot read {path}: Not a regular file" in capsys.readouterr().err


def test_a_file_that_cannot_be_made_is_named_as_it_was_given(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nodir" / "x.parquet"
    assert main(["export", str(file), "--store", str(store)]) == ExitCode.FAILURE
    said = f"error: cannot write {file}: there is no directory {file.parent}\n"
    assert capsys.readouterr().err == said
    assert main(["export", str(tmp_path), "--store", str(store)]) == ExitCode.FAILURE
    assert capsys.readouterr().err == f"error: cannot write {tmp_path}: Is a directory\n"


def test_the_old_file_stays_when_the_new_one_cannot_be_written(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "old.parquet"
    file.write_text("old")
    [segment] = (store / "commitlog").iterdir()
    content = bytearray(segment.read_bytes())
    position = content.index(b"o1")
    content[position : position + 2] = b"xx"  # its checksum does not fit any more
    segment.write_bytes(content)
    code = main(["export", str(file), "--store", str(store)])
    assert code == ExitCode.STORE_CORRUPT
    assert str(segment) in capsys.readouterr().err
    assert file.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["old.parquet", "store"]


def test_the_columns_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "a.parquet", "--store", ".", "--columns", "help"]) == ExitCode.OK
    assert capsys.readouterr().out.split()[:3] == ["topic", "queueId", "brokerName"]
