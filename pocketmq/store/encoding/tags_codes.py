"""The tags code of a message from its encoded properties."""

from __future__ import annotations

from typing import Final

from pocketmq.message.properties import TAGS, find
from pocketmq.message.tags import MAX_REMEMBERED, tag_hash

SEPARATOR: Final = 2
TAGS_MARK: Final = b"TAGS\x01"
SEPARATED_TAGS: Final = b"\x02" + TAGS_MARK
MOST_TAGS: Final = 2048

#: Encoded tag → code. Applications use a handful of tags. A peer may send new tags without end, so
#: the table is cleared when it holds `MOST_TAGS`.
known_tags: Final[dict[bytes, int]] = {}


def tags_code(properties: bytes) -> int:
    """Return the tags code of encoded properties. The last TAGS wins, as in the decoded map."""
    at = properties.rfind(TAGS_MARK)
    if at < 0:
        return 0
    if at and properties[at - 1] != SEPARATOR:  # it ends a longer name, or lies in a value
        at = properties.rfind(SEPARATED_TAGS) + 1
        if not at and not properties.startswith(TAGS_MARK):
            return 0
    end = properties.find(SEPARATOR, at)
    tag = properties[at + 5 : end] if end >= 0 else properties[at + 5 :]
    code = known_tags.get(tag)
    return _new_tags_code(tag, properties) if code is None else code


def _new_tags_code(tag: bytes, properties: bytes) -> int:
    if not tag:  # an empty value does not count, but an earlier one may
        return tag_hash(find(str(properties, "utf-8", "replace"), TAGS) or "")
    code = tag_hash(str(tag, "utf-8", "replace"))
    if len(tag) <= MAX_REMEMBERED:
        if len(known_tags) >= MOST_TAGS:
            known_tags.clear()
        known_tags[tag] = code
    return code
