"""The pull consumer: reads queues at its own pace, from any offset, and commits when told to.

    async with PullConsumer("audit", namesrv="127.0.0.1:9876") as consumer:
        await consumer.assign("orders")
        await consumer.seek("begin")
        async for message in consumer:
            ...

`assign` takes whole topics or single queues for this consumer alone; `subscribe` shares a topic's
queues with the other clients of the group. Each queue is read ahead by a long-polling loop
(client.consumer.fetcher) that recovers by itself. Reference: DefaultLitePullConsumer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from types import TracebackType
from typing import Self, Unpack

from pocketmq.client.consumer.consume_hooks import ConsumeContext, ConsumeHook, ConsumeHookList
from pocketmq.client.consumer.consumer_event import ConsumerEvent, ConsumerEventKind, ConsumerEvents
from pocketmq.client.consumer.dispatch.ready_queues import ReadyQueues
from pocketmq.client.consumer.expression import Expression
from pocketmq.client.consumer.fetch.process_queue import ProcessQueue
from pocketmq.client.consumer.fetch.pull_limiter import FlowControl, Limits
from pocketmq.client.consumer.fetch.puller import Puller, PullResult
from pocketmq.client.consumer.offsets.offset_store import RemoteOffsetStore
from pocketmq.client.consumer.pull_offsets import PullOffsets
from pocketmq.client.consumer.rebalance.assignment import Assignment, FetchOptions
from pocketmq.client.consumer.rebalance.rebalance import Rebalancer
from pocketmq.client.consumer.rebalance.strategies import average
from pocketmq.client.consumer.subscription import Kind
from pocketmq.client.consumer.trace_sender import TraceSender
from pocketmq.client.errors import RemotingError
from pocketmq.client.instance import ClientInstance
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.log_fields import fields
from pocketmq.client.offsets import Position, check_position, consume_from_where
from pocketmq.client.options import ClientOptions
from pocketmq.client.validation import consumer_group, positive
from pocketmq.message.message import MessageExt, MessageQueue
from pocketmq.remoting.bodies.heartbeat import ConsumerData

__all__ = ["PullConsumer"]

log = logging.getLogger(__name__)

#: Shutdown does not wait longer than this for the last commit, seconds.
LAST_COMMIT_TIMEOUT = 3.0


class PullConsumer(PullOffsets):
    """Reads messages for one consumer group.

    Options:

    - `namesrv`: "host:port;host:port" or a list; default the environment's NAMESRV_ADDR.
    - `start`: where a queue begins for a group that has no stored offset: "begin", "end" (the
      default), a datetime (store time) or an offset.
    - `auto_commit`: every `auto_commit_interval` seconds and at shutdown, store the offsets of what
      is done. A message handed out is done when the next one, or the next `poll`, is asked for;
      leaving `async with` by an exception leaves the last ones undone, so they come again.
    - `batch`: messages in one pull; an official broker answers with 32 at most, unless its
      maxTransferCountOnMessageInMemory says otherwise.
    - `suspend`: seconds a broker may hold a pull that finds nothing.
    - `share_polls`: the queues of one broker wait for messages in one request together, where the
      broker serves that (Batch-Protocol), for up to twice as long; else each has its own.
    - `max_buffered`: messages read ahead for each queue; `max_buffered_bytes`: for all together.
    - `hooks`: called around the handing out of messages (client.consumer.consume_hooks);
      `consumer.hooks` may be changed. `trace`: True, or a topic, to record it (client.trace).
    - `on_error`: called with queue and error when reading a queue fails; it is tried again anyway.
    - `on_event`: called with each ConsumerEvent: connections, reading, group, queues.
    - `options`: those of every client (client.options).

    The constructor touches no event loop; `start` and `shutdown` may be called again in vain.
    """

    def __init__(
        self,
        group: str,
        *,
        namesrv: str | Sequence[str] | None = None,
        start: Position = "end",
        auto_commit: bool = True,
        auto_commit_interval: float = 5.0,
        batch: int = 256,
        suspend: float = 15.0,
        share_polls: bool = True,
        max_buffered: int = 1000,
        max_buffered_bytes: int = 64 * 1024 * 1024,
        hooks: Sequence[ConsumeHook] = (),
        trace: bool | str = False,
        on_error: Callable[[MessageQueue, RemotingError], object] | None = None,
        on_event: Callable[[ConsumerEvent], object] | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self.group = consumer_group(group)
        self._auto_commit = auto_commit
        self._auto_commit_interval = positive("auto_commit_interval", auto_commit_interval)
        self._start_position = check_position(start)
        instance = ClientInstance(namesrv, **options)
        group = self._wire_group = instance.namespace.wrap(group)  # from here on
        store = RemoteOffsetStore(instance, group)
        flow = FlowControl(Limits(queue_count=max_buffered, total_size=max_buffered_bytes))
        self.hooks = ConsumeHookList(hooks)
        self._trace = TraceSender(self.group, trace, namesrv, options) if trace else None
        if self._trace is not None:
            self.hooks.append(self._trace.hook)
        self._on_error = on_error
        self._puller = Puller(instance, group, MessageExt, suspend=suspend, share_polls=share_polls)
        fetching = FetchOptions(start, batch, auto_commit)
        assignment = Assignment(instance, group, self._puller, store, flow, fetching, self)
        super().__init__(instance, assignment, ReadyQueues(flow), store, group)
        self._events = ConsumerEvents(
            instance, self.group, on_event, lambda: self._rebalancer.soon()
        )
        self._rebalancer: Rebalancer = Rebalancer(
            instance, group, average, self._rebalanced, self._events.group_changed
        )
        instance.heartbeat.add_consumer(group, self._describe)
        self._life = Lifecycle(instance.start, self._begin, self._close)

    @property
    def client_id(self) -> str:
        """The name brokers know this client by."""
        return self._instance.client_id

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are read now."""
        return sorted(map(self._namespace.unwrap_queue, self._assignment.fetchers))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self._handout.release()
        await self._life.shutdown()

    async def start(self) -> None:
        """Begin: route polls, heartbeats, automatic commits. Raises NotRunning after a shutdown."""
        await self._life.start()

    async def _begin(self) -> None:
        if self._trace is not None:
            await self._trace.start()
        self._instance.spawn(self._rebalancer.run(), "rebalance")
        if self._auto_commit:
            self._instance.every(self._auto_commit_interval, self._commit_safe, "commit")

    async def shutdown(self) -> None:
        """Stop reading, commit what was handed out (with auto_commit), close everything."""
        self._handout.release()
        await self._life.shutdown()

    async def _close(self) -> None:
        self._assignment.stop()
        self._handout.arrival.set()
        try:
            if self._auto_commit:
                async with asyncio.timeout(LAST_COMMIT_TIMEOUT):
                    await self._commit_safe()
        except TimeoutError:
            told = fields(group=self.group)
            log.warning("the last commit of group %s came to no end", self.group, extra=told)
        finally:
            try:
                if self._trace is not None:
                    await self._trace.shutdown()
            finally:
                await self._instance.shutdown()

    # What is read

    async def assign(
        self, what: str | Iterable[MessageQueue], tags: str = "*", *, sql: str | None = None
    ) -> None:
        """Read a topic (all its queues, also future ones), or exactly the given queues.

        `tags`: "*", or "TagA || TagB"; or else `sql`: a SQL92 condition on properties. A topic that
        does not exist yet is waited for. Returns when each queue's offset is looked up, so that
        what is sent from then on is read.

        Raises InvalidName; NotRunning; NoNameServer; ValueError for a topic that is read in another
        way already (`unassign` it first); what a broker answers to a condition that it can not
        evaluate.
        """
        expression = Expression.of(tags, sql)
        if isinstance(what, str):
            topic = self._namespace.wrap(what)
            route = await self._assignment.begin(topic, Kind.FOLLOWED, expression)
            if route is not None:
                self._assignment.add_all(route.subscribe)
        else:
            queues = [self._namespace.wrap_queue(queue) for queue in what]
            for topic in dict.fromkeys(queue.topic for queue in queues):
                await self._assignment.begin(topic, Kind.FIXED, expression)
            self._assignment.add_all(queues)
        await self._assignment.start_all()
        await self._instance.heartbeat.send_all()

    async def subscribe(self, topic: str, tags: str = "*", *, sql: str | None = None) -> None:
        """Read this client's share of a topic's queues; the group's other clients read the rest.

        The share is worked out in the background and follows as clients come and go; `assignment`
        tells it. Arguments and errors are those of `assign`.
        """
        topic = self._namespace.wrap(topic)
        await self._assignment.begin(topic, Kind.SHARED, Expression.of(tags, sql))
        self._rebalancer.topics.add(topic)
        # A broker must know this client before the division can give it anything.
        await self._instance.heartbeat.send_all()
        self._rebalancer.soon()

    async def unassign(self, topic: str) -> None:
        """Read this topic no more; with auto_commit what is done of it is committed."""
        topic = self._namespace.wrap(topic)
        self._rebalancer.topics.discard(topic)
        await self._let_go(self._assignment.end(topic))

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Read and hand out nothing of these queues (None: of all there are now) until `resume`.

        What was read ahead of them is kept. Raises ValueError for a queue that is not read.
        """
        self._assignment.pause(self._chosen(queues))

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on with these queues, or with all. Raises ValueError for one that is not read."""
        self._assignment.resume(self._chosen(queues))

    def _chosen(self, queues: Iterable[MessageQueue] | None) -> list[MessageQueue]:
        if queues is None:
            return list(self._assignment.fetchers)
        return [self._read_here(queue) for queue in queues]

    async def _rebalanced(self, topic: str, share: Sequence[MessageQueue]) -> bool:
        subscription = self._assignment.subscriptions.get(topic)
        if subscription is None or subscription.kind is not Kind.SHARED or not self._life.running:
            return True
        lost = [queue for queue in self._assignment.of_topic(topic) if queue not in share]
        gained = [queue for queue in share if queue not in self._assignment.fetchers]
        if lost or gained:
            told = fields(group=self.group, topic=topic)
            log.info(
                "group %s, topic %s: gained %s, lost %s",
                self.group,
                topic,
                gained,
                lost,
                extra=told,
            )
        await self._let_go([self._assignment.remove(queue) for queue in lost])
        if self._assignment.subscriptions.get(topic) is not subscription:
            return True  # it was given up meanwhile
        self._assignment.add_all(gained)
        await self._assignment.start_all()
        if lost or gained:
            self._events.tell(ConsumerEventKind.QUEUES_CHANGED, self._namespace.unwrap(topic))
        return True

    async def _let_go(self, queues: Sequence[ProcessQueue[MessageExt]]) -> None:
        if self._auto_commit:
            await self._committer.commit(queues)

    # What the assignment tells (client.consumer.assignment.Owner)

    def arrived(self, pq: ProcessQueue[MessageExt]) -> None:
        self._handout.arrived(pq)

    def failed(self, queue: MessageQueue, error: RemotingError, times: int) -> None:
        queue = self._namespace.unwrap_queue(queue)
        self._events.reading_failed(queue, error, times)
        if self._on_error is not None:
            try:
                self._on_error(queue, error)
            except Exception:
                told = fields(queue=queue, group=self.group)
                log.exception("on_error of consumer group %s failed", self.group, extra=told)

    def recovered(self, queue: MessageQueue) -> None:
        self._events.reading_recovered(self._namespace.unwrap_queue(queue))

    def appeared(self, topic: str) -> None:
        self._rebalancer.soon()

    # Messages

    async def poll(self, max_messages: int = 32, timeout: float = 1.0) -> list[MessageExt]:
        """The messages that have come, at most `max_messages`, from the queues in turn.

        Waits up to `timeout` seconds for the first; an empty list when there was none. Asking marks
        the messages handed out before as done. Raises ValueError for `max_messages` below 1.
        """
        if max_messages < 1:
            raise ValueError(f"max_messages must be at least 1, not {max_messages}")
        self._instance.check_running("consumer")
        handout = self._handout
        handout.release()
        messages = self._take(max_messages)
        if messages or timeout <= 0:
            return messages
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not messages and self._life.running:
                    await handout.arrival.wait()
                    messages = self._take(max_messages)
        return messages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageExt:
        """The next message, waiting for it; ends when the consumer is shut down."""
        handout = self._handout
        handout.release()
        while self._life.running:
            messages = self._take(1)
            if messages:
                return messages[0]
            await handout.arrival.wait()
        raise StopAsyncIteration

    def _take(self, count: int) -> list[MessageExt]:
        messages = self._shown(self._handout.take(count))
        if self.hooks:
            for _, group in groupby(messages, lambda message: message.queue):
                context = ConsumeContext(self.group, self.client_id, list(group))
                self.hooks.before(context)
                context.ended(None)
                self.hooks.after(context)
        return messages

    def _shown(self, messages: list[MessageExt]) -> list[MessageExt]:
        """The messages, with the topics that the application knows."""
        if self._namespace:
            for message in messages:
                message.topic = self._namespace.unwrap(message.topic)
        return messages

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = 32,
        tags: str = "*",
        sql: str | None = None,
        suspend: float = 0.0,
        timeout: float | None = None,
    ) -> PullResult[MessageExt]:
        """One pull from any queue at any offset, apart from what is assigned.

        `suspend`: seconds the broker may wait for a message; 0 answers at once. The result's
        status tells what was found; go on at its next_begin_offset. Raises NoRouteInfo,
        BrokerNotFound, and what the broker or the connection raise.
        """
        result = await self._puller.pull(
            self._wire(queue),
            offset,
            Expression.of(tags, sql),
            max_messages=max_messages,
            suspend=suspend,
            timeout=timeout,
        )
        self._shown(result.messages)
        return result

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Every queue of the topic that can be read; none while it does not exist."""
        self._instance.check_running("consumer")
        route = await self._instance.routes.for_subscribe(self._namespace.wrap(topic))
        return () if route is None else tuple(map(self._namespace.unwrap_queue, route.subscribe))

    async def _commit_safe(self) -> None:
        await self._committer.commit(self._assignment.queues)

    def _describe(self) -> ConsumerData:
        return ConsumerData(
            consume_from_where=consume_from_where(self._start_position),
            consume_type="CONSUME_ACTIVELY",
            group_name=self._wire_group,
            message_model="CLUSTERING",
            subscription_data_set=self._assignment.subscription_data(),
        )
