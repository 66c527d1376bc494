"""Copies of stores: what is in them, what they share with the store, and that neither changes the
other."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.store.check.report import State
from pocketmq.store.check.store_check import check_store
from pocketmq.store.config import StoreConfig
from pocketmq.store.errors import NotAFile
from pocketmq.store.file_copies import sync_tree
from pocketmq.store.files import Files
from pocketmq.store.repair.store_repair import repair_store
from pocketmq.store.snapshot.copied_files import CopiedFiles
from pocketmq.store.snapshot.store_snapshot import Snapshot, TargetNotEmpty, write_snapshot
from tests.store.made_store import MadeStore

FILE = 16 * 1024
COUNT = 300


async def fill(bench: Any, *, close: bool = True) -> Any:
    """Put messages into two queues over several files, and return the store."""
    store = bench.open()
    store.start()
    for number in range(COUNT):
        bench.clock.now += 1
        bench.put(
            store, "Topic", number % 2, body=b"%03d" % number * 50, properties="KEYS\x01k\x02"
        )
    if close:
        await store.close()
    return store


def snapshot(bench: Any, name: str = "copy") -> tuple[Any, Snapshot]:
    """Copy the store; returns a bench over the copy."""
    target = bench.root.with_name(name)
    taken = write_snapshot(bench.config(), target)
    return type(bench)(target), taken


def contents(root: Path) -> dict[Path, str]:
    return {
        path.relative_to(root): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file() and path.name not in ("lock", "abort")
    }


async def read(bench: Any) -> list[bytes]:
    """Open the store, and return the bodies of both queues."""
    store = bench.open()
    bodies = bench.bodies(store, "Topic", 0) + bench.bodies(store, "Topic", 1)
    await store.close()
    return [body[:3] for body in bodies]


EXPECTED = [b"%03d" % number for queue in (0, 1) for number in range(queue, COUNT, 2)]


async def test_nobody_may_read_more_in_a_copy_than_in_the_store(bench: Any) -> None:
    await fill(bench)
    users = bench.root / "config" / "auth.json"
    users.parent.mkdir(exist_ok=True)
    for path in (users, users.with_name("auth.json.bak"), users.with_name("topics.json")):
        path.write_text("{}")
    users.chmod(0o600)
    users.with_name("auth.json.bak").chmod(0o640)
    copy, _ = snapshot(bench)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (copy.root / "config").iterdir()}
    assert modes == {"auth.json": 0o600, "auth.json.bak": 0o640, "topics.json": 0o644}


@pytest.mark.parametrize("close", [True, False])
async def test_the_copy_has_light_queues(bench: Any, close: bool) -> None:
    name = "%LMQ%light"
    store = bench.open(enable_lmq=True, enable_multi_dispatch=True)
    for _ in range(COUNT):
        bench.put(store, properties=f"INNER_MULTI_DISPATCH\x01{name}\x02")
    if close:
        await store.close()
    else:
        store.settle()
    copy, _ = snapshot(bench)
    opened = copy.open()
    assert opened.max_offset(name, 0) == COUNT
    assert opened.get(name, 0, 0, 32).message_count > 1
    await opened.close()
    assert check_store(copy.config()).problems == []


async def test_the_copy_of_a_closed_store_has_everything(bench: Any) -> None:
    await fill(bench)
    before = contents(bench.root)
    copy, taken = snapshot(bench)
    report = check_store(copy.config())
    assert (report.problems, report.state, report.starts) == ([], State.CRASHED, True)
    end = check_store(bench.config()).parts[0].end
    assert (taken.begin, taken.end, taken.left_out) == (0, end, [])
    assert await read(copy) == EXPECTED
    assert contents(bench.root) == before


async def test_the_copy_of_an_open_store_has_what_is_written(bench: Any) -> None:
    store = await fill(bench, close=False)
    store.settle()
    copy, _ = snapshot(bench)
    bench.put(store, "Topic", 0, body=b"later")
    report = check_store(copy.config())
    assert (report.problems, report.starts) == ([], True)
    assert await read(copy) == EXPECTED


async def test_only_what_never_changes_is_shared(bench: Any) -> None:
    await fill(bench)
    copy, taken = snapshot(bench)
    files = sorted((bench.root / "commitlog").iterdir())
    shared = {
        path.relative_to(copy.root)
        for path in copy.root.rglob("*")
        if path.is_file() and path.stat().st_nlink > 1
    }
    assert shared == {Path("commitlog") / path.name for path in files[:-1]}
    assert taken.linked == len(files) - 1 > 3
    # Commit-log files expire by their times.
    for path in files:
        copied = copy.root / "commitlog" / path.name
        assert copied.stat().st_mtime_ns == path.stat().st_mtime_ns


async def test_nothing_is_shared_when_nobody_knows_what_is_flushed(bench: Any) -> None:
    await fill(bench)
    with (bench.root / "checkpoint").open("r+b") as file:
        file.write(b"\1")  # as if another broker had written it
    copy, taken = snapshot(bench)
    assert taken.linked == 0
    assert await read(copy) == EXPECTED


async def test_a_broker_on_the_copy_does_not_change_the_store(bench: Any) -> None:
    await fill(bench)
    copy, _ = snapshot(bench)
    before = contents(bench.root)
    store = copy.open()
    for _ in range(COUNT):
        copy.put(store, "Topic", 0, body=b"x" * 200)
    await store.close()
    assert contents(bench.root) == before


@pytest.mark.parametrize("mended", ["copy", "store"])
async def test_a_repair_of_one_does_not_change_the_other(bench: Any, mended: str) -> None:
    await fill(bench)
    place = bench.segment(FILE).stat().st_size // 2
    with bench.segment(FILE).open("r+b") as file:
        file.seek(place)
        file.write(b"\xff" * 64)
    copy, taken = snapshot(bench)
    assert taken.linked > 3
    one, other = (copy, bench) if mended == "copy" else (bench, copy)
    before = contents(other.root)
    assert repair_store(one.config()).actions
    assert not [each for each in check_store(one.config()).problems if each.part == "commitlog"]
    assert contents(other.root) == before
    assert check_store(other.config()).problems


async def test_a_log_that_is_cut_in_a_shared_file_is_not_cut_in_the_store(bench: Any) -> None:
    """After another broker, whose checkpoint says less, a start takes damage for the end."""
    await fill(bench)
    with bench.segment(FILE).open("r+b") as file:
        file.seek(FILE // 2)
        file.write(b"\xff" * 64)
    copy, _ = snapshot(bench)
    with (copy.root / "checkpoint").open("r+b") as file:
        file.write(struct.pack(">5q", 1, 1, 0, 0, 0).ljust(4096, b"\0"))
    (copy.root / "abort").write_text("1")
    before = contents(bench.root)
    store = copy.open()
    assert store.commit_log.end < 2 * FILE
    copy.put(store, "Topic", 0, body=b"x" * 200)
    await store.close()
    assert contents(bench.root) == before


async def test_a_damaged_end_is_copied_as_it_is(bench: Any) -> None:
    await fill(bench)
    (bench.root / "abort").write_text("1")
    end = check_store(bench.config()).parts[0].end
    assert end is not None
    with bench.segment(end // FILE * FILE).open("r+b") as file:
        file.seek(end % FILE)
        file.write(b"\0\0\0\x60 half of a record")
    copy, _ = snapshot(bench)
    name = f"{end // FILE * FILE:020d}"
    original = (bench.root / "commitlog" / name).read_bytes()
    assert (copy.root / "commitlog" / name).read_bytes() == original
    assert await read(copy) == EXPECTED


async def test_a_queue_file_of_a_terabyte_is_copied_as_it_is(bench: Any) -> None:
    await fill(bench)
    path = sorted((bench.root / "consumequeue" / "Topic" / "0").iterdir())[-1]
    with path.open("r+b") as file:
        file.seek((1 << 40) - 20)
        file.write(b"\1" * 20)
    copy, _ = snapshot(bench)
    with (copy.root / path.relative_to(bench.root)).open("rb") as file:
        assert file.seek(-20, os.SEEK_END) == (1 << 40) - 20
        assert file.read() == b"\1" * 20


async def test_what_is_not_of_a_store_is_left_out(bench: Any) -> None:
    await fill(bench)
    (bench.root / "broker.log").write_text("log")
    (bench.root / "damaged").mkdir()
    (bench.root / "config").mkdir()
    (bench.root / "config" / "topics.json").write_text("{}")
    (bench.root / "config" / "topics.json.bak").write_text("{ }")
    (bench.root / "config" / "draft.json.tmp").write_text("")
    copy, taken = snapshot(bench)
    assert taken.left_out == [str(bench.root / "broker.log")]
    assert sorted(path.name for path in copy.root.iterdir()) == [
        "abort", "checkpoint", "commitlog", "config", "consumequeue", "queuebounds",
    ]  # fmt: skip
    assert sorted(path.name for path in (copy.root / "config").iterdir()) == [
        "topics.json", "topics.json.bak",
    ]  # fmt: skip


async def test_full_index_files_are_shared(bench: Any) -> None:
    await fill(bench, close=False)
    await bench.opened[-1].close()
    small = {"max_index_num": 100}
    shutil.rmtree(bench.root / "index")
    store = bench.open(**small)
    store.start()
    await store.close()
    files = sorted((bench.root / "index").iterdir())
    assert len(files) == 4
    copy, _ = snapshot(bench)
    found = {path.name: path.stat().st_nlink for path in (copy.root / "index").iterdir()}
    assert found == {files[0].name: 2, files[1].name: 2, files[2].name: 1}
    store = copy.open(**small)
    store.start()
    keys = await store.index.query("Topic", "k", 1000, 0, 1 << 60)
    await store.close()
    assert len(keys.records) == 64


def test_a_target_with_anything_in_it_is_refused(bench: Any, tmp_path: Path) -> None:
    (bench.root / "commitlog").mkdir(parents=True)
    target = tmp_path / "full"
    target.mkdir()
    (target / "file").write_text("kept")
    with pytest.raises(TargetNotEmpty, match="not an empty directory"):
        write_snapshot(bench.config(), target)
    assert [path.name for path in target.iterdir()] == ["file"]
    with pytest.raises(TargetNotEmpty, match="lies within"):
        write_snapshot(bench.config(), bench.root / "commitlog" / "copy")


async def test_an_empty_directory_is_a_target(bench: Any) -> None:
    await fill(bench)
    bench.root.with_name("copy").mkdir()
    copy, _ = snapshot(bench)
    assert await read(copy) == EXPECTED


async def test_a_copy_that_fails_leaves_nothing(bench: Any, tmp_path: Path) -> None:
    await fill(bench)
    bench.segment().unlink()
    bench.segment().mkdir()

    with pytest.raises(NotAFile, match="is a directory"):
        snapshot(bench)
    assert os.listdir(tmp_path) == ["store"]


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A directory on another file system."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == Path(tempfile.gettempdir()).stat().st_dev:
        pytest.skip("needs a second file system at /dev/shm")
    directory = Path(tempfile.mkdtemp(dir=memory))
    yield directory
    shutil.rmtree(directory)


async def test_on_another_file_system_everything_is_copied(bench: Any, elsewhere: Path) -> None:
    await fill(bench)
    told: list[int] = []
    taken = write_snapshot(bench.config(), elsewhere / "copy", told.append)
    assert taken.linked == 0
    used = os.listdir(elsewhere / "copy" / "commitlog")
    assert sum(told) == len(used) * FILE
    assert await read(type(bench)(elsewhere / "copy")) == EXPECTED


def test_files_that_expire_meanwhile_are_left_out(tmp_path: Path) -> None:
    """The newest are copied first, so that there is no gap."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    for number in range(5):
        (source / f"{number:020d}").write_bytes(b"content")

    def expiring(path: Path) -> None:
        if path.name.endswith("3"):
            for name in (0, 1, 2):
                (source / f"{name:020d}").unlink()

    CopiedFiles(Files(), lambda _: None).run(source, target, expiring)
    assert sorted(path.name[-1] for path in target.iterdir()) == ["3", "4"]


async def test_progress_is_not_ahead_of_the_log_and_topics_are_not_behind(bench: Any) -> None:
    await fill(bench)
    tables = bench.root / "config"
    tables.mkdir()

    def write(content: str) -> None:
        for name in ("consumerOffset.json", "delayOffset.json", "timercheck", "topics.json"):
            (tables / name).write_text(content)

    write('{"as": "before"}')
    target = bench.root.with_name("copy")
    write_snapshot(bench.config(), target, lambda _: write('{"as": "later"}'))
    found = {path.name: path.read_text() for path in (target / "config").iterdir()}
    assert found.pop("topics.json") == '{"as": "later"}'
    assert set(found.values()) == {'{"as": "before"}'}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux syncs a file system")
def test_many_queues_are_synced_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fsync waits for the disk: thousands of queue files took minutes."""
    synced: list[int] = []
    really = os.fsync

    def counted(number: int) -> None:
        synced.append(number)
        really(number)

    monkeypatch.setattr(os, "fsync", counted)
    counts = []
    for queues in (1, 40):
        made = MadeStore(tmp_path / f"store{queues}")
        for queue_id in range(queues):
            made.put("orders", queue_id)
        made.write()
        synced.clear()
        taken = write_snapshot(
            StoreConfig(store_path_root_dir=str(made.root)), tmp_path / f"copy{queues}"
        )
        assert taken.copied > queues
        counts.append(len(synced))
    assert counts[0] == counts[1]


def test_a_tree_is_synced_with_all_that_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "file").write_bytes(b"x")
    sync_tree(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync_tree(tmp_path / "gone")
