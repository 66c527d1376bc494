"""Offsets set by admins: reset (222) and clone (314). They are on the disk when the request is
answered.

There are two kinds of reset. With useServerSideResetOffset, the broker stores the new offsets and
answers the next pull of each queue with them; a held pull is answered at once. Without it, the
broker sends them to the consumers (220), which drop their queues and commit the offsets; without an
online consumer, nothing changes. Reference: broker AdminBrokerProcessor, Broker2Client.resetOffset.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.processors.admin.topic import ends_step
from pocketmq.broker.tables.consumer_groups import ConsumerGroups
from pocketmq.broker.tables.consumer_offset import ConsumerOffsets
from pocketmq.broker.tables.subscription_group import SubscriptionGroups
from pocketmq.broker.tables.topic_config import TopicConfigs
from pocketmq.limited_log import LimitedLog
from pocketmq.message import fastjson
from pocketmq.message.limits import RETRY_PREFIX
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.offset import MessageQueueForC
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingClosed, RemotingError
from pocketmq.remoting.headers import (
    CloneGroupOffsetRequestHeader,
    ResetOffsetRequestHeader,
)
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.long_requests import LongRequests, Steps
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

VERSION_3_0_7: Final = 28  # clients from this version on support a reset

ResetRequest = Request[ResetOffsetRequestHeader]
#: Offsets by queue.
Offsets = Mapping[MessageQueue, int]


class OffsetAdminProcessor:
    """Offset changes of one broker. `wake(topic)` answers the waiting pulls of a topic."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        consumers: ConsumerGroups,
        offsets: ConsumerOffsets,
        wake: Callable[[str], None],
        long: LongRequests,
    ) -> None:
        self._config = config
        self._long = long
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._wake = wake
        self._log = LimitedLog(log)

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the codes that change offsets here."""
        dispatcher.register(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, self.reset, ResetOffsetRequestHeader
        )
        dispatcher.register(
            RequestCode.CLONE_GROUP_OFFSET, self.clone, CloneGroupOffsetRequestHeader
        )

    async def reset(self, request: ResetRequest) -> Response:
        """Reset a group to a time in a topic, or to an offset in one queue."""
        header = request.header
        self._topics.check_served(header.topic)
        if self._config.use_server_side_reset_offset:
            return await self._reset_here(request)
        return await self._long.run(request, self._tell_consumers(header))

    # --- reset by the broker ------------------------------------------------------------------

    async def _reset_here(self, request: ResetRequest) -> Response:
        header = request.header
        topic = self._resettable(header)
        wanted, answer = await self._long.run(request, self._wanted(header, topic))
        if self._resettable(header) != topic:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR,
                f"Topic {header.topic} was changed while its offsets were looked up; try again",
            )
        self._offsets.reset(header.group, header.topic, wanted)
        self._wake(header.topic)
        self._log.info(
            "offsets of group %s in topic %s are reset to %s", header.group, header.topic, wanted
        )
        await self._offsets.saved()
        return Response(body=answer)

    def _resettable(self, header: ResetOffsetRequestHeader) -> TopicConfig:
        topic = self._topics.get(header.topic)
        if topic is None:
            raise RemotingError(
                ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist"
            )
        if not self._groups.exists(header.group):
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist"
            )
        return topic

    def _wanted(
        self, header: ResetOffsetRequestHeader, topic: TopicConfig
    ) -> Steps[tuple[dict[int, int], bytes]]:
        """Return the offsets by queue id, and the answer with them."""
        name = header.topic
        if header.queue_id >= 0:
            offsets = self._wanted_in_queue(header, topic)
        else:
            offsets = {}
            for queue_id in range(topic.read_queue_nums):
                offsets[queue_id] = self._offset_at(name, queue_id, header.timestamp)
                if ends_step(queue_id):
                    yield
        if not offsets:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        return offsets, (yield from _encoded(self._by_queue(name, offsets)))

    def _wanted_in_queue(
        self, header: ResetOffsetRequestHeader, topic: TopicConfig
    ) -> dict[int, int]:
        name = header.topic
        if header.queue_id >= max(topic.read_queue_nums, topic.write_queue_nums):
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR, f"Topic {name} has no queue {header.queue_id}"
            )
        if header.offset is None or header.offset == -1:
            return {header.queue_id: self._offset_at(name, header.queue_id, header.timestamp)}
        low = self._store.min_offset(name, header.queue_id)
        high = self._store.max_offset(name, header.queue_id)
        if not low <= header.offset <= high + 1:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {header.offset} not in consume queue range [{low}-{high}]",
            )
        return {header.queue_id: header.offset}

    def _offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        if timestamp < 0:
            return self._store.max_offset(topic, queue_id)
        return self._store.offset_by_time(topic, queue_id, timestamp)

    # --- reset by the consumers ---------------------------------------------------------------

    def _tell_consumers(self, header: ResetOffsetRequestHeader) -> Steps[Response]:
        group, name = header.group, header.topic
        topic = self._topics.get(name)
        if topic is None:
            raise RemotingError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={name}",
            )
        offsets = {}
        for queue_id in range(topic.write_queue_nums):
            consumed = self._offsets.query(group, name, queue_id)
            if consumed == -1:
                raise RemotingError(
                    ResponseCode.SYSTEM_ERROR, f"The consumer group <{group}> not exist"
                )
            wanted = self._offset_at(name, queue_id, header.timestamp)
            offsets[queue_id] = wanted if header.is_force else min(wanted, consumed)
            if ends_step(queue_id):
                yield
        online = self._consumers.get(group)
        if online is None:
            raise RemotingError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {group} Topic: {name} "
                f"Timestamp: {header.timestamp}",
            )
        of_queues = self._by_queue(name, offsets)
        body = yield from _encoded(of_queues)
        for_cpp: bytes | None = None
        told = ResetOffsetRequestHeader(
            topic=name, group=group, timestamp=header.timestamp, is_force=header.is_force
        )
        for client in online.reachable():
            if client.version < VERSION_3_0_7:
                raise RemotingError(
                    ResponseCode.SYSTEM_ERROR,
                    f"the client does not support this feature. version={client.version}",
                )
            data = body
            if client.language == "CPP":
                if for_cpp is None:
                    for_cpp = yield from _encoded_for_cpp(of_queues)
                data = for_cpp
            # A consumer that disconnects has nothing to reset.
            with contextlib.suppress(RemotingClosed):
                client.connection.send_oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, told, data)
        return Response(body=body)

    def _by_queue(self, topic: str, offsets: Mapping[int, int]) -> Offsets:
        return {
            MessageQueue(topic, self._config.broker_name, queue_id): offset
            for queue_id, offset in offsets.items()
        }

    # --- clone --------------------------------------------------------------------------------

    async def clone(self, request: Request[CloneGroupOffsetRequestHeader]) -> Response:
        """Copy the offsets of another group, in one topic or in all topics of that group.

        Topics that the source group no longer subscribes to are omitted, unless the request says
        that it is offline.
        """
        header = request.header
        source = header.src_group
        named = (header.topic or "").strip()
        topics = {named} if named else self._offsets.topics_of(source)
        online = self._consumers.get(source)
        subscribed = online.subscriptions.keys() if online is not None else ()
        if not named and request.caller is not None:
            # Those that the header does not name. The retry topics of the source belong to it.
            own = RETRY_PREFIX + source
            others = sorted(topic for topic in topics if not topic.startswith(own))
            request.caller.require_topics(others, "Update")
        for topic in topics:
            if self._topics.get(topic) is None:
                self._log.warning(
                    "offsets of group %s in topic %s are not cloned: the topic does not exist",
                    source,
                    topic,
                )
            elif header.offline or not subscribed or topic in subscribed:
                self._offsets.clone(source, header.dest_group, topic)
        await self._offsets.saved()
        return Response()


def _encoded(offsets: Offsets) -> Steps[bytes]:
    """Return a `ResetOffsetBody`."""
    table = yield from fastjson.encode_steps(offsets)
    return fastjson.encode({"offsetTable": table})


def _encoded_for_cpp(offsets: Offsets) -> Steps[bytes]:
    """Return the same in the form that C++ clients read."""
    entries = []
    for queue, offset in offsets.items():
        entry = MessageQueueForC(
            broker_name=queue.broker_name,
            offset=offset,
            queue_id=queue.queue_id,
            topic=queue.topic,
        )
        entries.append(entry.encode())
        if ends_step(queue.queue_id):
            yield
    table = msgspec.Raw(b"[%b]" % b",".join(entries))
    return fastjson.encode({"offsetTable": table})
