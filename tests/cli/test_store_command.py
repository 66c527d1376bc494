"""`pocketmq store`, run in this process on stores that are written byte by byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pocketmq.cli import main
from pocketmq.remoting.serving.service import ExitCode
from tests.cli.running import Running
from tests.store.made_store import MadeStore, damage


@pytest.fixture
def made(tmp_path: Path) -> MadeStore:
    """60 messages in two queues, and a checkpoint that knows of them."""
    made = MadeStore(tmp_path / "store")
    for n in range(60):
        made.put("T", n % 2, b"%02d" % n * 200)
    made.write(entries_per_file=60)
    made.write_checkpoint()
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


def test_the_users_of_a_store(made: MadeStore, capsys: pytest.CaptureFixture[str]) -> None:
    """They come with it, and the broker reads them if it wants signatures."""
    path = made.root / "config" / "auth.json"
    path.parent.mkdir(exist_ok=True)
    users = [{"username": name, "password": "p", "userType": kind}
             for name, kind in (("a", "Normal"), ("b", "Super"))]  # fmt: skip
    path.write_text(json.dumps({"users": users, "acls": []}))
    path.chmod(0o644)
    check = ["store", "check", str(made.root)]
    assert main(check) == ExitCode.OK
    assert "2 users, 0 access lists, and these super users: b" in capsys.readouterr().out
    assert path.stat().st_mode & 0o777 == 0o644  # nothing is changed
    path.write_text('{"x":' * 100_000)
    assert main(check) == ExitCode.FAILURE
    assert f"{path} is damaged" in capsys.readouterr().out
    assert main([*check, "--set", "authenticationEnabled=true"]) == ExitCode.STORE_CORRUPT
    assert f"A broker would not start: {path} is damaged" in capsys.readouterr().out


def test_repair(made: MadeStore, capsys: pytest.CaptureFixture[str]) -> None:
    (made.root / "abort").write_text("1")
    damage(made.root / "commitlog" / f"{0:020d}", 200)
    arguments = ["store", "repair", str(made.root)]
    assert main([*arguments, "--dry-run"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "T/0: messages 0 to 0 are gone" in out
    assert "nothing was changed (--dry-run)" in out
    assert main(["store", "check", str(made.root)]) != ExitCode.OK
    capsys.readouterr()
    assert main([*arguments, "--json"]) == ExitCode.OK
    repair = json.loads(capsys.readouterr().out)
    assert repair["lost"] == [{"topic": "T", "queue_id": 0, "begin": 0, "end": 1}]
    assert repair["kept"] == str(made.root / "damaged" / "1")
    assert main(["store", "check", str(made.root)]) == ExitCode.OK
    assert main(arguments) == ExitCode.OK
    assert "nothing to repair" in capsys.readouterr().out


def test_repair_while_a_broker_runs(made: MadeStore, capsys: pytest.CaptureFixture[str]) -> None:
    with Running("broker", "--store", made.root, "--listen-port", "0", "--set",
                 f"mappedFileSizeCommitLog={made.segment_size}", "--set",
                 "mappedFileSizeConsumeQueue=1200") as broker:  # fmt: skip
        broker.wait_for("listening")
        assert main(["store", "repair", str(made.root)]) == ExitCode.STORE_LOCKED
        assert main(["store", "check", str(made.root)]) == ExitCode.OK
    assert "open in a broker" in capsys.readouterr().out


@pytest.mark.parametrize("server", ["broker", "serve"])
def test_a_start_that_repairs(made: MadeStore, server: str) -> None:
    """Without --repair it is refused, with the command that helps."""
    (made.root / "abort").write_text("1")
    place = len(made.log) - 200
    path = made.root / "commitlog" / f"{place // made.segment_size * made.segment_size:020d}"
    damage(path, place % made.segment_size)
    arguments: list[str | Path] = [
        server, "--store", made.root, "--listen-port", "0", "--set",
        f"mappedFileSizeCommitLog={made.segment_size}", "--set",
        "mappedFileSizeConsumeQueue=1200",
    ]  # fmt: skip
    if server == "serve":
        arguments += ["--namesrv-port", "0"]
    with Running(*arguments) as refused:
        assert refused.end() == ExitCode.STORE_CORRUPT
    assert f"pocketmq store repair {made.root}" in "\n".join(refused.err)
    with Running(*arguments, "--repair") as running:
        running.wait_for("listening")
    assert "T/1: messages 29 to 29 are gone" in "\n".join(running.err)


@pytest.mark.parametrize("action", ["check", "repair"])
def test_what_is_no_store(action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", action, str(tmp_path)]) == ExitCode.UNAVAILABLE
    assert "is not the directory of a store" in capsys.readouterr().err
    (tmp_path / "commitlog").write_bytes(b"")
    assert main(["store", action, str(tmp_path)]) == ExitCode.UNAVAILABLE
    assert f"{tmp_path}/commitlog is not a directory" in capsys.readouterr().err
    arguments = ["store", action, str(tmp_path), "--set", "mappedFileSizeCommitLog=x"]
    assert main(arguments) == ExitCode.CONFIG
    assert "mappedFileSizeCommitLog" in capsys.readouterr().err
