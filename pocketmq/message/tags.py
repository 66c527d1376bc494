"""Tag hashes as consume queues hold them, and tag expressions as consumers subscribe with them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

SUBSCRIBE_ALL: Final = "*"

# java.lang.String.trim() cuts every character up to and including the blank, and no other.
_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))


#: Characters and tags of a subscription. RocketMQ has no limits of its own; these are far above
#: what applications use, and bound the time and the memory that one expression takes.
MAX_LENGTH: Final = 64 * 1024
MAX_TAGS: Final = 2048


class TagExpressionError(ValueError):
    """A subscription expression that names no tag, or too many."""


#: Characters of a text whose hash is remembered: those of longer ones, as only a peer that wants to
#: fill the memory sends, are computed each time.
MAX_REMEMBERED: Final = 64


def tag_hash(tag: str) -> int:
    """Return the hash Java's `String.hashCode` gives `tag`, signed 32 bits; 0 for no tag ("").

    Consume queues store it sign-extended to 64 bits.
    """
    return _hash_of_usual(tag) if len(tag) <= MAX_REMEMBERED else string_hash(tag)


def string_hash(text: str) -> int:
    """Java's `String.hashCode`, signed 32 bits.

    It runs over UTF-16 code units: characters outside the basic plane count as two.
    """
    value = 0
    if text.isascii():  # takes half of the time
        for unit in text.encode():
            value = (31 * value + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for at in range(0, len(units), 2):
            value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


# Applications use a handful of tags, so nearly every call is a hit.
_hash_of_usual = lru_cache(maxsize=2048)(string_hash)


class TagExpression:
    """A subscription such as `"TagA || TagB"`, or `"*"` (also `""`) for every message.

    Attributes:
        text: the expression, `"*"` when it takes every message.
        tags: the tags it names; empty when it takes every message.
        codes: their hashes. Different tags may share one, so a matching code only means "perhaps":
            the reader of the record compares the tag itself.

    Raises:
        TagExpressionError: the text has only separators and blanks, or is above a limit.
    """

    __slots__ = ("codes", "tags", "text")

    text: str
    tags: frozenset[str]
    codes: frozenset[int]

    def __init__(self, text: str | None = SUBSCRIBE_ALL) -> None:
        if text is not None and (len(text) > MAX_LENGTH or text.count("||") >= MAX_TAGS):
            raise TagExpressionError(
                f"a subscription of {len(text)} characters and {text.count('||') + 1} tags: "
                f"{MAX_LENGTH} and {MAX_TAGS} are allowed"
            )
        trimmed = (text or "").strip(_JAVA_BLANKS)
        if trimmed in ("", SUBSCRIBE_ALL):
            self.text = SUBSCRIBE_ALL
            self.tags = frozenset()
        else:
            names = (part.strip(_JAVA_BLANKS) for part in trimmed.split("||"))
            self.text = trimmed
            self.tags = frozenset(name for name in names if name)
            if not self.tags:
                raise TagExpressionError(f"no tag in the subscription expression {text!r:.100}")
        self.codes = frozenset(map(tag_hash, self.tags))

    @classmethod
    def of(cls, tags: Iterable[str]) -> TagExpression:
        """Return the expression that names exactly `tags`; every message without tags."""
        return cls(" || ".join(sorted(tags)))

    @property
    def matches_all(self) -> bool:
        """True when no tag is asked for, so that messages without one pass as well."""
        return not self.tags

    def matches(self, tag: str | None) -> bool:
        """Return whether a message with this tag is wanted; None or "" means it has none."""
        return not self.tags or tag in self.tags

    def matches_code(self, code: int) -> bool:
        """Return whether an entry of a consume queue with this tags code may be wanted."""
        return not self.codes or code in self.codes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TagExpression) and self.tags == other.tags

    def __hash__(self) -> int:
        return hash(self.tags)

    def __repr__(self) -> str:
        return f"TagExpression({self.text!r})"
