"""Remembers which topics and groups were deleted: traces of them are found for a while."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pocketmq.message.fastjson_text import FastjsonError, decode
from pocketmq.store.errors import StoreError
from pocketmq.store.files import read_small

DELETED_TOPICS: Final = "pocketmqDeletedTopics"
"""A key of topics.json that only this broker writes, and the official one ignores: the topics that
were deleted. After a crash the store finds their messages again, as long as the log has them."""
DELETED_GROUPS: Final = "pocketmqDeletedGroups"
"""The same in subscriptionGroup.json, for the groups that were deleted, and when (Unix ms). After a
kill a group may be missing that was in use, too."""
MOST_DELETED: Final = 10_000
"""Deleted names that are remembered."""


def note_deleted(deleted: dict[str, int], name: str, until: int) -> None:
    """Note in `deleted` what is deleted before `until`: the messages of a topic before that
    physical offset, or a group up to that time. The name that was deleted longest ago makes room.
    """
    deleted.pop(name, None)  # to the end
    if len(deleted) >= MOST_DELETED:
        del deleted[next(iter(deleted))]
    deleted[name] = until


def read_deleted_topics(root: Path) -> dict[str, int]:
    """Return the topics of a store that topics.json lists as deleted, each with the physical offset
    before which all its messages are; none if the file cannot be read. Blocks."""
    for name in ("topics.json", "topics.json.bak"):
        try:
            document = decode(read_small(root / "config" / name))
        except (OSError, StoreError, FastjsonError):
            continue
        if isinstance(document, dict):
            deleted = document.get(DELETED_TOPICS)
            names = deleted.items() if isinstance(deleted, dict) else ()
            return {topic: until for topic, until in names if type(until) is int}
    return {}
