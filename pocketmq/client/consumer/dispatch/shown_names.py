"""The application's names of topics and queues."""

from __future__ import annotations

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.namespace import Namespace
from pocketmq.message import properties as names
from pocketmq.message.limits import RETRY_PREFIX
from pocketmq.message.message import MessageQueue


class ShownNames:
    """Removes the namespace, and replaces the retry topic of one group, whose name includes the
    namespace.

    `renames_all`: names differ even for messages that are delivered for the first time.
    """

    def __init__(self, namespace: Namespace, group: str) -> None:
        self.group = namespace.unwrap(group)
        self.renames_all = bool(namespace)
        self._namespace = namespace
        self._retry_topic = RETRY_PREFIX + group

    def topic(self, message: ConsumedMessage) -> str:
        """Return the message's topic; of a redelivered message, its original topic."""
        topic = message.topic
        if topic == self._retry_topic:
            topic = message.properties.get(names.RETRY_TOPIC, topic)
        return self._namespace.unwrap(topic)

    def queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue with the application's topic name."""
        return self._namespace.unwrap_queue(queue) if self.renames_all else queue
