"""Finds messages by key, unique key or tags (12) and by physical offset (33), and returns the raw
entries of a consume queue (321).

Reference: broker QueryMessageProcessor, AdminBrokerProcessor.queryConsumeQueue.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables.consumer_filter import ConsumerFilters
from pocketmq.broker.tables.consumer_groups import ConsumerGroups
from pocketmq.broker.tables.topic_config import TopicConfigs
from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.bodies.topic import ConsumeQueueData, QueryConsumeQueueResponseBody
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import (
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from pocketmq.remoting.serving.budget import Budget
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Owner, Request, Response
from pocketmq.store.errors import RecordNotFound
from pocketmq.store.index.message_index import FoundMessages
from pocketmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

#: Memory of the queries by key that wait for their turn, in bytes; `Budget` limits the share of
#: each client. The dispatcher does not count small requests, of which 1,024 of a connection may
#: wait: but the queries of one client wait for each other, on thousands of connections.
MAX_WAITING: Final = 64 << 20
_OVERHEAD: Final = 4 << 10  # bytes of a query of the usual size
BY_TAGS: Final = "T"
#: The official broker answers 321 with this remark.
UNSET_REMARK: Final = "not set any response code"
_MOST_ENTRIES: Final = 2_000  # of a consume queue in one answer (6 ms); mqadmin requests 10


class MessageQueryProcessor:
    """Message lookups of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicConfigs,
        consumers: ConsumerGroups,
        filters: ConsumerFilters,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._consumers = consumers
        self._filters = filters
        # One query of a user at an address at a time: a client can make chains of the index long,
        # and the queries of the others would wait for all of its own.
        self._turns: WeakValueDictionary[Owner, asyncio.Lock] = WeakValueDictionary()
        self._waiting = Budget(MAX_WAITING, "queries by key", "bytes", LimitedLog(log))

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the lookup codes here."""
        dispatcher.register(RequestCode.QUERY_MESSAGE, self.query, QueryMessageRequestHeader)
        dispatcher.register(
            RequestCode.VIEW_MESSAGE_BY_ID, self.view_by_id, ViewMessageRequestHeader
        )
        dispatcher.register(
            RequestCode.QUERY_CONSUME_QUEUE, self.entries, QueryConsumeQueueRequestHeader
        )

    async def query(self, request: Request[QueryMessageRequestHeader]) -> Response:
        """Return the records of a topic with a key, or with tags, in the order in which they were
        stored."""
        header = request.header
        if header.max_num < 0:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR, f"maxNum is {header.max_num}, it is 0 or more"
            )
        asker = request.owner
        turn = self._turns.get(asker) or self._turns.setdefault(asker, asyncio.Lock())
        size = request.keep() + _OVERHEAD
        if not self._waiting.take(request, size):
            raise RemotingError(ResponseCode.SYSTEM_BUSY, "too many queries by key wait")
        try:
            async with turn:
                found = await self._find(header)
        finally:
            self._waiting.give_back(request, size)
        answer = QueryMessageResponseHeader(
            index_last_update_timestamp=found.last_timestamp,
            index_last_update_phyoffset=found.last_offset,
        )
        if found.records:
            return Response(header=answer, body=found.records)
        return Response(
            ResponseCode.QUERY_NOT_FOUND,
            "can not find message, maybe time range not correct",
            answer,
        )

    async def _find(self, header: QueryMessageRequestHeader) -> FoundMessages:
        if not self._config.index_file_read_enable:
            return FoundMessages()
        unique = header.unique_key_query
        return await self._store.index.query(
            header.topic,
            header.key,
            self._config.default_query_max_num if unique else header.max_num,
            header.begin_timestamp,
            header.end_timestamp,
            since=self._begin_of(header.topic),
            by_tags=header.index_type == BY_TAGS and not unique,
        )

    def view_by_id(self, request: Request[ViewMessageRequestHeader]) -> Response:
        """Return the record at a physical offset (the second half of an offset message id)."""
        offset = request.header.offset
        try:
            topic = self._store.message_at(offset, check_crc=False).topic
            if request.caller is not None:
                # Check the topic of the record: the client can set any topic in the header.
                request.caller.require_topic(topic, "Get", "Sub")
            if offset >= self._begin_of(topic):
                return Response(body=self._store.record_at(offset))
        except RecordNotFound:
            pass
        return Response(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")

    def _begin_of(self, topic: str) -> int:
        """Return the physical offset at which a topic was created. Earlier messages are of another
        one of its name, whose readers may have been others. Those of a topic that was only deleted
        are still found by their keys, as with the official broker."""
        return 0 if self._topics.get(topic) is None else self._topics.created(topic)

    def entries(self, request: Request[QueryConsumeQueueRequestHeader]) -> Response:
        """Return up to `count` entries of a consume queue from the queue offset `index` on."""
        header = request.header
        place = f"{header.queue_id}@{header.topic}"
        queue = self._store.queues.get(header.topic, {}).get(header.queue_id)
        if queue is None:
            return Response(ResponseCode.SYSTEM_ERROR, f"{place} is not exist!")
        if not queue.min_offset <= header.index < queue.max_offset:
            return Response(remark=f"Index {header.index} of {place} is not exist!")
        body = QueryConsumeQueueResponseBody(
            max_queue_index=queue.max_offset,
            min_queue_index=queue.min_offset,
            queue_data=[
                ConsumeQueueData(physic_offset=physical, physic_size=size, tags_code=code)
                for physical, size, code in queue.read(
                    header.index, max(0, min(header.count, _MOST_ENTRIES))
                )
            ],
        )
        if header.consumer_group is not None:
            self._add_subscription(body, header.consumer_group, header.topic)
        return Response(remark=UNSET_REMARK, body=body.encode())

    def _add_subscription(
        self, body: QueryConsumeQueueResponseBody, group_name: str, topic: str
    ) -> None:
        group = self._consumers.get(group_name)
        subscription = group.subscriptions.get(topic) if group is not None else None
        if subscription is None:
            body.filter_data = f"{group_name}@{topic} is not online!"
        else:
            body.subscription_data = subscription.data
            known = self._filters.get(group_name, topic)
            fields = known.fields() if known is not None else None
            # JSON text as a string in the JSON answer, as from the official broker.
            body.filter_data = msgspec.json.encode(fields).decode()
