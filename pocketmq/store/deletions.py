"""Remembers which topics and groups were deleted: traces of them are found for a while."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from pocketmq.store.config_file import DELETED_TOPICS, ConfigFile

MOST_DELETED: Final = 10_000
"""Deleted names that are remembered."""


def note_deleted(deleted: dict[str, int], name: str, until: int) -> None:
    """Note in `deleted` that what is before `until` is deleted: the messages of a topic before that
    physical offset, or a group up to that time. The name that was deleted longest ago makes room.
    """
    deleted.pop(name, None)  # to the end
    if len(deleted) >= MOST_DELETED:
        del deleted[next(iter(deleted))]
    deleted[name] = until


def read_deleted_topics(root: Path) -> dict[str, int]:
    """Return the topics of a store that topics.json says were deleted, with the physical offset
    before which all their messages are; none where it cannot be read. Blocks."""
    document = ConfigFile(root / "config" / "topics.json", "topics").peek()
    try:
        return msgspec.convert(document.get(DELETED_TOPICS, {}), dict[str, int])
    except msgspec.ValidationError:
        return {}
