"""What a pull consumer is made of from one start to the next shutdown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from pocketmq.client.consumer.consume_hooks import ConsumeHookList
from pocketmq.client.consumer.consumer_event import ConsumerEvent, ConsumerEventKind, ConsumerEvents
from pocketmq.client.consumer.dispatch.ready_queues import ReadyQueues
from pocketmq.client.consumer.fetch.process_queue import ProcessQueue
from pocketmq.client.consumer.fetch.pull_limiter import PullLimiter, PullLimits
from pocketmq.client.consumer.fetch.puller import Puller
from pocketmq.client.consumer.name_server_patience import patiently
from pocketmq.client.consumer.offsets.committer import Committer
from pocketmq.client.consumer.offsets.offset_store import RemoteOffsetStore
from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.consumer.rebalance.assignment import Assignment, FetchOptions
from pocketmq.client.consumer.rebalance.rebalance import Rebalancer
from pocketmq.client.consumer.rebalance.strategies import average
from pocketmq.client.consumer.subscription import Kind
from pocketmq.client.consumer.trace_sender import TraceSender
from pocketmq.client.errors import RemotingError
from pocketmq.client.instance import ClientInstance
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.log_fields import fields
from pocketmq.client.offsets import QueueOffsets, consume_from_where
from pocketmq.client.options import ClientOptions
from pocketmq.message.message import MessageExt, MessageQueue
from pocketmq.remoting.bodies.heartbeat import ConsumerData

__all__ = ["PullOptions", "PullSession"]

log = logging.getLogger(__name__)


class PullOptions(msgspec.Struct, frozen=True):
    """The options of a PullConsumer, checked; times in seconds. See PullConsumer."""

    group: str
    wire_group: str
    fetch: FetchOptions
    auto_commit_interval: float
    suspend: float
    share_polls: bool
    limits: PullLimits
    start_timeout: float
    trace: bool | str
    on_error: Callable[[MessageQueue, RemotingError], object] | None
    on_event: Callable[[ConsumerEvent], object] | None
    client: ClientOptions


class PullSession:
    """One life of a pull consumer: its connections, queues and offsets.

    A consumer that starts again gets a new one.
    """

    def __init__(
        self,
        options: PullOptions,
        namesrv: str | Sequence[str] | None,
        hooks: ConsumeHookList,
        pauses: Pauses,
    ) -> None:
        self.options = options
        self._pauses = pauses
        #: Whether it ever ran.
        self.begun = False
        group = options.wire_group
        instance = self.instance = ClientInstance(namesrv, **options.client)
        self.store = RemoteOffsetStore(instance, group)
        self.committer = Committer(self.store, group)
        self.offsets = QueueOffsets(instance)
        self._hooks = hooks
        self.trace: TraceSender | None = None
        if options.trace:
            self.trace = TraceSender(options.group, options.trace, namesrv, options.client)
            hooks.append(self.trace.hook)
        limiter = PullLimiter(options.limits)
        self.ready: ReadyQueues[MessageExt] = ReadyQueues(limiter)
        self.puller = Puller(
            instance,
            group,
            MessageExt,
            suspend=options.suspend,
            share_polls=options.share_polls,
            hold_slack=pauses.hold_slack,
        )
        share_again = lambda: self.rebalancer.soon()  # noqa: E731 (it is made below)
        self._events = ConsumerEvents(
            instance, options.group, options.on_event, share_again, options.on_error
        )
        self.assignment = Assignment(
            instance,
            group,
            self.puller,
            self.store,
            limiter,
            options.fetch,
            self.ready.arrived,
            self._events,
            share_again,
            pauses,
        )
        self.rebalancer: Rebalancer = Rebalancer(
            instance,
            group,
            average,
            self._rebalanced,
            self._events.group_changed,
            retry_period=pauses.incomplete_round,
        )
        instance.heartbeat.add_consumer(group, self._describe)
        self.life = Lifecycle(self._connect, self._begin, self._close)

    async def _connect(self) -> None:
        await patiently(self.instance.start, self.options.start_timeout, self.options.group)

    async def _begin(self) -> None:
        self.begun = True
        if self.trace is not None:
            await self.trace.start()
        self.instance.spawn(self.rebalancer.run(), "rebalance")
        if self.options.fetch.commits:
            self.instance.every(self.options.auto_commit_interval, self._commit, "commit")

    async def _close(self) -> None:
        self.assignment.stop()
        self.ready.arrival.set()
        try:
            if self.options.fetch.commits:
                async with asyncio.timeout(self._pauses.last_commit):
                    await self._commit()
        except TimeoutError:
            group = self.options.group
            log.warning(
                "final offset commit of group %s timed out: some messages will be redelivered",
                group,
                extra=fields(group=group),
            )
        finally:
            try:
                if self.trace is not None:
                    await self.trace.shutdown()
                    if self.trace.hook in self._hooks:
                        self._hooks.remove(self.trace.hook)
            finally:
                await self.instance.shutdown()

    async def let_go(self, queues: Sequence[ProcessQueue[MessageExt]]) -> None:
        """Commit what is done of queues that were dropped, with auto_commit."""
        if self.options.fetch.commits:
            await self.committer.commit(queues)

    async def _commit(self) -> None:
        await self.committer.commit(self.assignment.queues)

    async def _rebalanced(self, topic: str, share: Sequence[MessageQueue]) -> bool:
        assignment = self.assignment
        subscription = assignment.subscriptions.get(topic)
        if subscription is None or subscription.kind is not Kind.SHARED or not self.life.running:
            return True
        lost = [queue for queue in assignment.of_topic(topic) if queue not in share]
        gained = [queue for queue in share if queue not in assignment.fetchers]
        if lost or gained:
            group = self.options.group
            log.info(
                "group %s, topic %s: gained %s, lost %s",
                group,
                topic,
                gained,
                lost,
                extra=fields(group=group, topic=topic),
            )
        await self.let_go([assignment.remove(queue) for queue in lost])
        if assignment.subscriptions.get(topic) is not subscription:
            return True  # it was given up in the meantime
        assignment.add_all(gained)
        await assignment.start_all()
        if lost or gained:
            shown = self.instance.namespace.unwrap(topic)
            self._events.tell(ConsumerEventKind.QUEUES_CHANGED, shown)
        return True

    def _describe(self) -> ConsumerData:
        return ConsumerData(
            consume_from_where=consume_from_where(self.options.fetch.start),
            consume_type="CONSUME_ACTIVELY",
            group_name=self.options.wire_group,
            message_model="CLUSTERING",
            subscription_data_set=self.assignment.subscription_data(),
        )
