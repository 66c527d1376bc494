"""The parts of a pull consumer, from a start to the next shutdown."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from pocketmq.client.consumer.broker_outages import BrokerOutages
from pocketmq.client.consumer.consumer_event import ConsumerEvents
from pocketmq.client.consumer.consumer_options import ConsumerOptions
from pocketmq.client.consumer.dispatch.ready_queues import ReadyQueues
from pocketmq.client.consumer.fetch.process_queue import ProcessQueue
from pocketmq.client.consumer.fetch.pull_limiter import PullLimiter
from pocketmq.client.consumer.fetch.puller import Puller
from pocketmq.client.consumer.offset_requests import OffsetRequests
from pocketmq.client.consumer.offsets.committer import Committer
from pocketmq.client.consumer.offsets.offset_store import RemoteOffsetStore
from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.consumer.rebalance.assignment import Assignment
from pocketmq.client.consumer.rebalance.rebalance import Rebalancer
from pocketmq.client.consumer.rebalance.share_callbacks import ShareCallbacks
from pocketmq.client.consumer.rebalance.strategies import average
from pocketmq.client.consumer.subscription import Kind
from pocketmq.client.consumer.trace_sender import TraceSender
from pocketmq.client.errors import RemotingError
from pocketmq.client.instance import ClientInstance
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.observation.consume_hooks import ConsumeHookList
from pocketmq.client.offsets import QueueOffsets, consume_from_where
from pocketmq.message.message import MessageExt, MessageQueue
from pocketmq.remoting.bodies.heartbeat import ConsumerData

log = logging.getLogger(__name__)


class PullOptions(msgspec.Struct, frozen=True):
    """The checked options of a PullConsumer."""

    common: ConsumerOptions
    on_error: Callable[[MessageQueue, RemotingError], object] | None


class PullSession:
    """One run of a pull consumer: its connections, queues and offsets.

    Each start creates a new one.
    """

    def __init__(
        self,
        options: PullOptions,
        namesrv: str | Sequence[str] | None,
        hooks: ConsumeHookList,
        message_type: type[MessageExt],
        pauses: Pauses,
    ) -> None:
        self.begun = False
        common = self._options = options.common
        self._pauses = pauses
        group = common.wire_group
        instance = self.instance = ClientInstance(
            namesrv,
            owner=common.owner,
            cancel_timeout=pauses.cancelled_handler,
            **common.client,
        )
        outages = BrokerOutages(instance, common.group)
        self.store = RemoteOffsetStore(instance, group)
        self.committer = Committer(self.store, group, outages)
        self.offsets = QueueOffsets(instance)
        self.trace = TraceSender(common, namesrv, hooks)
        limiter = PullLimiter(common.limits)
        self.ready: ReadyQueues[MessageExt] = ReadyQueues(limiter)
        self.puller = Puller(
            instance,
            group,
            message_type,
            suspend=common.suspend,
            share_polls=common.share_polls,
            hold_slack=pauses.hold_slack,
        )
        share_again = lambda: self.rebalancer.soon()  # noqa: E731 (it is made below)
        self._events = ConsumerEvents(
            instance, common.group, common.on_event, share_again, outages, options.on_error
        )
        self.assignment = Assignment(
            instance,
            group,
            self.puller,
            self.store,
            limiter,
            common,
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
            self.committer.group_changed,
            retry_period=pauses.incomplete_round,
        )
        self._callbacks = ShareCallbacks(common, instance.namespace, pauses.share_callback)
        OffsetRequests(instance, group, self.assignment, self.store)
        instance.heartbeat.add_consumer(group, self._describe)
        self.life = Lifecycle(instance.start, self._begin, self._close)

    async def _begin(self) -> None:
        self.begun = True
        await self.trace.start()
        self.instance.keep(self.rebalancer.run, "rebalance")
        if self._options.commits:
            self.instance.every(self._options.commit_interval, self._commit, "commit")

    async def _close(self) -> None:
        self.assignment.stop()
        self.ready.arrival.set()
        try:
            await self._callbacks.revoked(self.assignment.shared_queues())
            if self._options.commits:
                await self.committer.last(self._commit(), self._pauses.last_commit)
        finally:
            try:
                await self.trace.shutdown()
            finally:
                await self.instance.shutdown()

    async def unassign(self, topic: str) -> None:
        """Stop reading a topic; with auto_commit, commit its consumed offsets."""
        assignment = self.assignment
        self.rebalancer.topics.discard(topic)
        try:
            await self._revoke(assignment.shared_queues(topic))
        finally:
            dropped = assignment.end(topic)
        await self.let_go(dropped)

    async def _revoke(self, queues: Sequence[MessageQueue]) -> None:
        self.assignment.pause(queues)
        await self._callbacks.revoked(queues)

    async def let_go(self, queues: Sequence[ProcessQueue[MessageExt]]) -> None:
        """With auto_commit, commit the consumed offsets of queues that were dropped."""
        if self._options.commits:
            await self.committer.let_go(queues)

    async def _commit(self) -> None:
        await self.committer.commit_owned(self.assignment.queues)

    async def _rebalanced(self, topic: str, share: Sequence[MessageQueue]) -> bool:
        assignment = self.assignment
        subscription = assignment.subscriptions.get(topic)
        if subscription is None or subscription.kind is not Kind.SHARED or not self.life.running:
            return True
        lost = [queue for queue in assignment.of_topic(topic) if queue not in share]
        gained = [queue for queue in share if queue not in assignment.fetchers]
        await self._revoke(lost)
        await self.let_go(
            [assignment.remove(queue) for queue in lost if queue in assignment.fetchers]
        )
        if assignment.subscriptions.get(topic) is not subscription:
            return True  # the topic was unassigned in the meantime
        subscription.divided(share)
        assignment.add_all(gained)
        await self._callbacks.assigned(gained)
        await assignment.start_all()
        self._events.queues_changed(topic, gained, lost)
        return True

    def _describe(self) -> ConsumerData:
        return ConsumerData(
            consume_from_where=consume_from_where(self._options.start),
            consume_type="CONSUME_ACTIVELY",
            group_name=self._options.wire_group,
            message_model="CLUSTERING",
            subscription_data_set=self.assignment.subscription_data(),
        )
