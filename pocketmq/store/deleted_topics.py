"""Remembers topics that were deleted: their messages stay in the commit log for a while."""

from __future__ import annotations

from typing import Final

MOST_DELETED: Final = 10_000
"""Deleted topics that are remembered."""


def note_deleted(deleted: dict[str, int], topic: str, end: int) -> None:
    """Note in `deleted` that all messages of a topic before the physical offset `end` are deleted.
    The topic that was deleted longest ago makes room."""
    deleted.pop(topic, None)  # to the end
    if len(deleted) >= MOST_DELETED:
        del deleted[next(iter(deleted))]
    deleted[topic] = end
