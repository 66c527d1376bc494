"""Mends the broker's tables: from their backups, and the topics from the queues on the disk."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pocketmq.store.check.store_check import table_problem
from pocketmq.store.config import TABLES
from pocketmq.store.config_file import ConfigFile
from pocketmq.store.files import Files

_PERM: Final = 6  # read and write


def mend_tables(directory: Path, aside: Path, files: Files, *, dry_run: bool) -> list[str]:
    """Replace each unreadable table by its backup, or by nothing if the backup is no better; the
    old content goes to `aside`. Returns what was done. Raises OSError."""
    done = []
    for name in TABLES:
        path = directory / name
        backup = path.with_name(name + ".bak")
        if not table_problem(path):
            continue
        usable = backup.exists() and not table_problem(backup) and backup.stat().st_size > 0
        broken = path.exists()
        if not dry_run:
            if broken:
                files.move(path, aside / "config" / name)
            if usable:
                mode = stat.S_IMODE(backup.stat().st_mode)
                files.replace(path, backup.read_bytes(), mode=mode)
            elif backup.exists():
                files.move(backup, aside / "config" / backup.name)
        if usable:
            done.append(f"{path}: taken from {backup.name}")
        else:
            done.append(f"{path}: moved aside, since it cannot be read and has no usable backup")
    return done


def add_topics(
    directory: Path, topics: Mapping[str, int], files: Files, *, dry_run: bool
) -> list[str]:
    """Enter topics, with their numbers of queues, into topics.json. Returns what was done.

    Raises OSError, ConfigFileError.
    """
    if not topics:
        return []
    path = directory / "topics.json"
    if not dry_run:
        file = ConfigFile(path, "topics", files)
        document = file.load()
        table: dict[str, Any] = document.setdefault("topicConfigTable", {})
        for topic, queues in topics.items():
            table[topic] = {
                "order": False,
                "perm": _PERM,
                "readQueueNums": queues,
                "topicFilterType": "SINGLE_TAG",
                "topicName": topic,
                "topicSysFlag": 0,
                "writeQueueNums": queues,
            }
        file.save(document)
    return [
        f"{path}: topic {topic} entered with {queues} queues, as there are on the disk"
        for topic, queues in topics.items()
    ]
