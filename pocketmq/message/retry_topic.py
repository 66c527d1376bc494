"""Names of the topics to which unacknowledged popped messages return.

A group has one for each of its topics: `%RETRY%group_topic` (v1, the default), or
`%RETRY%group+topic` (v2), where both parts can be told apart. They are not the topic
`%RETRY%group`, which messages sent back by pull consumers go to. Reference: KeyBuilder.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from pocketmq.message.limits import DLQ_PREFIX, RETRY_PREFIX

V1_SEPARATOR: Final = "_"
V2_SEPARATOR: Final = "+"


class TopicKind(IntEnum):
    """The kind of topic that a popped message is in, as receipt handles and answers name it."""

    NORMAL = 0
    RETRY_V1 = 1
    RETRY_V2 = 2


def pop_retry_topic(topic: str, group: str, *, v2: bool) -> str:
    """Return the retry topic of a group for a topic."""
    return f"{RETRY_PREFIX}{group}{V2_SEPARATOR if v2 else V1_SEPARATOR}{topic}"


def kind_of(topic: str) -> TopicKind:
    """Return what kind of topic this is; a `+` tells a v2 name."""
    if not topic.startswith(RETRY_PREFIX):
        return TopicKind.NORMAL
    return TopicKind.RETRY_V2 if V2_SEPARATOR in topic else TopicKind.RETRY_V1


def stored_topic(topic: str, group: str, kind: TopicKind) -> str:
    """Return the topic that a message popped from `topic` is in."""
    if kind is TopicKind.NORMAL:
        return topic
    return pop_retry_topic(topic, group, v2=kind is TopicKind.RETRY_V2)


def normal_topic(topic: str, group: str) -> str:
    """Return the topic that a group's retry topic belongs to; any other name as it is."""
    prefix = f"{RETRY_PREFIX}{group}"
    if topic.startswith((prefix + V1_SEPARATOR, prefix + V2_SEPARATOR)):
        return topic[len(prefix) + 1 :]
    return topic


def topics_of(topic: str, group: str) -> tuple[str, ...]:
    """Return the topics that a group needs permission to read for a message of `topic`: none if it
    failed in the group itself."""
    if topic in (RETRY_PREFIX + group, DLQ_PREFIX + group):
        return ()
    return (normal_topic(topic, group),)
