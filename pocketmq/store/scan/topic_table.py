"""What the broker of a store has written down about its topics."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pocketmq.message.fastjson import FastjsonError, decode
from pocketmq.message.limits import REVIVE_LOG_PREFIX, SYNC_BROKER_MEMBER_PREFIX


def configured_queues(root: Path) -> dict[str, int]:
    """Return the topics that the broker of the store at `root` knows, which may have no message
    yet, and how many queues each has. Empty where config/topics.json is missing or is not what it
    should be."""
    try:
        table = decode((root / "config" / "topics.json").read_bytes())["topicConfigTable"]
        return {topic: _queues(config) for topic, config in table.items()}
    except (OSError, FastjsonError, KeyError, TypeError, AttributeError):
        return {}


def own_names(topics: Iterable[str]) -> set[str]:
    """Return the names of a broker and of its cluster, from `topics`, the topics it has.

    A broker has a topic with each of the two names, and another one with each name behind a fixed
    prefix.
    """
    prefixes = (REVIVE_LOG_PREFIX, SYNC_BROKER_MEMBER_PREFIX)
    return {
        topic.removeprefix(prefix)
        for topic in topics
        for prefix in prefixes
        if topic.startswith(prefix)
    }


def _queues(config: object) -> int:
    """Of a topic: as many as can be written to or read from."""
    if not isinstance(config, dict):
        return 0
    numbers = (config.get(name) for name in ("readQueueNums", "writeQueueNums"))
    return max((number for number in numbers if isinstance(number, int)), default=0)
