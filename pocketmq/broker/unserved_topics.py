"""Topics of an official store that this broker does not serve, and why.

The official broker has kinds of topics whose files or queue numbers mean something else: batch
consume queues (`queue.type=BatchCQ`), compaction (`cleanup.policy=COMPACTION`), static topics
(config/topicQueueMapping.json) and the light queues of MQTT (`%LMQ%...`). Sends to them and pulls
from them are refused by name, and their files stay as they are for the official broker.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pocketmq.message.limits import LIGHT_QUEUE_PREFIX
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.store.config_file import ConfigFile

#: Topic attributes and their values that are served; everything else of these is not.
_SERVED: Final = {"queue.type": "SimpleCQ", "cleanup.policy": "DELETE"}


class UnservedTopics:
    """Knows the unserved topics of one store; `path` is the store's topicQueueMapping.json."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._static: frozenset[str] = frozenset()

    def load(self) -> None:
        """Read the file, if there is one.

        Raises:
            ConfigFileError: the file is damaged.
        """
        mapping = ConfigFile(self._path, "static topics").load().get("topicQueueMappingInfoMap")
        self._static = frozenset(mapping) if isinstance(mapping, dict) else frozenset()

    def reason(self, topic: TopicConfig) -> str | None:
        """Say why a topic is not served; None if it is served."""
        if topic.attributes:
            for attribute, served in _SERVED.items():
                value = topic.attributes.get(attribute, served)
                if value != served:
                    return f"{attribute}={value}"
        if topic.topic_name in self._static:
            return "it is a static topic"
        if topic.topic_name.startswith(LIGHT_QUEUE_PREFIX):
            return "it is a light queue"
        return None

    def check(self, topic: TopicConfig) -> None:
        """Refuse a topic that is not served.

        Raises:
            RemotingError: INVALID_PARAMETER, which producers do not retry.
        """
        reason = self.reason(topic)
        if reason is not None:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER,
                f"topic[{topic.topic_name}] is not served by this broker: {reason}; "
                "use an official broker for it",
            )
