"""The progress of consumer groups: whether a group has consumed all messages it can see."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from pocketmq.broker.broker import Broker
from pocketmq.broker.tables.consumer_groups import Subscription
from pocketmq.client.admin import Admin
from pocketmq.client.consumer.fetch.puller import PullStatus
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.errors import RemotingError, RemotingTimeout
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.running_info import ConsumerRunningInfo

#: Seconds between two checks of a group: the first, and the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.002, 0.05


class GroupProgress:
    """Compares a broker's stored messages with those that the consumers of a group have finished.

    Push consumers are queried (GET_CONSUMER_RUNNING_INFO), so that there is no wait for their next
    commit. For pull consumers, which do not answer that, the committed offsets count.
    """

    def __init__(self, broker: Broker, namesrv: str, reader: str) -> None:
        self._broker = broker
        self._namesrv = namesrv
        self._reader = reader
        self._behind = ""

    def ends(self) -> dict[MessageQueue, int]:
        """The end of each queue that a connected group subscribes to."""
        consumers = self._broker.tables.consumers
        groups = [consumers.get(name) for name in consumers.names()]
        topics = {topic for group in groups if group for topic in group.subscriptions}
        return {queue: end for topic in topics for queue, end in self._queues(topic)}

    async def all_consumed(self, timeout: float) -> bool:
        """Wait until every connected group of push consumers has consumed everything."""
        try:
            async with asyncio.timeout(timeout):
                for group in self._broker.tables.consumers.names():
                    await self._wait(group, only_push=True)
        except TimeoutError:
            return False
        return True

    async def consumed(self, group: str, timeout: float) -> None:
        """Wait until a group has consumed everything; raises TimeoutError, which says what it
        has not. One look is finished in any case: without it there is nothing to say."""
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            async with asyncio.timeout(None) as limit:
                await self._wait(group, only_push=False, looked=lambda: limit.reschedule(deadline))
        except TimeoutError:
            raise TimeoutError(
                f"group {group!r} has not consumed everything within {timeout} s: {self._behind}"
            ) from None

    async def _wait(
        self, group: str, *, only_push: bool, looked: Callable[[], object] = lambda: None
    ) -> None:
        pause = FIRST_PAUSE
        async with (
            Admin(namesrv=self._namesrv) as admin,
            PullConsumer(self._reader, namesrv=self._namesrv) as reader,
        ):
            while behind := await self._look(group, admin, reader, only_push=only_push):
                self._behind = behind
                looked()
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _look(
        self, group: str, admin: Admin, reader: PullConsumer, *, only_push: bool
    ) -> str:
        """Return what the group has not consumed; empty if it has consumed everything."""
        online = self._broker.tables.consumers.get(group)
        if online is None:
            return "" if only_push else "no consumer of the group is connected"
        infos: list[ConsumerRunningInfo] = []
        for client_id in online.client_ids():
            try:
                infos.append(await admin.running_info(group, client_id))
            except RemotingTimeout:
                return f"the consumer {client_id} does not answer"
            except RemotingError:
                pass  # it pulls, or it has just left
        if only_push and not infos:
            return ""
        for topic, subscription in list(online.subscriptions.items()):
            for queue, end in self._queues(topic):
                states = [info.mq_table[queue] for info in infos if queue in info.mq_table]
                if end and infos and not states:
                    return f"no consumer has queue {queue} yet"
                if working := sum(state.cached_msg_count for state in states):
                    return f"consumers have not finished with queue {queue}: {working} to do"
                at = min((state.commit_offset for state in states), default=0)
                if not infos:
                    offsets = self._broker.tables.offsets
                    at = max(offsets.query(group, topic, queue.queue_id), 0)
                if at < end and await self._is_wanted(reader, queue, at, end, subscription):
                    return f"queue {queue} is consumed up to {at} of {end}"
        return ""

    def _queues(self, topic: str) -> Iterator[tuple[MessageQueue, int]]:
        config = self._broker.tables.topics.table.get(topic)
        for queue_id in range(config.read_queue_nums if config else 0):
            queue = MessageQueue(topic, self._broker.config.broker_name, queue_id)
            yield queue, self._broker.store.max_offset(topic, queue_id)

    async def _is_wanted(
        self,
        reader: PullConsumer,
        queue: MessageQueue,
        at: int,
        end: int,
        subscription: Subscription,
    ) -> bool:
        """Return whether the group's filter passes any of these messages: a consumer learns late of
        those that it does not pass."""
        text = subscription.data.sub_string
        if subscription.is_tag and text in ("", "*"):
            return True
        while at < end:
            tags, sql = (text, None) if subscription.is_tag else ("*", text)
            pulled = await reader.pull(queue, at, tags=tags, sql=sql)
            if pulled.status is PullStatus.FOUND:
                return True
            if pulled.next_begin_offset <= at:
                return False
            at = pulled.next_begin_offset
        return False
