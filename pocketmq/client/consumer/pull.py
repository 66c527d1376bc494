"""The pull consumer: reads queues at its own pace, from any offset.

    async with PullConsumer("audit", namesrv="127.0.0.1:9876") as consumer:
        await consumer.assign("orders")
        await consumer.seek("begin")
        async for message in consumer:
            ...

`assign` reads whole topics or single queues in this consumer; `subscribe` shares a topic's queues
with the other clients of the group. A long-polling loop per queue prefetches messages and recovers
from errors (`fetch/fetcher.py`). Reference: DefaultLitePullConsumer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from types import TracebackType
from typing import ClassVar, Self, Unpack

from pocketmq.client.consumer.consumer_event import ConsumerEvent
from pocketmq.client.consumer.consumer_options import ConsumerOptions, ShareCallback
from pocketmq.client.consumer.consumer_state import ConsumerState
from pocketmq.client.consumer.dispatch.ready_queues import ReadyQueues
from pocketmq.client.consumer.expression import Expression
from pocketmq.client.consumer.fetch.pull_limiter import PullLimits
from pocketmq.client.consumer.fetch.puller import PullResult
from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.consumer.pull_session import PullOptions, PullSession
from pocketmq.client.consumer.sessions import Sessions
from pocketmq.client.consumer.subscription import Kind
from pocketmq.client.errors import NotRunning, RemotingError
from pocketmq.client.namespace import Namespace
from pocketmq.client.observation.consume_hooks import ConsumeContext, ConsumeHook, ConsumeHookList
from pocketmq.client.offsets import Position, check_position
from pocketmq.client.options import ClientOptions
from pocketmq.client.parameters import (
    MOST_INT,
    MOST_OFFSET,
    Seconds,
    flag,
    function,
    message_queue,
    seconds,
    seconds_or_none,
    shown,
    text,
    whole,
)
from pocketmq.client.routes.route import TopicRoute
from pocketmq.client.validation import check_topic_name
from pocketmq.message.message import MessageExt, MessageQueue


class PullConsumer(ConsumerState):
    """Reads messages for one consumer group.

    The constructor uses neither an event loop nor the network. You can start a consumer again after
    its shutdown, but must then `assign` or `subscribe` again. docs/consumer.md has a table of all
    options.

    Args:
        group: the consumer group.
        namesrv: `"host:port;host:port"`, a list, or a URL; None for the environment's
            `NAMESRV_ADDR`. Needed at `start`; set `consumer.namesrv` to change it.
        start: where a group without a stored offset begins in a queue: `"begin"`, `"end"`, a
            datetime (store time) or an offset.
        auto_commit: commit the offsets of consumed messages every `auto_commit_interval` seconds
            (or a timedelta) and at the shutdown. A message is consumed when you request the next
            one, or poll again. If an exception leaves `async with`, the last messages are not
            consumed, and are redelivered.
        batch: the most messages per pull. An official broker returns at most 32, unless its
            maxTransferCountOnMessageInMemory is larger.
        suspend: seconds (or a timedelta) that a broker may hold a pull that finds no messages.
        share_polls: wait for messages of all queues of a broker in one request, for up to twice
            as long, if the broker supports the batch protocol.
        max_buffered: the most prefetched messages per queue. max_buffered_bytes: of all queues
            together.
        hooks: called before and after messages are delivered; you may change `consumer.hooks`.
        trace: True, or the name of a topic, to record every message there.
        on_error: called with the queue and the error of each failed pull, which is retried.
        on_event: called with each ConsumerEvent: connections, reading, group, queues.
        on_assigned, on_revoked: called, and awaited for up to 10 s, with the queues of a shared
            topic that this client gains, before they are read, and those that it loses, before
            other clients can get them.
        **options: the options of every client (ClientOptions); `start_timeout` is 30 s by default.

    Raises:
        InvalidName: the group is malformed.
        TypeError, ValueError: an argument has the wrong type or is out of range; the text names it.
    """

    _message_type: ClassVar[type[MessageExt]] = MessageExt
    _pauses: ClassVar[Pauses] = Pauses()
    _sessions: Sessions[PullSession]

    def __init__(
        self,
        group: str,
        *,
        namesrv: str | Sequence[str] | None = None,
        start: Position = "end",
        auto_commit: bool = True,
        auto_commit_interval: Seconds = 5.0,
        batch: int = 256,
        suspend: Seconds = 15.0,
        share_polls: bool = True,
        max_buffered: int = 1000,
        max_buffered_bytes: int = 64 * 1024 * 1024,
        hooks: Sequence[ConsumeHook] = (),
        trace: bool | str = False,
        on_error: Callable[[MessageQueue, RemotingError], object] | None = None,
        on_event: Callable[[ConsumerEvent], object] | None = None,
        on_assigned: ShareCallback | None = None,
        on_revoked: ShareCallback | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self.group = group
        self.hooks = ConsumeHookList(hooks)
        common = ConsumerOptions.checked(
            type(self),
            group,
            start=start,
            batch=whole("batch", batch, 1),
            commits=flag("auto_commit", auto_commit),
            commit_interval=seconds("auto_commit_interval", auto_commit_interval, above_zero=True),
            suspend=suspend,
            share_polls=share_polls,
            limits=PullLimits(
                queue_count=whole("max_buffered", max_buffered, 1),
                total_size=whole("max_buffered_bytes", max_buffered_bytes, 1),
            ),
            trace=trace,
            on_event=on_event,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            client=options,
        )
        every = PullOptions(
            common, on_error if on_error is None else function("on_error", on_error)
        )
        self._max_buffered_bytes = max_buffered_bytes
        self._namespace = Namespace(options.get("namespace", ""))
        self._sessions = Sessions(
            repr(self),
            namesrv,
            lambda servers: PullSession(
                every, servers, self.hooks, self._message_type, self._pauses
            ),
        )

    def __repr__(self) -> str:
        return f"PullConsumer({self.group!r})"

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this consumer reads now."""
        session = self._sessions.present
        fetchers = () if session is None else session.assignment.fetchers
        return sorted(map(self._namespace.unwrap_queue, fetchers))

    @property
    def buffered_bytes(self) -> int:
        """Bytes of prefetched messages, which `max_buffered_bytes` limits."""
        session = self._sessions.present
        return 0 if session is None else session.ready.size

    # Life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._end(done=error is None)

    async def start(self) -> None:
        """Start the consumer, also again after a shutdown.

        Waits up to `start_timeout` for a name server.

        Raises:
            NotRunning: it was shut down while it started, or it runs in another event loop.
            NoNameServer: no name server address is known, or none answers in time.
        """
        await (await self._sessions.next()).life.start()

    async def shutdown(self) -> None:
        """Stop reading, commit the delivered messages (with auto_commit), and close everything.

        Has no effect on a consumer that is not running.
        """
        await self._end(done=True)

    async def _end(self, *, done: bool) -> None:
        session = self._sessions.to_shut_down()
        if session is not None:
            if done:
                session.ready.release()
            await session.life.shutdown()

    # Topics and queues

    async def assign(
        self, what: str | Iterable[MessageQueue], tags: str = "*", *, sql: str | None = None
    ) -> None:
        """Read a topic (all its queues, also later ones), or exactly the given queues.

        Returns when the start offset of each queue is known, so that messages sent after that are
        read. A topic that does not exist yet is read as soon as it does.

        Args:
            what: a topic, or MessageQueues as `queues` returns them.
            tags: `"*"` for all messages, or `"TagA || TagB"`.
            sql: a SQL92 condition on properties, instead of `tags`.

        Raises:
            InvalidName: the topic, the tags or the SQL condition are malformed.
            TypeError: an argument has the wrong type.
            ValueError: the topic is already read in a different way (`unassign` it first).
            NotRunning: the consumer is not running here.
            NoNameServer: no name server answers within `start_timeout`.
            RemotingError: a broker cannot evaluate the SQL condition.
        """
        session = self._sessions.running()
        assignment = session.assignment
        expression = Expression.of(tags, sql)
        if isinstance(what, str):
            check_topic_name(what)
            topic = self._namespace.wrap(what)
            route = await self._begun(topic, Kind.FOLLOWED, expression)
            if route is not None:
                assignment.add_all(route.subscribe)
        else:
            queues = [self._namespace.wrap_queue(queue) for queue in _queues("what", what)]
            for name in dict.fromkeys(queue.topic for queue in queues):
                await self._begun(name, Kind.FIXED, expression)
            assignment.add_all(queues)
        await assignment.start_all()
        await session.instance.heartbeat.send_all()

    async def subscribe(self, topic: str, tags: str = "*", *, sql: str | None = None) -> None:
        """Read this client's share of a topic's queues; the group's other clients read the rest.

        The queues are divided in the background, again whenever a client joins or leaves;
        `assignment` shows them. Arguments and errors are those of `assign`.
        """
        session = self._sessions.running()
        expression = Expression.of(tags, sql)
        check_topic_name(text("topic", topic))
        topic = self._namespace.wrap(topic)
        await self._begun(topic, Kind.SHARED, expression)
        session.rebalancer.topics.add(topic)
        # Brokers must know this client before a rebalance can assign it queues.
        await session.instance.heartbeat.send_all()
        session.rebalancer.soon()

    async def unassign(self, topic: str) -> None:
        """Stop reading a topic; with auto_commit, commit its consumed offsets.

        Raises:
            NotRunning: the consumer is not running here.
        """
        session = self._sessions.running()
        topic = self._namespace.wrap(text("topic", topic))
        await session.unassign(topic)

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Pull and deliver nothing from these queues until `resume`; None for all current ones.

        Prefetched messages are kept.

        Raises:
            NotRunning: the consumer is not running here.
            ValueError: a queue is not read by this consumer.
        """
        self._sessions.running().assignment.pause(self._chosen(queues))

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Continue with these queues, or with all; raises as `pause`."""
        self._sessions.running().assignment.resume(self._chosen(queues))

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return every readable queue of a topic; none while it does not exist.

        Raises:
            NotRunning: the consumer is not running here.
            NoNameServer: no name server answers.
        """
        routes = self._sessions.running().instance.routes
        check_topic_name(text("topic", topic))
        route = await routes.for_subscribe(self._namespace.wrap(topic))
        return () if route is None else tuple(map(self._namespace.unwrap_queue, route.subscribe))

    # Messages

    async def poll(self, max_messages: int = 32, timeout: Seconds = 1.0) -> list[MessageExt]:
        """Return at most `max_messages` messages that have arrived, from the queues in turn.

        Waits up to `timeout` (seconds or a timedelta) for the first; the list is empty if none
        arrived. The messages of the previous call count as consumed.

        Raises:
            NotRunning: the consumer is not running here, or it reads no topic.
            TypeError, ValueError: `max_messages` is not a whole number of at least 1, or `timeout`
                is not 0 or more seconds.
        """
        whole("max_messages", max_messages, 1)
        wait = seconds("timeout", timeout)
        session = self._reading_session()
        ready = session.ready
        ready.release()
        messages = self._shown(ready.take(max_messages))
        if not messages and wait:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    while not messages and session.life.running:
                        await ready.arrival.wait()
                        messages = self._shown(ready.take(max_messages))
        if self.hooks:
            await self._observe(ready, messages)
        return messages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageExt:
        """Wait for the next message; the iteration ends when the consumer is shut down.

        Raises:
            NotRunning: the consumer is not started, reads no topic, or runs in another event loop.
        """
        session = self._sessions.present
        if session is not None and session.begun and not session.life.running:
            raise StopAsyncIteration
        session = self._reading_session()
        ready = session.ready
        ready.release()
        while session.life.running:
            messages = self._shown(ready.take(1))
            if messages:
                if self.hooks:
                    await self._observe(ready, messages)
                return messages[0]
            await ready.arrival.wait()
        raise StopAsyncIteration

    async def _observe(self, ready: ReadyQueues[MessageExt], messages: list[MessageExt]) -> None:
        try:
            for _, group in groupby(messages, lambda message: message.queue):
                context = ConsumeContext(self.group, self.client_id, list(group))
                await self.hooks.before(context)
                context.ended(None)
                await self.hooks.after(context)
        except BaseException:  # a cancellation: errors of hooks are logged
            ready.give_back(messages)
            raise

    def _give_back(self, messages: list[MessageExt]) -> None:
        """Deliver these messages again: the caller did not get them."""
        session = self._sessions.present
        if session is not None:
            session.ready.give_back(messages)

    def _shown(self, messages: list[MessageExt]) -> list[MessageExt]:
        """Set the topics of messages to the application's names."""
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
        suspend: Seconds = 0.0,
        timeout: Seconds | None = None,
    ) -> PullResult[MessageExt]:
        """Pull once from any queue, without prefetch, assignment and commits.

        If there are no messages, the broker holds the pull for up to `suspend`. Messages beyond
        `max_buffered_bytes` of memory are left for the next pull, except for the first one. Check
        the status of the result, and continue at its `next_begin_offset`. `timeout` is for the
        answer; both are in seconds or timedeltas.

        Raises:
            NotRunning: the consumer is not running here.
            NoRouteInfo, BrokerNotFound: the queue is unknown.
            TypeError, ValueError: an argument has the wrong type or is out of range.
            RemotingError: the broker does not answer, or answers with an error.
        """
        session = self._sessions.running()
        result = await session.puller.pull(
            self._namespace.wrap_queue(_queue("queue", queue)),
            whole("offset", offset, 0, MOST_OFFSET),
            Expression.of(tags, sql),
            max_messages=whole("max_messages", max_messages, 1, MOST_INT),
            suspend=seconds("suspend", suspend),
            timeout=seconds_or_none("timeout", timeout),
            room=self._max_buffered_bytes,
        )
        self._shown(result.messages)
        return result

    # Offsets

    async def seek(self, position: Position, *, queue: MessageQueue | None = None) -> None:
        """Continue at another position, in one queue or in all; prefetched messages are dropped.

        All queues are the current ones and, for a topic that was just subscribed to, those of the
        first rebalance. Queues of later rebalances continue at the group's stored offset.

        Args:
            position: an offset, `"begin"`, `"end"`, or a datetime (store time). The broker corrects
                an offset that does not exist to the nearest one.
            queue: one that this consumer reads; None for all.

        Raises:
            NotRunning: the consumer is not running here, or it reads no topic.
            TypeError, ValueError: the position is not one of these, or the queue is not read.
            RemotingError: a broker did not return an offset; nothing has changed.
        """
        check_position(position)
        read_here = None if queue is None else [self._read_here(queue)]
        session = self._reading_session()
        assignment = session.assignment
        queues = read_here or [*assignment.fetchers, *assignment.undivided_queues()]
        offsets = await asyncio.gather(*(session.offsets.resolve(q, position) for q in queues))
        for target, offset in zip(queues, offsets, strict=True):
            assignment.seek(target, offset)

    def position(self, queue: MessageQueue) -> int | None:
        """Return the offset of the next message to be delivered; None before it is known.

        Raises:
            NotRunning: the consumer is not running here.
            ValueError: the queue is not read by this consumer.
        """
        fetchers = self._sessions.running().assignment.fetchers
        return fetchers[self._read_here(queue)].pq.position

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit the offsets of all messages delivered so far, or the given offsets.

        Raises:
            NotRunning: the consumer is not running here.
            TypeError, ValueError: `offsets` does not map MessageQueues to offsets.
            RemotingError: the first error, after every queue was tried.
        """
        session = self._sessions.running()
        if offsets is None:
            session.ready.release()
            await session.committer.commit_owned(session.assignment.queues, strict=True)
            return
        if not isinstance(offsets, Mapping):
            raise TypeError(f"offsets must map MessageQueues to offsets, not {shown(offsets)}")
        wired = {
            self._namespace.wrap_queue(_queue("each key of offsets", queue)): whole(
                f"the offset of {queue}", at, 0, MOST_OFFSET
            )
            for queue, at in offsets.items()
        }
        keeps = [session.store.keeps(queue) for queue in wired]
        fetchers = session.assignment.fetchers
        for queue in wired.keys() & fetchers.keys():
            fetchers[queue].pq.committed = None  # unknown until the broker answers
        outcomes = await asyncio.gather(
            *(session.store.store(queue, at) for queue, at in wired.items()),
            return_exceptions=True,
        )
        errors = [outcome for outcome in outcomes if outcome is not None]
        for (queue, offset), error, kept in zip(wired.items(), outcomes, keeps, strict=True):
            if error is None and queue in fetchers:
                fetchers[queue].pq.committed = offset if kept else None
        if errors:
            raise errors[0]

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's stored offset; None if there is none. Raises NotRunning,
        RemotingError."""
        return await self._sessions.running().store.read(self._wire(queue))

    async def begin_offset(self, queue: MessageQueue) -> int:
        """Return the oldest offset that is still stored. Raises NotRunning, RemotingError."""
        return await self._sessions.running().offsets.min(self._wire(queue))

    async def end_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the queue's next message. Raises NotRunning, RemotingError."""
        return await self._sessions.running().offsets.max(self._wire(queue))

    # Sessions and queues

    @property
    def _session(self) -> PullSession:
        return self._sessions.current

    def _reading_session(self) -> PullSession:
        session = self._sessions.running()
        if not session.assignment.subscriptions:
            raise NotRunning(
                repr(self), "it reads no topic, so no message can come: assign or subscribe first"
            )
        return session

    async def _begun(self, topic: str, kind: Kind, expression: Expression) -> TopicRoute | None:
        session = self._sessions.running()
        return await session.instance.with_name_server(
            lambda timeout: session.assignment.begin(topic, kind, expression, timeout=timeout)
        )

    def _wire(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue with the topic name on the servers."""
        return self._namespace.wrap_queue(_queue("queue", queue))

    def _read_here(self, queue: MessageQueue) -> MessageQueue:
        """Do as `_wire`; raise ValueError for a queue that this consumer does not read."""
        wired = self._wire(queue)
        if wired not in self._sessions.running().assignment.fetchers:
            raise ValueError(
                f"{queue} is not read by this consumer: `assignment` lists what is; the share of a "
                "topic that was subscribed to comes in the background"
            )
        return wired

    def _chosen(self, queues: Iterable[MessageQueue] | None) -> list[MessageQueue]:
        if queues is None:
            return list(self._sessions.running().assignment.fetchers)
        return [self._read_here(queue) for queue in _queues("queues", queues)]


def _queue(name: str, queue: MessageQueue) -> MessageQueue:
    """Check a MessageQueue."""
    message_queue(name, queue)
    check_topic_name(queue.topic)
    return queue


def _queues(name: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    if isinstance(queues, MessageQueue | str | bytes) or not isinstance(queues, Iterable):
        raise TypeError(f"{name} must be a list of MessageQueues, not {shown(queues)}")
    return [_queue(f"each of {name}", queue) for queue in queues]
