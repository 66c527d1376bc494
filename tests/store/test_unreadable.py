"""What this user may not read in a store is named: it is neither a traceback nor left out."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pocketmq import open_store
from pocketmq.cli import main
from pocketmq.remoting.serving.service import ExitCode
from pocketmq.store.errors import StoreError
from tests.store.made_store import MadeStore
from tests.unprivileged import unprivileged

FIRST = f"{0:020d}"
PLACES = [
    "",
    "commitlog",
    f"commitlog/{FIRST}",
    "consumequeue",
    "consumequeue/orders",
    "consumequeue/orders/0",
    f"consumequeue/orders/0/{FIRST}",
    "config",
    "config/topics.json",
]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    made = MadeStore(tmp_path / "store", segment_size=2048)
    for n in range(40):
        made.put("orders", n % 2, b"%d" % n * 20)
    made.write()
    config = made.root / "config"
    config.mkdir(exist_ok=True)
    (config / "topics.json").write_text('{"topicConfigTable":{}}')
    return made.root


@pytest.mark.parametrize("place", PLACES)
def test_commands_name_it(
    store: Path, tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = store / place
    mode = closed.stat().st_mode
    closed.chmod(0)
    target = tmp_path / "target"
    try:
        with unprivileged():
            for command in (
                ["store", "check", str(store)],
                ["store", "repair", str(store)],
                ["store", "snapshot", str(store), str(target)],
                ["sync", str(store), str(target), "--all"],
            ):
                code = main(command)
                said = capsys.readouterr().err
                assert code not in (ExitCode.OK, ExitCode.USAGE), command
                assert str(closed) in said, command
                assert not target.exists() or not any(target.iterdir()), command
    finally:
        closed.chmod(mode)


@pytest.mark.parametrize("place", PLACES)
def test_readers_name_it(store: Path, place: str) -> None:
    closed = store / place
    mode = closed.stat().st_mode
    closed.chmod(0)
    try:
        with (
            unprivileged(),
            pytest.raises(StoreError, match=f"{closed}.*Permission denied"),
            open_store(store) as opened,
        ):
            opened.to_arrow()
    finally:
        closed.chmod(mode)


def test_an_archive_among_others_is_not_left_out(store: Path, tmp_path: Path) -> None:
    archives = tmp_path / "archives"
    other = tmp_path / "other"
    shutil.copytree(store, other)
    for root in (store, other):
        assert main(["sync", str(root), str(archives), "--all"]) == ExitCode.OK
    closed = archives / "other"
    closed.chmod(0)
    try:
        with (
            unprivileged(),
            pytest.raises(StoreError, match=f"{closed}.*Permission denied"),
            open_store(archives) as opened,
        ):
            opened.to_arrow()
    finally:
        closed.chmod(0o755)
