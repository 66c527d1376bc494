"""`pocketmq sync`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pocketmq.cli import main
from tests.store.made_store import MadeStore

pytest.importorskip("pyarrow", reason="pip install 'pocketmq[arrow]'")


@pytest.fixture
def store(tmp_path: Path) -> MadeStore:
    made = MadeStore(tmp_path / "broker-a", segment_size=4096)
    for number in range(100):
        made.put("orders", number % 2, b"%d" % number)
    made.write()
    return made


def test_it_uploads_and_says_what(
    store: MadeStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "archives"
    assert main(["sync", str(store.root), str(place), "--all"]) == 0
    text = capsys.readouterr().out
    assert f"{place}/broker-a: physical offsets 0 to {len(store.log)}; uploaded" in text
    assert "100 messages" in text
    assert main(["sync", str(store.root), f"file://{place}", "--json", "--verify"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["uploaded"], found["end"], found["faults"]) == (0, len(store.log), [])


def test_it_says_what_waits_for_a_later_sync(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new store has one file, which is not full: nothing was copied, and nothing told why."""
    made = MadeStore(tmp_path / "broker-a")
    made.put("orders")
    made.write()
    command = ["sync", str(made.root), str(tmp_path / "archives")]
    assert main(command) == 0
    first, note = capsys.readouterr().out.splitlines()
    assert "uploaded 0 parts" in first
    assert note.startswith(f"note: {len(made.log)} bytes of the last file of the log")
    assert note.endswith("were left for a later sync; --all uploads them now")
    assert main([*command, "--all"]) == 0
    assert "note" not in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["waiting"] == 0


def test_a_damaged_object_is_an_exit_code(
    store: MadeStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "archives"
    assert main(["sync", str(store.root), str(place)]) == 0
    damaged = min((place / "broker-a" / "log").iterdir())
    damaged.write_bytes(bytes(4096))
    assert main(["sync", str(store.root), str(place), "--verify"]) == 6
    assert f"{damaged}: its SHA-256" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("url", "code", "text"),
    [
        ("ftp://host/p", 2, "ftp://host/p cannot be opened by PyArrow"),
        ("s3://b/p?scheme=http&endpoint_override=127.0.0.1:1", 7, "no server answers"),
    ],
)
def test_what_cannot_be_reached_is_an_exit_code(
    store: MadeStore,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    url: str,
    code: int,
    text: str,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    assert main(["sync", str(store.root), url]) == code
    error = capsys.readouterr().err
    assert text in error
    assert "hush" not in error


def test_a_directory_without_a_store_is_an_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sync", str(tmp_path), str(tmp_path / "archives")]) == 7
    assert "no store at" in capsys.readouterr().err
