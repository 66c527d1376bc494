"""The topics of a store that have batch consume queues.

The official broker keeps the queues of such a topic in `batchconsumequeue`, and does not open a
store where a topic has queues of the other kind. Which topics these are is in config/topics.json. A
topic whose messages are only in the commit log so far, as after a crash, has no directory yet.
Reference: QueueTypeUtils, ConsumeQueueStore.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pocketmq.store.config_file import ConfigFile


def batch_topics(root: Path) -> frozenset[str]:
    """Return the names of the topics that have batch consume queues, or must have them.

    Raises:
        ConfigFileError: topics.json is damaged.
    """
    directory = root / "batchconsumequeue"
    present = (path.name for path in directory.iterdir()) if directory.is_dir() else ()
    return frozenset((*present, *_declared(root / "config" / "topics.json")))


def _declared(topics: Path) -> Iterator[str]:
    table = ConfigFile(topics, "kinds of topics").load().get("topicConfigTable")
    for name, topic in table.items() if isinstance(table, dict) else ():
        attributes = topic.get("attributes") if isinstance(topic, dict) else None
        if isinstance(attributes, dict) and attributes.get("queue.type") == "BatchCQ":
            yield name
