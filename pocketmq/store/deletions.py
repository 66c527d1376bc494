"""Remembers which topics and groups were deleted: traces of them are found for a while."""

from __future__ import annotations

from typing import Final

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
