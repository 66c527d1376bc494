"""What config/topics.json says of the broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pocketmq.store.scan.records.topic_table import broker_name
from tests.store.made_store import unpack_golden, write

MEMBER = "rmq_sys_SYNC_BROKER_MEMBER_"


def topics(*names: str) -> bytes:
    return json.dumps({"topicConfigTable": {name: {} for name in names}}).encode()


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_official_stores_name_their_broker(name: str, tmp_path: Path) -> None:
    assert broker_name(unpack_golden(name, tmp_path)) == "golden"


def test_the_first_name_counts(tmp_path: Path) -> None:
    table = topics("T", MEMBER, f"{MEMBER}new", f"{MEMBER}old")
    write(tmp_path / "config" / "topics.json", table)
    assert broker_name(tmp_path) == "new"


@pytest.mark.parametrize("broken", [None, b"", b"{", topics("T")])
def test_the_backup_tells_the_name(broken: bytes | None, tmp_path: Path) -> None:
    write(tmp_path / "config" / "topics.json.bak", topics(f"{MEMBER}broker-a"))
    if broken is not None:
        write(tmp_path / "config" / "topics.json", broken)
    assert broker_name(tmp_path) == "broker-a"


def test_the_directory_has_the_name_of_last_resort(tmp_path: Path) -> None:
    root = tmp_path / "broker-b"
    root.mkdir()
    assert broker_name(root) == "broker-b"
    (tmp_path / "link").symlink_to(root)
    assert broker_name(tmp_path / "link") == "broker-b"
