"""Offsets: the bounds of queues, and the offsets of groups: query, set, reset, clone."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Literal

from pocketmq.client.admin.servers import Servers
from pocketmq.client.consumer.offsets.offset_store import RemoteOffsetStore
from pocketmq.client.errors import IllegalOperation, RemotingError
from pocketmq.client.offsets import check_position
from pocketmq.client.parameters import MOST_OFFSET, store_time, text, whole
from pocketmq.client.validation import check_topic_name, consumer_group
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.offset import ResetOffsetBody
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.admin import GetConsumerConnectionListRequestHeader
from pocketmq.remoting.headers.offset import CloneGroupOffsetRequestHeader, ResetOffsetRequestHeader
from pocketmq.remoting.settings.properties_file import parse_properties


class OffsetAdmin(Servers):
    """Admin's methods for offsets."""

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the oldest offset that is still stored; 0 for an unknown queue."""
        return await self._offsets.min(await self._queue(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the next message; 0 for an unknown queue."""
        return await self._offsets.max(await self._queue(queue))

    async def offset_at(self, queue: MessageQueue, time: datetime) -> int:
        """Return the offset of the first message stored at or after `time`, or the end."""
        timestamp = store_time("time", time)
        return await self._offsets.at_time(await self._queue(queue), timestamp)

    async def earliest_store_time(self, queue: MessageQueue) -> int | None:
        """Return the store time of the oldest message, ms; None if the queue is empty."""
        return await self._offsets.earliest_store_time(await self._queue(queue))

    async def group_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return a consumer group's offset in a queue; None if it has none."""
        return await self._store(group).read(await self._queue(queue))

    async def set_group_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Store a group's offset. A running consumer of the group overwrites it with its own.
        Raises SubscriptionGroupNotExist if the group does not exist."""
        whole("offset", offset, 0, MOST_OFFSET)
        await self._store(group).store(await self._queue(queue), offset)

    async def reset_offsets(
        self, group: str, topic: str, to: datetime | int | Literal["begin", "end"]
    ) -> dict[MessageQueue, int]:
        """Move a group, running or not, to another position in every queue of a topic.

        `to` is a store time, "begin", "end", or a queue offset, which is used for every queue,
        limited to its bounds. A broker with `useServerSideResetOffset=false` can only send a time
        to connected consumers. If none is connected, the offsets are stored at that broker instead.

        Returns:
            The new offsets.

        Raises:
            TopicNotExist: the topic does not exist.
            SubscriptionGroupNotExist: the group does not exist.
            IllegalOperation: `to` is a queue offset, consumers are connected, and the broker can
                only send them a time; nothing has changed.
            TypeError, ValueError: `to` is none of these, or beyond the end of every queue.
        """
        check_topic_name(topic)
        consumer_group(group)
        check_position(to, "to")
        if isinstance(to, int):
            return await self._reset_to(group, topic, to)
        ends = {"begin": 0, "end": -1}
        timestamp = ends[to] if isinstance(to, str) else store_time("to", to)
        header = ResetOffsetRequestHeader(
            topic=self._namespace.wrap(topic),
            group=self._namespace.wrap(consumer_group(group)),
            timestamp=timestamp,
            is_force=True,
        )

        async def reset(name: str, address: str) -> dict[MessageQueue, int]:
            try:
                answers = await self._each(
                    {name: address}, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header
                )
            except RemotingError as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
                return await self._store_reset(group, topic, name, to)
            return ResetOffsetBody.decode(answers[name].body).offset_table

        masters = await self._masters_of(topic)
        tables = await asyncio.gather(*(reset(*master) for master in masters.items()))
        return {
            self._namespace.unwrap_queue(queue): offset
            for table in tables
            for queue, offset in sorted(table.items())
        }

    async def _reset_to(self, group: str, topic: str, offset: int) -> dict[MessageQueue, int]:
        masters = await self._masters_of(topic)
        queues = [queue for queue in await self.queues(topic) if queue.broker_name in masters]
        bounds = [(await self.min_offset(queue), await self.max_offset(queue)) for queue in queues]
        end = max((high for _, high in bounds), default=0)
        if offset > end:
            raise ValueError(
                f"to must be a queue offset up to {end}, where the longest queue of topic {topic} "
                f"ends, not {offset}; pass a time as a datetime"
            )
        table = {
            queue: max(min(offset, high), low)
            for queue, (low, high) in zip(queues, bounds, strict=True)
        }
        tellers = {name for name in masters if not await self._resets_itself(name, masters[name])}
        for name in tellers:
            await self._check_offline(group, name, masters[name])
        for name, address in masters.items():
            for queue in queues:
                if queue.broker_name != name:
                    continue
                if name not in tellers:
                    header = ResetOffsetRequestHeader(
                        topic=self._namespace.wrap(topic),
                        group=self._namespace.wrap(consumer_group(group)),
                        timestamp=-1,
                        is_force=True,
                        queue_id=queue.queue_id,
                        offset=table[queue],
                    )
                    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
                    await self._each({name: address}, code, header)
                else:
                    await self.set_group_offset(group, queue, table[queue])
        return table

    async def _resets_itself(self, name: str, address: str) -> bool:
        """Return whether the broker answers the next pull with the new offset. Others can only send
        a time to connected consumers."""
        settings = await self._each({name: address}, RequestCode.GET_BROKER_CONFIG)
        config = parse_properties(bytes(settings[name].body).decode())
        return config.get("useServerSideResetOffset") == "true"

    async def _check_offline(self, group: str, name: str, address: str) -> None:
        """Raise IllegalOperation if consumers are connected: they would overwrite the offset."""
        header = GetConsumerConnectionListRequestHeader(consumer_group=self._namespace.wrap(group))
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        try:
            await self._each({name: address}, code, header)
        except RemotingError as error:
            if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
            return
        raise IllegalOperation(
            f"broker {name} cannot move the running consumers of group {group} to a queue offset "
            "(useServerSideResetOffset=false): stop them first, or reset to a time",
            name,
        )

    async def clone_offsets(self, source: str, target: str, topic: str | None = None) -> None:
        """Copy the offsets of group `source` to group `target`, in one topic or in all."""
        header = CloneGroupOffsetRequestHeader(
            src_group=self._namespace.wrap(consumer_group(text("source", source))),
            dest_group=self._namespace.wrap(consumer_group(text("target", target))),
            topic=None if topic is None else self._topic(topic),
        )
        masters = await (self._masters() if topic is None else self._masters_of(topic))
        await self._each(masters, RequestCode.CLONE_GROUP_OFFSET, header)

    async def _store_reset(
        self, group: str, topic: str, broker: str, to: datetime | Literal["begin", "end"]
    ) -> dict[MessageQueue, int]:
        table = {}
        for queue in await self.queues(topic):
            if queue.broker_name == broker:
                wrapped = await self._queue(queue)
                table[wrapped] = await self._offsets.resolve(wrapped, to)
                await self._store(group).store(wrapped, table[wrapped])
        return table

    def _store(self, group: str) -> RemoteOffsetStore:
        return RemoteOffsetStore(self._instance, self._namespace.wrap(consumer_group(group)))
