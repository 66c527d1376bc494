"""The hash by which an index finds the messages of a key."""

from __future__ import annotations

from typing import Final

from pocketmq.message.tags import string_hash

TAG_MARK: Final = "T#"
"""Before the tags of a message, which are entered as one key. Releases before 5.4 do not."""


def key_hash(topic: str, key: str) -> int:
    """Return the hash under which a topic's key is entered.

    It is not negative: it is folded as in the reference.
    """
    value = abs(string_hash(f"{topic}#{key}"))
    return 0 if value == 2**31 else value
