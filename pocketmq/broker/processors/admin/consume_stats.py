"""Admin requests about the progress of consumer groups (208, 300, 303, 308, 317, 343).

Reference: broker AdminBrokerProcessor, ConsumerOffsetManager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.processors.admin.topic import ends_step
from pocketmq.broker.statistics.statistics import MINUTE, Statistics
from pocketmq.broker.tables.consumer_groups import ConsumerGroups
from pocketmq.broker.tables.consumer_offset import ConsumerOffsets
from pocketmq.broker.tables.subscription_group import SubscriptionGroups
from pocketmq.broker.tables.topic_config import TopicConfigs
from pocketmq.message import fastjson
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.consumer import ConsumeStats, OffsetWrapper
from pocketmq.remoting.bodies.offset import QueryCorrectionOffsetBody
from pocketmq.remoting.bodies.table import GroupList
from pocketmq.remoting.bodies.topic import QueueTimeSpan, TopicList
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.frames.frame import MAX_FRAME
from pocketmq.remoting.headers import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.long_requests import LongRequests, Steps
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.store.message_store import MessageStore

NO_CORRECTION: Final = 2**63 - 1


class ConsumeStatsProcessor:
    """Requests about the progress of groups. `address` is the broker's, `clock` gives ms."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        consumers: ConsumerGroups,
        offsets: ConsumerOffsets,
        statistics: Statistics,
        address: str,
        clock: Callable[[], int],
        long: LongRequests,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._statistics = statistics
        self._address = address
        self._clock = clock
        self._long = long

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the codes about progress here."""
        for code, handler, header in (
            (RequestCode.GET_CONSUME_STATS, self.of_group, GetConsumeStatsRequestHeader),
            (RequestCode.GET_BROKER_CONSUME_STATS, self.of_all, GetConsumeStatsInBrokerHeader),
            (RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, self.groups_of,
             QueryTopicConsumeByWhoRequestHeader),
            (RequestCode.QUERY_TOPICS_BY_CONSUMER, self.topics_of,
             QueryTopicsByConsumerRequestHeader),
            (RequestCode.QUERY_CONSUME_TIME_SPAN, self.time_span,
             QueryConsumeTimeSpanRequestHeader),
            (RequestCode.QUERY_CORRECTION_OFFSET, self.correction, QueryCorrectionOffsetHeader),
        ):  # fmt: skip
            dispatcher.register(code, handler, header)

    async def of_group(self, request: Request[GetConsumeStatsRequestHeader]) -> Response:
        """Return a group's progress in each queue of its topics on this broker."""
        return await self._long.run(request, self._of_group(request))

    def _of_group(self, request: Request[GetConsumeStatsRequestHeader]) -> Steps[Response]:
        header = request.header
        group = header.consumer_group
        # The rule of this code checks `topic`. A list may be long, so it is checked in steps.
        caller = request.caller if header.topic_list else None
        if header.topic_list:
            names = [name for name in header.topic_list.split(";") if name]
        else:
            names = [header.topic] if header.topic else sorted(self._offsets.topics_of(group))
            names = [name for name in names if self._subscribes(group, name)]
        tps = 0.0
        answer = _Pieces()
        for name in names:
            if caller is not None:
                caller.require_topics((name,), "Get")
            topic = self._topics.get(name)
            if topic is not None and self._topics.is_served(name):
                stats = yield from self._stats(group, name, topic.read_queue_nums)
                answer.add((yield from _table_of(stats))[1:-1])
                tps += stats.consume_tps
            yield
        table = msgspec.Raw(b"{%b}" % b",".join(filter(None, answer.pieces)))
        return Response(body=fastjson.encode({"consumeTps": tps, "offsetTable": table}))

    async def of_all(self, request: Request[GetConsumeStatsInBrokerHeader]) -> Response:
        """Return the progress of every configured group, by topic; with `is_order`, of ordered
        topics only.
        """
        return await self._long.run(request, self._of_all(is_order=request.header.is_order))

    def _of_all(self, *, is_order: bool) -> Steps[Response]:
        diff = inflight = 0
        by_group: dict[str, list[msgspec.Raw]] = {}
        answer = _Pieces()
        for group in list(self._groups.table):
            by_group[group] = []
            for name in sorted(self._offsets.topics_of(group)):
                topic = self._topics.get(name)
                if topic is None or not self._subscribes(group, name):
                    continue
                if is_order and not topic.order:
                    continue
                if not self._topics.is_served(name):
                    continue
                stats = yield from self._stats(group, name, topic.write_queue_nums)
                text = fastjson.encode(
                    {
                        "consumeTps": stats.consume_tps,
                        "offsetTable": msgspec.Raw((yield from _table_of(stats))),
                    }
                )
                by_group[group].append(msgspec.Raw(answer.add(text)))
                for queue in stats.offset_table.values():
                    diff += queue.broker_offset - queue.consumer_offset
                    inflight += queue.pull_offset - queue.consumer_offset
                yield
            yield
        body = {
            "brokerAddr": self._address,
            "consumeStatsList": [{group: stats} for group, stats in by_group.items()],
            "totalDiff": diff,
            "totalInflightDiff": inflight,
        }
        return Response(body=msgspec.json.encode(body))

    def groups_of(self, request: Request[QueryTopicConsumeByWhoRequestHeader]) -> Response:
        """Return the groups that are online for a topic, or have committed offsets in it."""
        name = request.header.topic
        groups = self._consumers.groups_of_topic(name) | self._offsets.groups_of(name)
        return Response(body=GroupList(group_list=sorted(groups)).encode())

    def topics_of(self, request: Request[QueryTopicsByConsumerRequestHeader]) -> Response:
        """Return the topics in which a group has committed offsets."""
        names = sorted(self._offsets.topics_of(request.header.group))
        return Response(body=TopicList(broker_addr=self._address, topic_list=names).encode())

    async def time_span(self, request: Request[QueryConsumeTimeSpanRequestHeader]) -> Response:
        """Return the store times of each queue's first, last and last consumed message, and the
        delay."""
        return await self._long.run(request, self._time_spans(request.header))

    def _time_spans(self, header: QueryConsumeTimeSpanRequestHeader) -> Steps[Response]:
        topic = self._topics.check_served(header.topic)
        if topic is None:
            return Response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        spans = []
        for queue_id in range(topic.write_queue_nums):
            span = self._time_span(header.group, header.topic, queue_id)
            spans.append(fastjson.encode(span))
            if ends_step(queue_id):
                yield
        body = {"consumeTimeSpanSet": msgspec.Raw(b"[%b]" % b",".join(spans))}
        return Response(body=fastjson.encode(body))

    async def correction(self, request: Request[QueryCorrectionOffsetHeader]) -> Response:
        """Return for each queue of a topic the lowest offset of all groups except the filtered
        ones.

        If the compared group has a lower offset, there is nothing to correct, and the result is the
        highest number. The reference also deletes the offsets of the filtered groups; this broker
        keeps them.
        """
        return await self._long.run(request, self._corrections(request.header))

    def _corrections(self, header: QueryCorrectionOffsetHeader) -> Steps[Response]:
        left_out = set((header.filter_groups or "").split(","))
        lowest: dict[int, int] = {}
        committed = (
            each
            for group in self._offsets.groups_of(header.topic) - left_out
            for each in list(self._offsets.offsets(group, header.topic).items())
        )
        for number, (queue_id, offset) in enumerate(committed):
            if offset >= self._store.min_offset(header.topic, queue_id):
                lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
            if ends_step(number):
                yield
        compared = self._offsets.offsets(header.compare_group, header.topic)
        for queue_id, offset in compared.items():
            if lowest.get(queue_id, NO_CORRECTION) > offset:
                lowest[queue_id] = NO_CORRECTION
        return Response(body=QueryCorrectionOffsetBody(correction_offsets=lowest).encode())

    def _subscribes(self, group: str, topic: str) -> bool:
        """Return False if the group is online without subscribing to this topic: then its old
        offsets are hidden."""
        online = self._consumers.get(group)
        return online is None or not online.subscriptions or topic in online.subscriptions

    def _stats(self, group: str, topic: str, queues: int) -> Steps[ConsumeStats]:
        rates = self._statistics.item("GROUP_GET_NUMS", f"{topic}@{group}", MINUTE)
        table = {}
        for queue_id in range(queues):
            queue = MessageQueue(topic, self._config.broker_name, queue_id)
            table[queue] = self._progress(group, topic, queue_id)
            if ends_step(queue_id):
                yield
        return ConsumeStats(consume_tps=rates.tps if rates else 0.0, offset_table=table)

    def _progress(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        consumed = max(self._offsets.query(group, topic, queue_id), 0)
        last = self._store.store_time_at(topic, queue_id, consumed - 1) if consumed else 0
        return OffsetWrapper(
            broker_offset=self._store.max_offset(topic, queue_id),
            consumer_offset=consumed,
            pull_offset=max(consumed, self._offsets.query_pulled(group, topic, queue_id)),
            last_timestamp=max(last, 0),
        )

    def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        store = self._store
        first = store.earliest_store_time(topic, queue_id)
        end = store.max_offset(topic, queue_id)
        consumed = self._offsets.query(group, topic, queue_id)
        delay = 0
        if consumed < end:
            delay = self._clock() - store.store_time_at(topic, queue_id, max(consumed, 0))
        return QueueTimeSpan(
            consume_time_stamp=store.store_time_at(topic, queue_id, consumed - 1)
            if consumed > 0
            else first,
            delay_time=delay,
            max_time_stamp=store.store_time_at(topic, queue_id, end - 1),
            message_queue=MessageQueue(topic, self._config.broker_name, queue_id),
            min_time_stamp=first,
        )


def _table_of(stats: ConsumeStats) -> Steps[bytes]:
    return bytes((yield from fastjson.encode_steps(stats.offset_table)))


class _Pieces:
    """The pieces of a long answer."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> bytes:
        """Add one. Raises RemotingError if they do not fit into a frame."""
        self._size += len(piece) + 1
        if self._size > MAX_FRAME:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR,
                f"the answer would have more than {MAX_FRAME} bytes: ask for single topics",
            )
        self.pieces.append(piece)
        return piece
