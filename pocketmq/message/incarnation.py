"""The incarnation of a topic on a broker: where in the commit log the topic was created.

A topic that is deleted and recreated shares only its name with the previous one. Their messages
have the same queue offsets, but not the same physical offsets: each message of the new topic is at
or after the physical offset at which the log ended when that topic was created. So two integers
tell which of them a record belongs to, without a clock.

The broker keeps the offset among the topic's attributes, in topics.json and in the answers about
the topic, but not where an official slave asks for all topics. Slaves have the offsets of their
master. Official brokers keep attributes that they do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

OWN_ATTRIBUTES: Final = "pocketmq."
"""How the names of attributes begin that only pocketmq has."""
CREATED_OFFSET: Final = "pocketmq.created.offset"
"""Attribute: the physical offset at which the commit log ended when the topic was created."""
CREATED_TIME: Final = "pocketmq.created.time"
"""Attribute: the broker's time (Unix ms) at that moment, for people."""


def created_offset(attributes: Mapping[str, str]) -> int:
    """Return the physical offset from which on a topic's messages lie in the commit log.

    It differs for each incarnation that has messages. 0 for a topic of an official broker or of an
    older store: it counts as always existing.
    """
    return _number(attributes.get(CREATED_OFFSET))


def created_time(attributes: Mapping[str, str]) -> int:
    """Return when a topic was created, in Unix ms; 0 if that is not known."""
    return _number(attributes.get(CREATED_TIME))


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 19 else 0
