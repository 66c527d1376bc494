"""The files of a broker's id, and crashes at every point."""

from __future__ import annotations

from pathlib import Path

import pytest

from pocketmq.broker.controller.identity_file import (
    Application,
    GroupIdentity,
    IdentityFile,
    IdentityUnusable,
)

CODE = "127.0.0.1:10911;1795590697000"


def test_the_files_are_the_official_ones(tmp_path: Path) -> None:
    file = IdentityFile(tmp_path, "DefaultCluster", "g")
    assert (file.load(), file.applied()) == (None, None)
    file.apply(Application(2, CODE))
    assert (tmp_path / "brokerIdentity-temp").read_bytes() == f"DefaultCluster#g#2#{CODE}".encode()
    assert file.applied() == Application(2, CODE)
    assert file.confirm(2) == GroupIdentity("DefaultCluster", "g", 2)
    assert (tmp_path / "brokerIdentity").read_bytes() == b"DefaultCluster#g#2"
    assert [path.name for path in tmp_path.iterdir()] == ["brokerIdentity"]
    again = IdentityFile(tmp_path, "DefaultCluster", "g")
    assert again.load() == GroupIdentity("DefaultCluster", "g", 2)


def test_a_refused_application_is_forgotten(tmp_path: Path) -> None:
    file = IdentityFile(tmp_path, "c", "g")
    file.apply(Application(2, CODE))
    file.give_up()
    assert file.applied() is None


def test_a_crash_between_the_two_files_keeps_the_id(tmp_path: Path) -> None:
    file = IdentityFile(tmp_path, "c", "g")
    file.apply(Application(2, CODE))
    (tmp_path / "brokerIdentity").write_bytes(b"c#g#2")
    assert file.load() == GroupIdentity("c", "g", 2)


def test_files_that_the_official_broker_left_empty_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "brokerIdentity").write_bytes(b"")
    (tmp_path / "brokerIdentity-temp").write_bytes(b"")
    file = IdentityFile(tmp_path, "c", "g")
    assert (file.load(), file.applied()) == (None, None)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"c#other#1", "of the broker other in c, but brokerName is g"),
        (b"other#g#1", "brokerClusterName c"),
        (b"c#g#0", "count from 1"),
        (b"c#g#-1", "count from 1"),
        (b"c#g#x", "count from 1"),
        (b"c#g#9223372036854775808", "count from 1"),
        (b"c#g", "remove the file"),
        (b"\xff\xfe\x00", "remove the file"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: bytes, fault: str) -> None:
    (tmp_path / "brokerIdentity").write_bytes(content)
    with pytest.raises(IdentityUnusable, match=fault):
        IdentityFile(tmp_path, "c", "g").load()
