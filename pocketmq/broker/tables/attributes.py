"""Attributes: the free-form settings of topics and, from 5.4 on, of consumer groups.

An admin changes them with `+key=value` and `-key` entries, separated by commas. Reference:
common AttributeParser, AttributeUtil, TopicAttributes, SubscriptionGroupAttributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

MESSAGE_TYPES: Final = (
    "UNSPECIFIED",
    "NORMAL",
    "FIFO",
    "DELAY",
    "TRANSACTION",
    "MIXED",
    "PRIORITY",
    "LITE",
)
"""Values of message.type. PRIORITY is of 5.4; LITE is of 5.5, and has no effect here."""
MESSAGE_TYPE: Final = "message.type"
PRIORITY_FACTOR: Final = "priority.factor"
FULL_PRIORITY: Final = 100
LONGEST_LITE: Final = 30 * 24 * 60
"""Minutes after which a lite topic expires, at most."""


class AttributeChangeError(ValueError):
    """A change of attributes is malformed or not allowed; the text says which and why."""


class Attribute(NamedTuple):
    """What an attribute may be."""

    changeable: bool
    check: Callable[[str], str | None]  # returns why a value is not allowed, or None


def _one_of(*allowed: str) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        return None if value in allowed else f"value {value} is not in set: {', '.join(allowed)}"

    return check


def _served_only_as(value_served: str, what: str) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        return None if value == value_served else f"{what} are not supported by this broker"

    return check


def _within(least: int, most: int = 2**63 - 1) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        try:
            number = int(value) if value.isascii() and len(value) < 21 else most + 1
        except ValueError:
            number = most + 1
        return None if least <= number <= most else f"value is not in range({least}, {most})"

    return check


def _boolean(value: str) -> str | None:
    return None if value.lower() in ("true", "false") else "boolean attribute format is wrong."


def _any(value: str) -> str | None:
    return None


def _never(reason: str) -> Callable[[str], str | None]:
    return lambda value: reason


OF_TOPICS: Final[Mapping[str, Attribute]] = {
    "queue.type": Attribute(False, _served_only_as("SimpleCQ", "batch consume queues")),
    "cleanup.policy": Attribute(False, _served_only_as("DELETE", "compaction topics")),
    MESSAGE_TYPE: Attribute(True, _one_of(*MESSAGE_TYPES)),
    "lite.topic.expiration": Attribute(True, _within(-1, LONGEST_LITE)),
    "reserve.time": Attribute(True, _never("Update topic reserveTime not supported")),
}

OF_GROUPS: Final[Mapping[str, Attribute]] = {
    PRIORITY_FACTOR: Attribute(True, _within(0, FULL_PRIORITY)),
    "lite.bind.topic": Attribute(True, _any),
    "lite.sub.model": Attribute(True, _one_of("Shared", "Exclusive")),
    "lite.sub.reset.offset.exclusive": Attribute(True, _boolean),
    "lite.sub.reset.offset.unsubscribe": Attribute(True, _boolean),
    "lite.sub.client.quota": Attribute(True, _within(-1)),
    "lite.sub.client.max.event.cnt": Attribute(True, _within(10)),
    "lite.sub.wildcard": Attribute(True, _any),
}
"""All but the first are kept for members and tools of later releases, without an effect here."""


def priority_factor(attributes: Mapping[str, str]) -> int:
    """Return the share (%) of a group's pops that read topics of priority messages by priority."""
    try:
        return int(attributes[PRIORITY_FACTOR])
    except (KeyError, ValueError):
        return FULL_PRIORITY


def parse_changes(text: str) -> dict[str, str]:
    """Parse `"+a=1,-b"` into `{"+a": "1", "-b": ""}`. Raises AttributeChangeError."""
    changes: dict[str, str] = {}
    for entry in text.split(",") if text else ():
        key, equals, value = entry.partition("=")
        if not key.startswith("+" if equals else "-"):
            wanted = "add/alter" if equals else "delete"
            raise AttributeChangeError(f"{wanted} attribute format is wrong: {key}")
        if key in changes:
            raise AttributeChangeError(f"key duplication: {key}")
        changes[key] = value
    return changes


def apply_changes(
    current: Mapping[str, str] | None,
    changes: Mapping[str, str],
    known: Mapping[str, Attribute] = OF_TOPICS,
) -> dict[str, str]:
    """Return the attributes after `changes`; `current` is None for what is being created.

    Raises AttributeChangeError.
    """
    result = dict(current or {})
    seen: set[str] = set()
    for signed, value in changes.items():
        sign, key = signed[:1], signed[1:]
        if sign not in ("+", "-") or not key or "+" in key or "-" in key:
            raise AttributeChangeError(f"wrong format key: {signed}")
        if key in seen:
            raise AttributeChangeError(f"alter duplication key. key: {key}")
        seen.add(key)
        attribute = known.get(key)
        if attribute is None:
            raise AttributeChangeError(f"unsupported key: {key}")
        if current is None and sign == "-":
            raise AttributeChangeError(
                f"only add attribute is supported while creating topic. key: {key}"
            )
        if sign == "-" and key not in result:
            raise AttributeChangeError(f"attempt to delete a nonexistent key: {key}")
        if current is not None and not attribute.changeable:
            raise AttributeChangeError(f"attempt to update an unchangeable attribute. key: {key}")
        if sign == "-":
            del result[key]
            continue
        reason = attribute.check(value)
        if reason is not None:
            raise AttributeChangeError(reason)
        result[key] = value
    return result
