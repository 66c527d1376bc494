"""Cleanup on demand: expired queues (306), queues of unknown topics (316), old log files (329).

Reference: broker AdminBrokerProcessor, DefaultMessageStore.
"""

from __future__ import annotations

import asyncio

from pocketmq.broker.tables.topic_config import TopicConfigs
from pocketmq.message.limits import LIGHT_QUEUE_PREFIX, is_system_topic
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers import Header
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.store.message_store import MessageStore


class CleaningProcessor:
    """Cleaning requests of one broker."""

    def __init__(self, store: MessageStore, topics: TopicConfigs) -> None:
        self._store = store
        self._topics = topics

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the cleaning codes here."""
        dispatcher.register(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, self.expired_queues)
        dispatcher.register(RequestCode.CLEAN_UNUSED_TOPIC, self.unused_topics)
        dispatcher.register(RequestCode.DELETE_EXPIRED_COMMITLOG, self.expired_log)

    async def expired_queues(self, request: Request[Header]) -> Response:
        """Remove the consume queues that have no messages left in the commit log."""
        await self._store.cleanup.delete_expired_queues()
        return Response()

    async def unused_topics(self, request: Request[Header]) -> Response:
        """Remove the consume queues of topics that are not in the topic table."""
        for topic in list(self._store.queues):
            is_light = topic.startswith(LIGHT_QUEUE_PREFIX)
            if not (topic in self._topics.table or is_system_topic(topic) or is_light):
                self._store.delete_topic(topic)
                await asyncio.sleep(0)
        self._store.cleanup.wake()
        return Response()

    def expired_log(self, request: Request[Header]) -> Response:
        """Remove commit-log files older than fileReservedTime, now and in the next rounds of
        cleanup; the answer does not wait for that."""
        self._store.cleanup.order()
        return Response()
