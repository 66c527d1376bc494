"""The parts of a push consumer, from a start to the next shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic, time_ns
from typing import Any

import msgspec

from pocketmq.client.consumer.broker_outages import BrokerOutages
from pocketmq.client.consumer.client_remoting_processor import ClientRemotingProcessor
from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.consumer_event import ConsumerEvents
from pocketmq.client.consumer.consumer_options import ConsumerOptions
from pocketmq.client.consumer.dispatch.consume_stats import SAMPLE_PERIOD
from pocketmq.client.consumer.dispatch.consumption import ConsumeOptions, Consumption
from pocketmq.client.consumer.dispatch.handlers import AnyHandler
from pocketmq.client.consumer.fetch.pull_limiter import PullLimiter
from pocketmq.client.consumer.fetch.puller import Puller
from pocketmq.client.consumer.offset_requests import OffsetRequests
from pocketmq.client.consumer.offsets.committer import Committer
from pocketmq.client.consumer.offsets.local_offset_store import LocalOffsetStore
from pocketmq.client.consumer.offsets.offset_store import OffsetStore, RemoteOffsetStore
from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.consumer.push_subscriptions import PushSubscriptions
from pocketmq.client.consumer.rebalance.assignment import Assignment
from pocketmq.client.consumer.rebalance.queue_lock import QueueLocks
from pocketmq.client.consumer.rebalance.queue_ownership import QueueOwnership
from pocketmq.client.consumer.rebalance.rebalance import Rebalancer
from pocketmq.client.consumer.rebalance.share_callbacks import ShareCallbacks
from pocketmq.client.consumer.rebalance.strategies import Strategy
from pocketmq.client.consumer.router import Route
from pocketmq.client.consumer.running_info import RunningInfo
from pocketmq.client.consumer.trace_sender import TraceSender
from pocketmq.client.instance import ClientInstance
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.observation.consume_hooks import ConsumeHookList
from pocketmq.client.offsets import consume_from_where
from pocketmq.remoting.bodies.heartbeat import ConsumerData

log = logging.getLogger(__name__)


class PushOptions(msgspec.Struct, frozen=True):
    """The checked options of a PushConsumer; times in seconds."""

    common: ConsumerOptions
    consume: ConsumeOptions
    consume_timeout: float
    strategy: Strategy
    offset_directory: Path
    shutdown_timeout: float


class PushSession:
    """One run of a push consumer: its connections, queues and workers.

    Each start creates a new one.
    """

    def __init__(
        self,
        options: PushOptions,
        namesrv: str | Sequence[str] | None,
        hooks: ConsumeHookList,
        message_type: type[ConsumedMessage],
        adapt: Callable[[Any], Any],
        pauses: Pauses,
    ) -> None:
        """`adapt` wraps a function of the application so that the consumer can call it."""
        self.begun = False
        self._options = options
        self._pauses = pauses
        self._adapt = adapt
        #: Set when everything is closed.
        self.ended = asyncio.Event()
        self.shutdown_timeout = options.shutdown_timeout
        common, consume = options.common, options.consume
        group = common.wire_group
        instance = self.instance = ClientInstance(
            namesrv,
            owner=common.owner,
            lasting_id=consume.broadcast,
            cancel_timeout=pauses.cancelled_handler,
            **common.client,
        )
        self.trace = TraceSender(common, namesrv, hooks)
        limiter = PullLimiter(common.limits)
        self.handlers: dict[str, AnyHandler] = {}
        self.consumption = Consumption(instance, consume, self.handlers, hooks, limiter, pauses)
        self.iteration = self.consumption.iteration
        outages = BrokerOutages(instance, common.group)
        self.store: OffsetStore = (
            LocalOffsetStore(options.offset_directory, instance.client_id, group)
            if consume.broadcast
            else RemoteOffsetStore(instance, group)
        )
        self.committer = Committer(self.store, group, outages)
        share_again = lambda: self.rebalancer.soon()  # noqa: E731 (it is made below)
        self.events = ConsumerEvents(instance, common.group, common.on_event, share_again, outages)
        self.assignment: Assignment[ConsumedMessage] = Assignment(
            instance,
            group,
            Puller(
                instance,
                group,
                message_type,
                suspend=common.suspend,
                share_polls=common.share_polls,
                hold_slack=pauses.hold_slack,
            ),
            self.store,
            limiter,
            common,
            self.consumption.service.arrived,
            self.events,
            share_again,
            pauses,
        )
        locks = None
        if consume.orderly and not consume.broadcast:
            locks = QueueLocks(instance, group, outages, monotonic, pauses.lock_timeout)
        self.ownership = QueueOwnership(
            instance,
            self.assignment,
            self.consumption.service,
            self.committer,
            locks,
            share_again,
            self.events,
            common.group,
            pauses.lock_renewal,
            ShareCallbacks(common, instance.namespace, pauses.share_callback),
        )
        self.rebalancer: Rebalancer = Rebalancer(
            instance,
            group,
            options.strategy,
            self.ownership.share,
            self.events.group_changed,
            self.committer.group_changed,
            retry_period=pauses.incomplete_round,
        )
        self.wanted = PushSubscriptions(
            instance,
            self.handlers,
            self.assignment,
            self.rebalancer,
            self.ownership,
            None if consume.broadcast else consume.retry_topic,
        )
        self._info = RunningInfo(instance, consume, self.assignment, self.consumption)
        ClientRemotingProcessor(
            instance,
            group,
            self.consumption,
            self._info,
            message_type,
        )
        OffsetRequests(instance, group, self.assignment, self.store)
        instance.heartbeat.add_consumer(group, self._describe)
        self.life = Lifecycle(instance.start, self._begin, self._close)

    async def start(self, routes: Iterable[Route]) -> None:
        """Begin to consume these routes; raises as PushConsumer.start."""
        if not self.life.running:
            for route in routes:
                self.wanted.add(route.topic, route.expression, route.handler(self._adapt))
        await self.life.start()

    async def _begin(self) -> None:
        self.begun = True
        self._info.started_at = time_ns() // 1_000_000
        await self.trace.start()
        if isinstance(self.store, LocalOffsetStore):
            await self.store.load()
        options = self._options
        await self.instance.with_name_server(self.wanted.begin_all)
        instance = self.instance
        # Brokers must know this client before a rebalance can assign it queues.
        await instance.heartbeat.send_all()
        if not options.consume.broadcast:
            instance.keep(self.rebalancer.run, "rebalance")
            if options.consume.orderly:
                instance.keep(self.ownership.keep_locks, "queue locks")
            # Wait for the queues, so that a new group that begins at the end gets every message
            # sent after its start.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pauses.first_round):
                    await self.rebalancer.began.wait()
        assignment, consumption, age = self.assignment, self.consumption, options.consume_timeout
        instance.every(
            options.common.commit_interval,
            lambda: self.committer.commit_owned(assignment.queues),
            "commit",
        )
        instance.every(SAMPLE_PERIOD, consumption.stats.sample, "statistics")
        if not options.consume.orderly:
            period = min(age / 4, 60.0)
            instance.every(
                period, lambda: consumption.expire(age, assignment.queues), "consume timeout"
            )

    async def subscribe(self, route: Route) -> None:
        """Consume another topic; raises as PushConsumer.subscribe."""
        self.wanted.add(route.topic, route.expression, route.handler(self._adapt))
        try:
            self.wanted.check()
            await self.instance.with_name_server(partial(self.wanted.begin, route.topic))
        except BaseException:
            self.wanted.forget(route.topic)
            raise
        await self.instance.heartbeat.send_all()
        self.rebalancer.soon()

    async def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic; commit its consumed offsets."""
        await self.wanted.end(topic)
        if self.instance.running:
            await self.instance.heartbeat.send_all()

    def pause(self) -> None:
        """Pull and deliver nothing until `resume`."""
        self.assignment.pause_new = True
        self.assignment.pause(self.assignment.fetchers)

    def resume(self) -> None:
        """Continue after `pause`."""
        self.assignment.pause_new = False
        self.assignment.resume(self.assignment.fetchers)

    def hurry(self) -> None:
        """Let a shutdown cancel the running handlers at once."""
        self.consumption.hurry()

    async def shutdown(self) -> None:
        """Shut down, or wait for it; a handler that calls this is not waited for."""
        self.consumption.closed_by(asyncio.current_task())
        await self.life.shutdown()

    async def _close(self) -> None:
        self.consumption.stop()
        self.ownership.stop()
        try:
            if self.begun:
                self.assignment.stop()
                await self.consumption.drain(self.shutdown_timeout)
                await self.ownership.revoke(self.assignment.shared_queues())
                await self.committer.last(self.ownership.close(), self._pauses.last_commit)
        finally:
            try:
                await self.trace.shutdown()
            finally:
                await self.instance.shutdown()
                self.ended.set()

    def _describe(self) -> ConsumerData:
        consume = self._options.consume
        return ConsumerData(
            consume_from_where=consume_from_where(self._options.common.start),
            consume_type="CONSUME_PASSIVELY",
            group_name=consume.group,
            message_model="BROADCASTING" if consume.broadcast else "CLUSTERING",
            subscription_data_set=self.assignment.subscription_data(),
        )
