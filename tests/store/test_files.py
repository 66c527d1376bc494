"""The layer that opens, maps, extends, syncs and removes files."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from pocketmq.store.errors import DiskFull
from pocketmq.store.files import Files, Retirement, make_directories

SIZE = 64 * 1024


@pytest.fixture
def files() -> Files:
    return Files()


def test_a_new_file_is_allocated_and_shared(files: Files, tmp_path: Path) -> None:
    file = files.create(tmp_path / "a" / "b" / "0", 4096, SIZE)
    assert file.path.stat().st_size == SIZE
    assert file.path.stat().st_blocks * 512 >= SIZE
    file.map[10:14] = b"data"
    assert file.path.read_bytes()[8:16] == b"\0\0data\0\0"
    assert bytes(file.view[10:14]) == b"data"
    file.sync()
    assert file.close()
    again = files.open(file.path, 4096, SIZE)
    assert bytes(again.view[10:14]) == b"data"
    assert again.close()


def test_an_existing_file_is_not_overwritten(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "0"
    path.write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        files.create(path, 0, SIZE)
    assert path.read_bytes() == b"mine"


def test_no_room_leaves_nothing_behind(bench: Any, tmp_path: Path) -> None:
    bench.files.full = True
    with pytest.raises(DiskFull, match="No space left") as caught:
        bench.files.create(tmp_path / "0", 0, SIZE)
    assert (caught.value.path, caught.value.size) == (tmp_path / "0", SIZE)
    assert list(tmp_path.glob("0*")) == []


def test_a_file_in_use_is_closed_later(files: Files, tmp_path: Path) -> None:
    file = files.create(tmp_path / "0", 0, SIZE)
    file.map[0:4] = b"held"
    retired = Retirement()
    held = file.view[0:4]
    retired.add(file)
    retired.sweep()
    assert len(retired) == 1
    assert bytes(held) == b"held"
    held.release()
    retired.sweep()
    assert len(retired) == 0
    file.sync()  # does nothing any more


def test_the_mapping_shows_what_was_written(files: Files, tmp_path: Path) -> None:
    file = files.create(tmp_path / "0", 0, SIZE)
    held = file.view[4000:4010]
    file.write(4000, memoryview(b"0123456789"))
    assert bytes(held) == b"0123456789"
    assert file.path.read_bytes() == bytes(4000) + b"0123456789" + bytes(SIZE - 4010)
    held.release()
    assert file.close()


def test_a_short_write_goes_on(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.create(tmp_path / "0", 0, SIZE)
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:3], at))
    file.write(0, memoryview(b"0123456789"))
    assert bytes(file.view[:10]) == b"0123456789"


@pytest.mark.parametrize("start", [0, 1, 5000, SIZE - 1])
def test_wiping_the_tail(files: Files, tmp_path: Path, start: int) -> None:
    file = files.create(tmp_path / "0", 0, SIZE)
    assert not file.has_data(0)
    file.map[:] = b"x" * SIZE
    assert file.has_data(start)
    file.zero_from(start)
    assert not file.has_data(start)
    assert file.path.read_bytes() == b"x" * start + bytes(SIZE - start)
    assert file.close()


def test_wiping_a_large_file_with_little_in_it(files: Files, tmp_path: Path) -> None:
    size = 64 * 1024 * 1024
    file = files.create(tmp_path / "0", 0, size)
    for at in (100, 9_000_000, size - 5):
        file.map[at : at + 5] = b"stale"
    file.zero_from(105)
    assert file.has_data(100)
    assert not file.has_data(105)
    assert file.close()


def test_a_file_system_that_knows_no_holes(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_seek(*_: int) -> int:
        raise OSError(errno.EINVAL, "no SEEK_DATA here")

    file = files.create(tmp_path / "0", 0, SIZE)
    file.map[30_000:30_005] = b"stale"
    monkeypatch.setattr(os, "lseek", no_seek)
    assert file.data_extents(100) == [(100, SIZE)]
    file.zero_from(100)
    assert not file.has_data(0)
    assert file.close()


def test_the_first_sync_of_a_file_includes_the_new_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files()
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync_directory", synced.append)
    file = files.create(tmp_path / "a" / "b" / "0", 0, SIZE)
    file.sync()
    assert set(synced) == {tmp_path, tmp_path / "a", tmp_path / "a" / "b"}
    synced.clear()
    file.sync()
    assert synced == []
    assert file.close()
    assert make_directories(tmp_path / "a" / "b") == ()


def test_directories_are_made_without_a_look_at_those_that_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each queue has some, and a client may create five hundred topics a second."""
    made: list[Path] = []
    mkdir = Path.mkdir

    def noted(self: Path, *arguments: Any, **options: Any) -> None:
        made.append(self)
        mkdir(self, *arguments, **options)

    topic = tmp_path / "topic"
    monkeypatch.setattr(Path, "mkdir", noted)
    monkeypatch.setattr(Path, "exists", lambda self: pytest.fail(f"looks for {self}"))
    assert make_directories(topic / "0") == (topic, tmp_path)
    assert made == [topic / "0", topic, topic / "0"]
    made.clear()
    assert make_directories(topic / "1") == (topic,)
    assert made == [topic / "1"]
    (topic / "2").touch()
    with pytest.raises(FileExistsError):
        make_directories(topic / "2")


def test_a_sync_that_failed_is_not_tried_again(bench: Any, tmp_path: Path) -> None:
    """The kernel says only once that data are lost."""
    file = bench.files.create(tmp_path / "0", 0, SIZE)
    bench.files.broken = True
    with pytest.raises(OSError, match=str(file.path)):
        file.sync()
    bench.files.broken = False
    with pytest.raises(OSError, match=str(file.path)):
        file.sync()
    assert file.close()


def test_small_files_are_replaced_whole(bench: Any, tmp_path: Path) -> None:
    files = bench.files
    path, backup = tmp_path / "new" / "table.json", tmp_path / "new" / "table.json.bak"
    assert files.read(path) is None
    files.replace(path, b"one", backup=backup)
    assert not backup.exists()
    files.replace(path, b"two", backup=backup)
    assert (files.read(path), files.read(backup)) == (b"two", b"one")
    bench.files.broken = True
    with pytest.raises(OSError, match="Input/output error"):
        files.replace(path, b"three", backup=backup)
    assert sorted(tmp_path.joinpath("new").iterdir()) == [path, backup]
    assert (files.read(path), files.read(backup)) == (b"two", b"one")
    files.remove(path)
    files.remove(path)
    files.remove_directory(path.parent)
    assert path.parent.exists()  # not empty


def test_a_replaced_file_has_its_name_on_the_disk(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new" / "topics.json"
    synced: list[tuple[Path, bool]] = []

    def sync(directory: Path) -> None:
        synced.append((directory, path.exists() and path.read_bytes() == b"two"))

    files.replace(path, b"one")
    monkeypatch.setattr(files, "sync_directory", sync)
    files.replace(path, b"two", backup=path.with_suffix(".bak"))
    assert synced == [(path.parent, True)]
    files.replace(tmp_path / "newer" / "a", b"x")
    assert synced[1:] == [(tmp_path / "newer", True), (tmp_path, True)]


def test_a_replaced_file_that_only_its_owner_reads_stays_so(tmp_path: Path) -> None:
    path, backup = tmp_path / "broker.conf", tmp_path / "broker.conf.bak"
    path.write_text("secret")
    path.chmod(0o600)
    Files().replace(path, b"new secret", backup)
    assert [each.stat().st_mode & 0o777 for each in (path, backup)] == [0o600] * 2
