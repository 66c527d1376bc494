"""Pages of the tables of topics and groups, by name, as brokers from 5.4 on give them to slaves.

A reader asks for the entries after those that it has, with the version of the table that they are
from, until it has as many as the answers say. One that asks without these fields gets everything.
Reference: TopicConfigManager.subTopicConfigTable.
"""

from __future__ import annotations

from typing import Final, TypeVar

from pocketmq.remoting.bodies.registration import DataVersion
from pocketmq.remoting.errors import BodyError

T = TypeVar("T")

MOST: Final = 2**31 - 1
"""Entries of a page for a reader that does not say how many it takes."""


def page(
    table: dict[str, T], start: int, most: int, version: DataVersion, seen: str | None
) -> dict[str, T]:
    """Return `most` entries of a table from entry `start` on.

    The first ones if the entries before are of another version: `seen`, as JSON, is not `version`.
    There may be one more: official slaves do not ask for the last entry alone, and then delete it.
    """
    if start and not _is_of(version, seen):
        start = 0
    end = start + max(most, 1)
    if end == len(table) - 1:
        end += 1
    if start == 0 and end >= len(table):
        return table
    return {name: table[name] for name in sorted(table)[start:end]}


def _is_of(version: DataVersion, seen: str | None) -> bool:
    try:
        return DataVersion.decode((seen or "").encode()) == version
    except BodyError:
        return False
