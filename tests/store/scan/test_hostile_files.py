"""What is no file where a store has one: pipes, devices, directories, links, and endless files."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pocketmq import open_store
from pocketmq.cli import main
from pocketmq.store.errors import StoreError
from tests.store.made_store import MadeStore

COUNT = 40
FIRST = f"{0:020d}"
PLACES = [
    "commitlog",
    f"commitlog/{FIRST}",
    f"commitlog/{2048:020d}",
    "consumequeue",
    "consumequeue/orders",
    "consumequeue/orders/0",
    f"consumequeue/orders/0/{FIRST}",
    "config",
    "config/topics.json",
    "config/topics.json.bak",
    "checkpoint",
    "queuebounds",
    "abort",
    "lock",
]


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def endless(path: Path) -> None:
    """A terabyte of zeros, which takes no room."""
    with path.open("wb") as file:
        file.truncate(1 << 40)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


KINDS: list[Callable[[Path], None]] = [os.mkfifo, Path.mkdir, loop, device, endless]


def hostile_store(root: Path, place: str, kind: Callable[[Path], None], *, crashed: bool) -> Path:
    """Make a store, and put something else where one of its files or directories is."""
    made = MadeStore(root, segment_size=2048)
    for n in range(COUNT):
        made.put("orders", n % 2, b"%d" % n * 20, entry=n < COUNT - 5)
    made.write(crashed=crashed)
    made.write_checkpoint()
    path = root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    kind(path)
    return root


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_scan_ends_with_what_it_can_read_or_an_error_of_the_store(
    kind: Callable[[Path], None], tmp_path: Path
) -> None:
    for number, place in enumerate(PLACES * 2):
        root = tmp_path / str(number)
        hostile_store(root, place, kind, crashed=number < len(PLACES))
        said = []
        for strict in (True, False):
            try:
                with open_store(root) as store:
                    assert store.topics in ([], ["orders"]), place
                    assert store.to_arrow(fail_on_data_loss=strict).num_rows <= COUNT
            except StoreError as error:
                said.append(str(error))
        assert all(str(root) in text or "orders/" in text for text in said)


@pytest.mark.parametrize("place", [f"commitlog/{FIRST}", f"consumequeue/orders/0/{FIRST}"])
@pytest.mark.parametrize("kind", [os.mkfifo, device], ids=lambda kind: kind.__name__)
def test_a_pipe_in_place_of_a_file_is_no_empty_file(
    kind: Callable[[Path], None], place: str, tmp_path: Path
) -> None:
    root = hostile_store(tmp_path / "store", place, kind, crashed=False)
    with (
        pytest.raises(StoreError, match=rf"cannot read .*{FIRST}: Not a regular file"),
        open_store(root) as store,
    ):
        store.to_arrow()


@pytest.mark.parametrize("kind", [os.mkfifo, loop, device], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("command", ["check", "snapshot"])
def test_commands_end_with_a_report_or_an_error(
    command: str,
    kind: Callable[[Path], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for number, place in enumerate(PLACES):
        root = hostile_store(tmp_path / f"store{number}", place, kind, crashed=True)
        target = [str(tmp_path / f"copy{number}")] if command == "snapshot" else []
        assert main(["store", command, str(root), *target]) in (0, 1, 6, 7), place
        assert "Traceback" not in capsys.readouterr().err


def test_names_that_no_broker_gives_are_left_out(tmp_path: Path) -> None:
    made = MadeStore(tmp_path / "store", segment_size=2048)
    for n in range(COUNT):
        made.put("orders", 0, b"%d" % n)
    root = made.write()
    queues = root / "consumequeue"
    with contextlib.suppress(OSError):  # some file systems take UTF-8 only
        (queues / os.fsdecode(b"bad\xff") / "0").mkdir(parents=True)
    for name in ("-1", "007", "4294967296", "9" * 30, "\u0663", " 1", "x"):
        directory = queues / "orders" / name
        directory.mkdir()
        (directory / FIRST).write_bytes(bytes(100))
    for directory in (root / "commitlog", queues / "orders", queues / "orders" / "0"):
        loop(directory / "loop")
    for name in ("9" * 20, f"{2**63 - 1:020d}", f"{2**62:020d}"):
        (root / "commitlog" / name).write_bytes(bytes(2048))
        (queues / "orders" / "0" / name).write_bytes(bytes(1000))
    with open_store(root) as store:
        assert store.topics == ["orders"]
        assert store.to_arrow().num_rows == COUNT
    assert main(["sync", str(root), str(tmp_path / "archives")]) == 0
