from __future__ import annotations

import os
from pathlib import Path

import pytest

from pocketmq.namesrv.text_file import TextFile


def test_each_text_becomes_the_backup_of_the_next(tmp_path: Path) -> None:
    file = TextFile(tmp_path / "a" / "b" / "some.conf")
    assert file.read() is None
    assert file.read_backup() is None
    file.replace([b"one"])
    assert (file.read(), file.read_backup()) == ("one", None)
    file.replace(["två\n".encode()])
    assert (file.read(), file.read_backup()) == ("två\n", "one")
    file.replace([b"three"])
    assert (file.read(), file.read_backup()) == ("three", "två\n")
    assert sorted(p.name for p in file.path.parent.iterdir()) == ["some.conf", "some.conf.bak"]
    assert file.path.parent.joinpath("some.conf.bak").read_bytes() == "två\n".encode()


def test_a_file_that_only_its_owner_reads_stays_so(tmp_path: Path) -> None:
    file = TextFile(tmp_path / "some.conf")
    file.path.write_text("secret")
    file.path.chmod(0o600)
    file.replace([b"new secret"])
    assert [path.stat().st_mode & 0o777 for path in (file.path, file.backup)] == [0o600] * 2


def test_the_name_of_a_written_file_outlasts_a_power_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = TextFile(tmp_path / "a" / "b" / "some.conf")
    synced: list[tuple[int, str | None]] = []
    fsync = os.fsync

    def note(fd: int) -> None:
        fsync(fd)
        synced.append((os.fstat(fd).st_ino, file.read()))

    monkeypatch.setattr(os, "fsync", note)
    file.replace([b"one"])
    made = (file.path.parent, tmp_path / "a", tmp_path)
    assert {(directory.stat().st_ino, "one") for directory in made} <= set(synced)
    synced.clear()
    file.replace([b"two"])
    assert (file.path.parent.stat().st_ino, "two") in synced
