"""The first and last offsets of the queues of running brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pocketmq.client.admin import Admin
from pocketmq.client.consumer.expression import EVERYTHING
from pocketmq.client.consumer.fetch.puller import PullStatus
from pocketmq.client.errors import (
    BrokerNotFound,
    NoPermission,
    RemoteSystemError,
    RequestCodeNotSupported,
    SubscriptionParseFailed,
    TopicNotExist,
)
from pocketmq.client.instance import ClientInstance
from pocketmq.client.record_pulls import RecordPuller
from pocketmq.client.routes.route import MASTER_ID
from pocketmq.message.incarnation import created_offset
from pocketmq.message.limits import clusters_of, is_internal_topic
from pocketmq.message.message import MessageQueue
from pocketmq.spark.options.live_options import LiveOptions
from pocketmq.store.scan.records.pulled import mark_of
from pocketmq.store.scan.records.topic_table import own_names
from pocketmq.store.scan.stream_offsets import Mark, StreamQueue

_AT_ONCE: Final = 32
_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999, the last that Python supports."""


@dataclass(frozen=True, slots=True)
class LiveQueue:
    """A queue of a broker, with records from `min_offset` up to (not including) `max_offset`."""

    broker: str
    topic: str
    queue_id: int
    min_offset: int
    max_offset: int

    @property
    def name(self) -> StreamQueue:
        """The name of the queue, without its offsets."""
        return StreamQueue(self.topic, self.broker, self.queue_id)


class Brokers:
    """The driver's connection to the brokers of a cluster. An async context manager.

    Raises:
        OSError: a file of TLS cannot be read.
    """

    def __init__(self, options: LiveOptions) -> None:
        connection = options.connection
        self._admin = Admin(
            namesrv=connection.namesrv, timeout=options.timeout, **connection.client_options()
        )
        self._options = options
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def __aenter__(self) -> Brokers:
        await self._admin.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._admin.shutdown()

    async def topics(self) -> list[str]:
        """Return the names of all topics, RocketMQ's own included. Raises NoNameServer."""
        return await self._admin.topics()

    async def users_topics(self) -> list[str]:
        """Return the names of the topics that are not RocketMQ's own. Raises NoNameServer."""
        topics = await self.topics()
        clusters, own = clusters_of(topics), own_names(topics)
        return [name for name in topics if not (name in own or is_internal_topic(name, clusters))]

    async def registered(self) -> frozenset[str]:
        """Return the names of the brokers that the name server knows; none if the client may not
        query clusters. Raises NoNameServer."""
        try:
            info = await self._admin.cluster_info()
        except NoPermission:
            return frozenset()
        return frozenset(info.broker_addr_table)

    async def log_begin(self, broker: str) -> int | None:
        """Return the physical offset at which the commit log of a broker begins; None if the client
        may not query the broker's state. Raises RemotingError."""
        try:
            figures = await self._admin.broker_runtime(broker)
        except NoPermission:
            return None
        begin = figures.get("commitLogMinOffset", "")
        return int(begin) if begin.isdecimal() else None

    async def created(self, topics: Iterable[str]) -> dict[tuple[str, str], int]:
        """Return, by topic and broker, the physical offset at which the log ended when the topic
        was created; 0, or nothing, where that is not known, or the client may not query it, or the
        broker is too old for that.

        Raises RemotingError.
        """

        async def ask(topic: str) -> dict[tuple[str, str], int]:
            async with self._gate:
                try:
                    configs = await self._admin.topic_configs(topic)
                except (NoPermission, RequestCodeNotSupported, TopicNotExist):
                    return {}
            return {
                (topic, name): created_offset(config.attributes) for name, config in configs.items()
            }

        answers = await asyncio.gather(*map(ask, topics))
        return {key: offset for answer in answers for key, offset in answer.items()}

    async def queues(self, topics: Iterable[str]) -> list[LiveQueue]:
        """Return the queues of topics in order, including those without messages. A topic that does
        not exist has none.

        Raises:
            BrokerNotFound: a broker of a topic has no master now.
            RemotingError: a broker did not answer in time, or refused.
        """
        found = await asyncio.gather(*map(self._of_topic, sorted(set(topics))))
        queues = [queue for part in found for queue in part]
        return sorted(queues, key=lambda queue: queue.name)

    async def _of_topic(self, topic: str) -> list[LiveQueue]:
        async with self._gate:
            try:
                route = await self._admin.topic_route(topic)
            except TopicNotExist:
                return []
            for data in route.broker_datas:
                if MASTER_ID not in data.broker_addrs:
                    raise BrokerNotFound(
                        data.broker_name,
                        f"the topic {topic} is on the broker {data.broker_name}, which has no "
                        "master now: start it, or name the queues of other brokers with the "
                        "option assign",
                    )
            stats = await self._admin.topic_stats(topic)
        return [
            LiveQueue(
                queue.broker_name, topic, queue.queue_id, bounds.min_offset, bounds.max_offset
            )
            for queue, bounds in stats.offset_table.items()
        ]

    async def stored_from(self, queues: Iterable[LiveQueue], time: int) -> dict[StreamQueue, int]:
        """Return for each queue the offset of the first message stored at a time (ms) or later; the
        end of the queue if there is none."""
        # Add half a millisecond: the float may be slightly less than the time.
        half = timedelta(milliseconds=min(max(time, 0), _LAST_MS), microseconds=500)
        moment = datetime(1970, 1, 1, tzinfo=UTC) + half

        async def ask(queue: LiveQueue) -> tuple[StreamQueue, int]:
            async with self._gate:
                place = MessageQueue(queue.topic, queue.broker, queue.queue_id)
                return queue.name, await self._admin.offset_at(place, moment)

        return dict(await asyncio.gather(*map(ask, queues)))

    async def refusal(self, queue: LiveQueue) -> str | None:
        """Return why a broker refuses to filter the messages of a queue; None if it does not."""
        options = self._options
        async with self._puller() as puller:
            place = MessageQueue(queue.topic, queue.broker, queue.queue_id)
            try:
                await puller.pull(
                    place, queue.min_offset, options.expression, most=1, timeout=options.timeout
                )
            except (RemoteSystemError, SubscriptionParseFailed) as error:
                return str(error)
        return None

    @asynccontextmanager
    async def _puller(self) -> AsyncIterator[RecordPuller]:
        connection = self._options.connection
        instance = ClientInstance(
            connection.namesrv, owner="Spark source", **connection.client_options()
        )
        await instance.start()
        try:
            yield RecordPuller(instance, self._options.group)
        finally:
            await instance.shutdown()

    async def marks(self, places: Mapping[StreamQueue, int]) -> dict[StreamQueue, Mark]:
        """Return the marks of messages at offsets of queues, where brokers have them.

        Raises:
            RemotingError: a broker did not answer in time, or refused.
        """

        async def ask(
            puller: RecordPuller, name: StreamQueue, offset: int
        ) -> tuple[StreamQueue, Mark | None]:
            queue = MessageQueue(name.topic, name.broker, name.queue_id)
            async with self._gate:
                answer = await puller.pull(
                    queue, offset, EVERYTHING, most=1, timeout=self._options.timeout
                )
            if answer.status is not PullStatus.FOUND:
                return name, None
            found = mark_of(answer.records)
            # For an entry without a record, the broker returns the next record.
            return name, found if found.offset == offset else None

        async with self._puller() as puller:
            found = await asyncio.gather(*(ask(puller, *place) for place in places.items()))
        return {name: mark for name, mark in found if mark is not None}
