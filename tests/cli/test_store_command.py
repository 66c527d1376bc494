"""`pocketmq store`, run in this process on stores that are written byte by byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pocketmq.cli import main
from pocketmq.remoting.service import ExitCode
from tests.store.made_store import MadeStore, damage


@pytest.fixture
def made(tmp_path: Path) -> MadeStore:
    """60 messages in two queues, and a checkpoint that knows of them."""
    made = MadeStore(tmp_path / "store")
    for n in range(60):
        made.put("T", n % 2, b"%02d" % n * 200)
    made.write()
    checkpoint = (made.now, made.now, 0, 0, len(made.log))
    fields = b"".join(value.to_bytes(8, "big") for value in checkpoint)
    content = (fields * 2 + len(made.log).to_bytes(8, "big")).ljust(4096, b"\0")
    (made.root / "checkpoint").write_bytes(content)
    return made


def test_a_good_store(made: MadeStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "check", str(made.root)]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "nothing is wrong" in out
    assert out.splitlines()[0].split() == [
        "PART", "FILES", "BYTES", "BEGIN", "END", "ITEMS", "PROBLEMS",
    ]  # fmt: skip


def test_a_store_on_which_a_broker_would_not_start(
    made: MadeStore, capsys: pytest.CaptureFixture[str]
) -> None:
    (made.root / "abort").write_text("1")
    place = len(made.log) - 200
    path = made.root / "commitlog" / f"{place // made.segment_size * made.segment_size:020d}"
    damage(path, place % made.segment_size)
    assert main(["store", "check", str(made.root)]) == ExitCode.STORE_CORRUPT
    out = capsys.readouterr().out
    assert "A broker would not start" in out
    assert str(path) in out
    assert main(["store", "check", str(made.root), "--json"]) == ExitCode.STORE_CORRUPT
    report = json.loads(capsys.readouterr().out)
    assert (report["starts"], report["flushed"]) == (False, len(made.log))
    assert [(p["part"], p["where"]) for p in report["problems"]] == [
        ("commitlog", str(path)), ("consumequeue", "T/1"),
    ]  # fmt: skip


def test_damage_that_a_start_would_not_notice(
    made: MadeStore, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(made.root / "commitlog" / f"{0:020d}", 200)
    assert main(["store", "check", str(made.root)]) == ExitCode.FAILURE


@pytest.mark.parametrize("action", ["check"])
def test_what_is_no_store(action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", action, str(tmp_path)]) == ExitCode.USAGE
    assert "is not the directory of a store" in capsys.readouterr().err
    arguments = ["store", action, str(tmp_path), "--set", "mappedFileSizeCommitLog=x"]
    assert main(arguments) == ExitCode.CONFIG
    assert "mappedFileSizeCommitLog" in capsys.readouterr().err
