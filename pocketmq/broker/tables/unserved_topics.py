"""Topics of an official store that this broker does not serve, and why.

Some kinds of topics of the official broker have files or queue numbers with another meaning: batch
consume queues (`queue.type=BatchCQ`), compaction (`cleanup.policy=COMPACTION`), static topics
(config/topicQueueMapping.json). So do light queues (`%LMQ%...`), unless they are switched on.
Requests for their messages and offsets are refused. The files of light queues are kept up to date,
those of the others unchanged for the official broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pocketmq.message.limits import LIGHT_QUEUE_PREFIX
from pocketmq.store.config_file import ConfigFile

#: The only values of these topic attributes that are served.
_SERVED: Final = {"queue.type": "SimpleCQ", "cleanup.policy": "DELETE"}


class UnservedTopics:
    """The unserved topics of one store; `path` is the store's topicQueueMapping.json. Light queues
    are served if it `has_light_queues`."""

    def __init__(self, path: Path, *, has_light_queues: bool) -> None:
        self._path = path
        self._has_light_queues = has_light_queues
        self._static: frozenset[str] = frozenset()

    def load(self) -> None:
        """Read the file, if there is one.

        Raises:
            ConfigFileError: the file is damaged.
        """
        mapping = ConfigFile(self._path, "static topics").load().get("topicQueueMappingInfoMap")
        self._static = frozenset(mapping) if isinstance(mapping, dict) else frozenset()

    def reason(self, name: str, attributes: Mapping[str, str] | None) -> str | None:
        """Return why a topic with these attributes is not served; None if it is served."""
        if attributes:
            for attribute, served in _SERVED.items():
                value = attributes.get(attribute, served)
                if value != served:
                    return f"{attribute}={value}"
        if name in self._static:
            return "it is a static topic"
        if name.startswith(LIGHT_QUEUE_PREFIX) and not self._has_light_queues:
            return "it is a light queue"
        return None
