"""The push consumer: messages come to the application, which acknowledges each.

    consumer = PushConsumer("billing", namesrv="127.0.0.1:9876")

    @consumer.on("orders", "paid || refunded")
    async def bill(message: ConsumedMessage) -> None:
        ...                     # returns: done; raises: comes again later

    await consumer.run()

or, in a loop of the application's own:

    async with PushConsumer("billing", {"orders": "paid || refunded"}) as consumer:
        async for message in consumer:
            async with message:
                ...

Delivery is at least once: the offset that is stored for the group never passes a message that is
not done. Reference: DefaultMQPushConsumer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic, time_ns
from typing import ClassVar, Self, Unpack

from pocketmq.client.consumer.client_remoting_processor import ClientRemotingProcessor
from pocketmq.client.consumer.consume_hooks import ConsumeHook, ConsumeHookList
from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.consumer_event import ConsumerEvent, ConsumerEvents
from pocketmq.client.consumer.dispatch.consume_service import Queue
from pocketmq.client.consumer.dispatch.consume_stats import SAMPLE_PERIOD
from pocketmq.client.consumer.dispatch.consumption import ConsumeOptions, Consumption
from pocketmq.client.consumer.dispatch.handlers import AnyHandler, Handler
from pocketmq.client.consumer.expression import Expression
from pocketmq.client.consumer.fetch.pull_limiter import FlowControl, Limits
from pocketmq.client.consumer.fetch.puller import Puller
from pocketmq.client.consumer.offsets.committer import Committer
from pocketmq.client.consumer.offsets.local_offset_store import LocalOffsetStore, default_directory
from pocketmq.client.consumer.offsets.offset_store import OffsetStore, RemoteOffsetStore
from pocketmq.client.consumer.push_subscriptions import PushSubscriptions
from pocketmq.client.consumer.push_topics import PushTopics
from pocketmq.client.consumer.rebalance.assignment import Assignment, FetchOptions
from pocketmq.client.consumer.rebalance.queue_lock import QueueLocks
from pocketmq.client.consumer.rebalance.queue_ownership import QueueOwnership
from pocketmq.client.consumer.rebalance.rebalance import Rebalancer
from pocketmq.client.consumer.rebalance.strategies import Strategy, average
from pocketmq.client.consumer.running_info import MIB, RunningInfo
from pocketmq.client.consumer.trace_sender import TraceSender
from pocketmq.client.errors import NotRunning, RemotingError
from pocketmq.client.instance import ClientInstance
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.log_fields import fields
from pocketmq.client.offsets import Position, check_position, consume_from_where
from pocketmq.client.options import ClientOptions
from pocketmq.client.validation import consumer_group, positive
from pocketmq.message.limits import RETRY_PREFIX
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.heartbeat import ConsumerData

__all__ = ["PushConsumer"]

log = logging.getLogger(__name__)

#: Shutdown does not wait longer than this for the last commit, seconds.
LAST_COMMIT_TIMEOUT = 3.0


class PushConsumer(PushTopics):
    """Consumes messages for one consumer group.

    `subscriptions` maps topics to "*" or "TagA || TagB"; `handler` works on all of them, and those
    given by `on` on theirs. Without any handler the messages are there to iterate over.

    - `namesrv`: as for every client; default the environment's NAMESRV_ADDR.
    - `orderly`: each queue is locked at its broker and consumed in order, one message at a time. A
      message whose work fails suspends its queue for `suspend_current_queue` seconds.
    - `broadcast`: every client reads everything, keeps its offsets in a file under
      `offset_directory` (default ~/.rocketmq_offsets), and does not retry.
    - `start`: where a queue begins for a group that has no stored offset: "begin", "end" (the
      default), a datetime (store time) or an offset.
    - `strategy`: divides queues among the group's clients (client.consumer.rebalance_strategy).
    - `concurrency`: handlers that run at the same time.
    - `max_reconsume_times`: deliveries after the first until a message is a dead letter; by default
      16, and without limit in order.
    - `consume_timeout`: seconds after which the work on a message counts as failed, and its handler
      is cancelled; not in order.
    - `pull_batch_size`, `suspend`, `share_polls`: as for PullConsumer (`batch`).
    - `pull_threshold_for_queue`, `pull_threshold_for_topic`: messages read and not done, at which
      reading waits; `pull_threshold_size_for_queue` and `..._topic` the same in MiB.
    - `consume_concurrently_max_span`: offsets from a queue's first message that is not done to its
      last one read, over which reading waits; not in order.
    - `commit_interval`: seconds between two commits of offsets. `shutdown_timeout`: seconds that
      handlers may take to end, before shutdown cancels them.
    - `hooks`: called around the work on messages (client.consumer.consume_hooks); `consumer.hooks`
      may be changed.
    - `trace`: True, or a topic, to record the work on every message there (enableMsgTrace;
      client.trace).
    - `on_event`: called with each ConsumerEvent: connections, reading, group, locks, queues.
    - `options`: those of every client (client.options).

    The constructor touches no event loop. `start` and `shutdown`, as `async with` calls them, may
    both be called again without effect.
    """

    #: What messages are made as.
    message_type: ClassVar[type[ConsumedMessage]] = ConsumedMessage

    def __init__(
        self,
        group: str,
        subscriptions: Mapping[str, str] | None = None,
        *,
        handler: Handler | None = None,
        namesrv: str | Sequence[str] | None = None,
        orderly: bool = False,
        broadcast: bool = False,
        offset_directory: Path | str | None = None,
        start: Position = "end",
        strategy: Strategy = average,
        concurrency: int = 64,
        max_reconsume_times: int | None = None,
        consume_timeout: float = 900.0,
        suspend_current_queue: float = 1.0,
        pull_batch_size: int = 256,
        suspend: float = 15.0,
        share_polls: bool = True,
        pull_threshold_for_queue: int = 1000,
        pull_threshold_size_for_queue: int = 100,
        pull_threshold_for_topic: int | None = None,
        pull_threshold_size_for_topic: int | None = None,
        consume_concurrently_max_span: int = 2000,
        commit_interval: float = 5.0,
        shutdown_timeout: float = 10.0,
        hooks: Sequence[ConsumeHook] = (),
        trace: bool | str = False,
        on_event: Callable[[ConsumerEvent], object] | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self.group = consumer_group(group)
        self.orderly = orderly
        self.broadcast = broadcast
        self._start_position = check_position(start)
        self._consume_timeout = positive("consume_timeout", consume_timeout)
        self._commit_interval = positive("commit_interval", commit_interval)
        self._shutdown_timeout = shutdown_timeout
        self._handlers: dict[str, AnyHandler] = {}
        self.hooks = ConsumeHookList(hooks)
        self._trace = TraceSender(group, trace, namesrv, options) if trace else None
        if self._trace is not None:
            self.hooks.append(self._trace.hook)
        self._begun = False
        self._ended = asyncio.Event()
        instance = self._instance = ClientInstance(namesrv, lasting_id=broadcast, **options)
        group = self._wire_group = instance.namespace.wrap(group)  # from here on
        flow = FlowControl(
            Limits(
                queue_count=pull_threshold_for_queue,
                queue_size=pull_threshold_size_for_queue * MIB,
                queue_span=None if orderly else consume_concurrently_max_span,
                topic_count=pull_threshold_for_topic,
                topic_size=pull_threshold_size_for_topic and pull_threshold_size_for_topic * MIB,
            )
        )
        consume_options = ConsumeOptions(
            group, orderly, broadcast, concurrency, max_reconsume_times, suspend_current_queue
        )
        self._consumption = Consumption(instance, consume_options, self._handlers, self.hooks, flow)
        directory = Path(offset_directory or default_directory())
        self._store: OffsetStore = (
            LocalOffsetStore(directory, instance.client_id, group)
            if broadcast
            else RemoteOffsetStore(instance, group)
        )
        self._committer = Committer(self._store, group)
        self._assignment: Assignment[ConsumedMessage] = Assignment(
            instance,
            group,
            Puller(instance, group, self.message_type, suspend=suspend, share_polls=share_polls),
            self._store,
            flow,
            FetchOptions(start, pull_batch_size, commits=True),
            self,
        )
        share_again = lambda: self._rebalancer.soon()  # noqa: E731 (it is made below)
        self._events = ConsumerEvents(instance, self.group, on_event, share_again)
        self._ownership = QueueOwnership(
            instance,
            self._assignment,
            self._consumption.service,
            self._committer,
            QueueLocks(instance, group, monotonic) if orderly and not broadcast else None,
            share_again,
            self._events,
        )
        self._rebalancer: Rebalancer = Rebalancer(
            instance, group, strategy, self._ownership.share, self._events.group_changed
        )
        wanted = PushSubscriptions(
            instance,
            self._handlers,
            self._assignment,
            self._rebalancer,
            self._ownership,
            None if broadcast else consume_options.retry_topic,
        )
        super().__init__(instance, wanted, self._rebalancer)
        self._info = RunningInfo(instance, consume_options, self._assignment, self._consumption)
        ClientRemotingProcessor(
            instance,
            group,
            self._assignment,
            self._store,
            self._consumption,
            self._info,
            self.message_type,
        )
        instance.heartbeat.add_consumer(group, self._describe)
        self._life = Lifecycle(instance.start, self._begin, self._close)
        for topic, tags in (subscriptions or {}).items():
            self._wanted.add(topic, Expression.of(tags), handler)

    @property
    def client_id(self) -> str:
        """The name brokers know this client by."""
        return self._instance.client_id

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues of the subscribed topics that are read now."""
        unwrap = self._instance.namespace.unwrap_queue
        return sorted(
            unwrap(queue)
            for queue in self._assignment.fetchers
            if not queue.topic.startswith(RETRY_PREFIX)
        )

    # Life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.shutdown()

    async def start(self) -> None:
        """Begin to consume.

        Raises NotRunning after a shutdown; NoNameServer when none answers; ValueError when only
        some of the topics have handlers; OffsetFileError; what a broker answers to a condition that
        it can not evaluate. Then nothing is left running.
        """
        self._wanted.check()
        await self._life.start()

    async def _begin(self) -> None:
        self._running = self._begun = True
        self._info.started_at = time_ns() // 1_000_000
        if self._trace is not None:
            await self._trace.start()
        if isinstance(self._store, LocalOffsetStore):
            await self._store.load()
        await self._wanted.begin_all()
        instance = self._instance
        # A broker must know this client before the division can give it anything.
        await instance.heartbeat.send_all()
        if not self.broadcast:
            instance.spawn(self._rebalancer.run(), "rebalance")
            if self.orderly:
                instance.spawn(self._ownership.keep_locks(), "queue locks")
        assignment, consumption, age = self._assignment, self._consumption, self._consume_timeout
        instance.every(
            self._commit_interval, lambda: self._committer.commit(assignment.queues), "commit"
        )
        instance.every(SAMPLE_PERIOD, consumption.stats.sample, "statistics")
        if not self.orderly:
            period = min(age / 4, 60.0)
            instance.every(period, lambda: consumption.expire(age, assignment), "consume timeout")

    async def run(self) -> None:
        """Consume until `shutdown` has been called or this call is cancelled. Raises as `start`
        does, but not NotRunning once it has consumed."""
        try:
            async with self:
                await self._ended.wait()
        except NotRunning:
            # A handler may be quicker with `shutdown` than `start` is with its end.
            if not self._begun:
                raise
            await self._ended.wait()

    async def shutdown(self) -> None:
        """Take no more messages, let the work under way end, commit, leave the group, close.

        May be called by handlers: their own work is not waited for, and ends here.
        """
        self._consumption.closed_by(asyncio.current_task())
        await self._life.shutdown()

    async def _close(self) -> None:
        self._consumption.stop()
        self._ownership.stop()
        try:
            if self._running:
                self._assignment.stop()
                await self._consumption.drain(self._shutdown_timeout)
                async with asyncio.timeout(LAST_COMMIT_TIMEOUT):
                    await self._ownership.close()
        except TimeoutError:
            told = fields(group=self.group)
            log.warning("the last commit of group %s came to no end", self.group, extra=told)
        finally:
            self._running = False
            try:
                if self._trace is not None:
                    await self._trace.shutdown()
            finally:
                await self._instance.shutdown()
                self._ended.set()

    def pause(self) -> None:
        """Read and hand out nothing until `resume`; what is in work goes on."""
        self._assignment.pause_new = True
        self._assignment.pause(self._assignment.fetchers)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._assignment.pause_new = False
        self._assignment.resume(self._assignment.fetchers)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumedMessage:
        """The next message, waiting for it; ends when the consumer is shut down.

        Messages that are handed out and not done count in flow control, so that nothing more comes
        while too many are in work. Raises ValueError for a consumer with handlers.
        """
        if self._handlers:
            raise ValueError("the messages of this consumer go to its handlers")
        if not self._running:
            raise StopAsyncIteration
        message = await self._consumption.next()
        if message is None:
            raise StopAsyncIteration
        return message

    # What the assignment tells (client.consumer.assignment.Owner)

    def arrived(self, pq: Queue) -> None:
        self._consumption.service.arrived(pq)

    def failed(self, queue: MessageQueue, error: RemotingError, times: int) -> None:
        queue = self._instance.namespace.unwrap_queue(queue)
        self._events.reading_failed(queue, error, times)

    def recovered(self, queue: MessageQueue) -> None:
        self._events.reading_recovered(self._instance.namespace.unwrap_queue(queue))

    def appeared(self, topic: str) -> None:
        self._rebalancer.soon()

    def _describe(self) -> ConsumerData:
        return ConsumerData(
            consume_from_where=consume_from_where(self._start_position),
            consume_type="CONSUME_PASSIVELY",
            group_name=self._wire_group,
            message_model="BROADCASTING" if self.broadcast else "CLUSTERING",
            subscription_data_set=self._assignment.subscription_data(),
        )
