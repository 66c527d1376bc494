"""The push consumer: delivers messages to your handlers and acknowledges each that is consumed.

    router = Router()

    @router.on("orders", "paid || refunded")
    async def bill(message: ConsumedMessage) -> None:
        ...                     # returns: done; raises: redelivered later

    consumer = PushConsumer("billing", router, namesrv="127.0.0.1:9876")
    asyncio.run(consumer.run())

or, in your own loop:

    async with PushConsumer("billing", {"orders": "paid || refunded"}) as consumer:
        async for message in consumer:
            async with message:
                ...

Delivery is at least once: the committed offset never passes a message that is not consumed.
Reference: DefaultMQPushConsumer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, Unpack

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.consumer_event import ConsumerEvent
from pocketmq.client.consumer.consumer_options import ConsumerOptions, ShareCallback
from pocketmq.client.consumer.consumer_state import ConsumerState
from pocketmq.client.consumer.dispatch.consumption import ConsumeOptions
from pocketmq.client.consumer.dispatch.failure_policy import FailurePolicy
from pocketmq.client.consumer.dispatch.handlers import BatchHandler, Handler, TypedHandler
from pocketmq.client.consumer.fetch.pull_limiter import PullLimits
from pocketmq.client.consumer.offsets.local_offset_store import default_directory
from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.consumer.push_session import PushOptions, PushSession
from pocketmq.client.consumer.rebalance.strategies import Strategy, average
from pocketmq.client.consumer.router import (
    Route,
    Router,
    Routing,
    already_subscribed,
    checked_route,
    merged,
    routes_of,
)
from pocketmq.client.consumer.running_info import MIB
from pocketmq.client.consumer.sessions import Sessions
from pocketmq.client.consumer.stop_signals import StopSignals
from pocketmq.client.errors import NotRunning
from pocketmq.client.log_fields import fields
from pocketmq.client.observation.consume_hooks import ConsumeHook, ConsumeHookList
from pocketmq.client.offsets import Position
from pocketmq.client.options import ClientOptions
from pocketmq.client.parameters import (
    Seconds,
    flag,
    function,
    seconds,
    seconds_or_none,
    whole,
)
from pocketmq.message.limits import RETRY_PREFIX
from pocketmq.message.message import MessageQueue

log = logging.getLogger(__name__)

#: The most redeliveries of a message; brokers store the number in four bytes.
MOST_REDELIVERIES = 2**31 - 1


class PushConsumer(ConsumerState, Routing):
    """Consumes messages for one consumer group.

    The constructor uses neither an event loop nor the network. You can start a consumer again after
    its shutdown. docs/consumer.md has a table of all options.

    Args:
        group: the consumer group. Its clients share the queues of a topic.
        subscriptions: a Router, or a mapping of topics to `"*"` or `"TagA || TagB"`.
        handler: for the messages of all topics of a mapping. Without any handler, iterate over the
            messages.
        namesrv: `"host:port;host:port"`, a list, or a URL; None for the environment's
            `NAMESRV_ADDR`. Needed at `start`; set `consumer.namesrv` to change it.
        orderly: lock each queue at its broker and consume it in order, one message at a time. A
            message that fails suspends its queue for `suspend_current_queue` seconds.
        broadcast: deliver every message to every client, keep the offsets in a file, and do not
            retry.
        offset_directory: where broadcast offsets are kept; None for `~/.rocketmq_offsets`.
        start: where a group without a stored offset begins: `"begin"`, `"end"`, a datetime (store
            time) or an offset.
        strategy: divides queues among the group's clients (`pocketmq.rebalance`); None for
            `average`.
        concurrency: the most concurrent handlers.
        max_reconsume_times: redeliveries before a message becomes a dead letter; None for 16, with
            `orderly` for no limit.
        dead_letter_on: types of exceptions that make a message a dead letter at once, for example
            `(PayloadError,)`.
        retry_delays: seconds (or timedeltas) before each redelivery by type of exception, for
            example `{TimeoutError: (1, 5, 30)}`; after the last one, the message becomes a dead
            letter. A broker has 18 delays from 1 s to 2 h: the next longer one is used. With
            `orderly`, the queue waits for exactly the given time.
        consume_timeout: seconds (or a timedelta) after which a handler is cancelled and its message
            redelivered; not with `orderly`.
        suspend_current_queue: see `orderly`; seconds or a timedelta.
        drop_expired_requests: drop requests whose sender no longer waits for the reply
            (`message.deadline`); `dropped_requests` counts them.
        pull_batch_size: the most messages per pull.
        suspend: seconds (or a timedelta) that a broker may hold a pull that finds no messages.
        share_polls: wait for messages of all queues of a broker in one request, if the broker
            supports the batch protocol.
        pull_threshold_for_queue, pull_threshold_for_topic: how many messages may be cached
            (pulled, not consumed) before pulling pauses; None for no limit.
        pull_threshold_size_for_queue, pull_threshold_size_for_topic: the same in MiB.
        max_buffered_bytes: the same in bytes, for all queues together.
        consume_concurrently_max_span: how many offsets a queue's last pulled message may be ahead
            of the first one not consumed before pulling pauses; not with `orderly`.
        commit_interval: seconds (or a timedelta) between two commits of offsets.
        shutdown_timeout: seconds (or a timedelta) that handlers may take to end before `shutdown`
            cancels them.
        hooks: called before and after the handling of messages; you may change `consumer.hooks`.
        trace: True, or the name of a topic, to record the handling of every message there.
        on_event: called with each ConsumerEvent: connections, reading, group, locks, queues.
        on_assigned, on_revoked: called, and awaited for up to 10 s, with the queues of a shared
            topic that this client gains, before they are read, and those that it loses, before
            other clients can get them.
        **options: the options of every client (ClientOptions); `start_timeout` is 30 s by default.

        Raises:
            InvalidName: the group or a topic is malformed.
        TypeError, ValueError: an argument has the wrong type or is out of range; the text names it.
    """

    _message_type: ClassVar[type[ConsumedMessage]] = ConsumedMessage
    _pauses: ClassVar[Pauses] = Pauses()
    _sessions: Sessions[PushSession]

    def __init__(
        self,
        group: str,
        subscriptions: Router | Mapping[str, str] | None = None,
        *,
        handler: Handler | None = None,
        namesrv: str | Sequence[str] | None = None,
        orderly: bool = False,
        broadcast: bool = False,
        offset_directory: Path | str | None = None,
        start: Position = "end",
        strategy: Strategy | None = None,
        concurrency: int = 64,
        max_reconsume_times: int | None = None,
        dead_letter_on: Sequence[type[Exception]] = (),
        retry_delays: Mapping[type[Exception], Sequence[Seconds]] | None = None,
        consume_timeout: Seconds = 900.0,
        suspend_current_queue: Seconds = 1.0,
        drop_expired_requests: bool = True,
        pull_batch_size: int = 256,
        suspend: Seconds = 15.0,
        share_polls: bool = True,
        pull_threshold_for_queue: int = 1000,
        pull_threshold_size_for_queue: int = 100,
        pull_threshold_for_topic: int | None = None,
        pull_threshold_size_for_topic: int | None = None,
        max_buffered_bytes: int = 256 * 1024 * 1024,
        consume_concurrently_max_span: int = 2000,
        commit_interval: Seconds = 5.0,
        shutdown_timeout: Seconds = 10.0,
        hooks: Sequence[ConsumeHook] = (),
        trace: bool | str = False,
        on_event: Callable[[ConsumerEvent], object] | None = None,
        on_assigned: ShareCallback | None = None,
        on_revoked: ShareCallback | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self.group = group
        self.orderly = flag("orderly", orderly)
        self.broadcast = flag("broadcast", broadcast)
        policy = FailurePolicy(dead_letter_on, retry_delays)
        if policy and broadcast:
            raise ValueError(
                "dead_letter_on and retry_delays have no effect with broadcast=True, which retries "
                "nothing and has no dead letters"
            )
        self.hooks = ConsumeHookList(hooks)
        topic_size = whole_or_none(
            "pull_threshold_size_for_topic", pull_threshold_size_for_topic, 1
        )
        queue_size = whole("pull_threshold_size_for_queue", pull_threshold_size_for_queue, 1)
        span = whole("consume_concurrently_max_span", consume_concurrently_max_span, 1)
        common = ConsumerOptions.checked(
            type(self),
            group,
            start=start,
            batch=whole("pull_batch_size", pull_batch_size, 1),
            commits=True,
            commit_interval=seconds("commit_interval", commit_interval, above_zero=True),
            suspend=suspend,
            share_polls=share_polls,
            limits=PullLimits(
                queue_count=whole("pull_threshold_for_queue", pull_threshold_for_queue, 1),
                queue_size=queue_size * MIB,
                queue_span=None if orderly else span,
                topic_count=whole_or_none("pull_threshold_for_topic", pull_threshold_for_topic, 1),
                topic_size=topic_size and topic_size * MIB,
                total_size=whole("max_buffered_bytes", max_buffered_bytes, 1),
            ),
            trace=trace,
            on_event=on_event,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            client=options,
        )
        every = PushOptions(
            common,
            ConsumeOptions(
                group=common.wire_group,
                orderly=orderly,
                broadcast=broadcast,
                concurrency=whole("concurrency", concurrency, 1),
                max_reconsume_times=whole_or_none(
                    "max_reconsume_times", max_reconsume_times, 0, MOST_REDELIVERIES
                ),
                suspend_current_queue=seconds("suspend_current_queue", suspend_current_queue),
                policy=policy,
                drop_expired_requests=flag("drop_expired_requests", drop_expired_requests),
            ),
            consume_timeout=seconds("consume_timeout", consume_timeout, above_zero=True),
            strategy=average if strategy is None else function("strategy", strategy),
            offset_directory=Path(offset_directory or default_directory()),
            shutdown_timeout=seconds("shutdown_timeout", shutdown_timeout),
        )
        self._own_routes = Router()
        self._routers = (routes_of(subscriptions, handler), self._own_routes)
        self._sessions = Sessions(
            repr(self), namesrv, lambda servers: self._made_session(every, servers)
        )
        merged(self._routers)

    def __repr__(self) -> str:
        return f"PushConsumer({self.group!r})"

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues of the subscribed topics that this consumer reads now."""
        session = self._sessions.present
        if session is None:
            return []
        unwrap = session.instance.namespace.unwrap_queue
        return sorted(
            unwrap(queue)
            for queue in session.assignment.fetchers
            if not queue.topic.startswith(RETRY_PREFIX)
        )

    @property
    def cached(self) -> dict[str, tuple[int, int]]:
        """Number of cached messages (received, not consumed) and bytes of their bodies, by topic.
        Redelivered ones are under the group's retry topic. May be read from any thread."""
        session = self._sessions.present
        found: dict[str, tuple[int, int]] = {}
        if session is not None and session.life.running:
            unwrap = session.instance.namespace.unwrap
            # An atomic copy: the consumer's own thread may change the mapping.
            for fetcher in list(session.assignment.fetchers.values()):
                held = fetcher.pq
                topic = unwrap(held.queue.topic)
                messages, size = found.get(topic, (0, 0))
                found[topic] = messages + held.count, size + held.body_size
        return found

    @property
    def dropped_requests(self) -> int:
        """Number of requests dropped since the last start because their sender no longer waited."""
        session = self._sessions.present
        return 0 if session is None else session.consumption.expired.count

    # Topics

    def _take(self, route: Route) -> None:
        if self._is_running:
            raise ValueError("a running consumer takes new topics by subscribe()")
        if any(route.topic == other.topic for other in self._routers[0]):
            raise ValueError(already_subscribed(route.topic))
        self._adapt(route.function)  # raises for a function of the wrong kind
        self._own_routes._take(route)

    async def subscribe(
        self,
        topic: str,
        tags: str = "*",
        *,
        sql: str | None = None,
        handler: Handler | BatchHandler | TypedHandler[Any] | None = None,
        max_batch: int | None = None,
        max_wait: Seconds | None = None,
        payload: Any = None,
    ) -> None:
        """Consume another topic, until `unsubscribe` or `shutdown`.

        `handler` is needed if other topics have one; the arguments are those of `on`.

        Raises:
            NotRunning: the consumer is not running here.
            NoNameServer: no name server answers within `start_timeout`.
            InvalidName: the topic, the tags or the SQL condition are malformed.
            TypeError, ValueError: as `on`; or a handler is missing.
            RemotingError: a broker cannot evaluate the SQL condition.
        """
        route = checked_route(topic, tags, sql, handler, max_batch, payload, max_wait)
        await self._sessions.running().subscribe(route)

    async def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic; commit its consumed offsets.

        Raises:
            NotRunning: the consumer is not running here.
        """
        session = self._sessions.running()
        checked_route(topic)
        await session.unsubscribe(topic)

    # Life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.shutdown()

    async def start(self) -> None:
        """Begin to consume, also again after a shutdown. After an error, nothing is left running.

        Waits up to `start_timeout` for a name server.

        Raises:
            NotRunning: it was shut down while it started, or it runs in another event loop.
            NoNameServer: no name server address is known, or none answers in time.
            ValueError: only some of the topics have handlers.
            OffsetFileError: the file with broadcast offsets cannot be read.
            RemotingError: a broker cannot evaluate a SQL condition.
        """
        await (await self._sessions.next()).start(merged(self._routers).values())

    async def run(self, *, timeout: Seconds | None = None, handle_signals: bool = True) -> None:
        """Consume until SIGTERM, SIGINT, `shutdown`, or cancellation; then drain and leave.

        After the first signal, the consumer accepts no more messages, waits for the running
        handlers, commits, and leaves the group; then `run` returns. A second signal cancels the
        handlers at once.

        Args:
            timeout: seconds (or a timedelta) that handlers may take to end before they are
                cancelled; None for `shutdown_timeout`.
            handle_signals: False to leave signal handling unchanged. That is also the case outside
                the main thread, and for signals for which your program has handlers.

        Raises:
            NotRunning: the consumer has no handler; and the errors of `start`.
        """
        drain = seconds_or_none("timeout", timeout)
        flag("handle_signals", handle_signals)
        routes = merged(self._routers)
        if not any(route.function for route in routes.values()):
            raise NotRunning(
                repr(self),
                "it has no handler: add one with @consumer.on(...) or a Router, or use "
                "`async with` and iterate over the messages",
            )
        session = await self._sessions.next()
        if drain is not None:
            session.shutdown_timeout = drain
        with StopSignals(self._stop_now, self._hurry_now, enabled=handle_signals):
            try:
                await session.start(routes.values())
                await session.ended.wait()
            except NotRunning:
                if not session.life.closing:
                    raise  # else it was shut down while it started
            finally:
                await session.shutdown()

    def _stop_now(self) -> None:
        """Begin the shutdown; called in the event loop."""
        session = self._session
        log.info(
            "group %s stops: its handlers have %g s to end",
            self.group,
            session.shutdown_timeout,
            extra=fields(group=self.group),
        )
        self._stopping = asyncio.ensure_future(session.life.shutdown())

    def _hurry_now(self) -> None:
        """Let the shutdown cancel the running handlers."""
        self._session.hurry()

    async def shutdown(self) -> None:
        """Stop pulling, let the running handlers end, commit, leave the group, and close.

        A handler may call this: the shutdown does not wait for it, and cancels it here. Has no
        effect on a consumer that is not running.
        """
        session = self._sessions.to_shut_down()
        if session is not None:
            await session.shutdown()

    def pause(self) -> None:
        """Pull and deliver nothing until `resume`; running handlers continue.

        Raises:
            NotRunning: the consumer is not running here.
        """
        self._sessions.running().pause()

    def resume(self) -> None:
        """Continue after `pause`.

        Raises:
            NotRunning: the consumer is not running here.
        """
        self._sessions.running().resume()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumedMessage:
        """Wait for the next message; the iteration ends when the consumer is shut down.

        Delivered messages count as cached until they are acknowledged, so the iteration waits when
        too many are not.

        Raises:
            NotRunning: the consumer is not started, subscribes to nothing, or runs in another event
                loop.
            ValueError: the consumer has handlers.
        """
        session = self._sessions.present
        if session is None or not session.instance.running:
            if session is None or not session.begun:
                raise NotRunning(repr(self), "start it before you iterate over its messages")
            raise StopAsyncIteration
        if session.handlers:
            raise ValueError(f"the messages of {self!r} go to its handlers: do not iterate over it")
        message = await session.iteration.next()
        if message is None:
            raise StopAsyncIteration
        return message

    # Sessions

    @property
    def _is_running(self) -> bool:
        session = self._sessions.present
        return session is not None and session.instance.running

    def _check_wait(self) -> None:
        """Raise NotRunning if an iteration would wait for ever."""
        if not self._sessions.running().wanted.has_topics:
            raise NotRunning(repr(self), "it subscribes to no topic, so no message can come")

    def _adapt(self, function: Any) -> Any:
        return function

    def _made_session(
        self, options: PushOptions, namesrv: str | Sequence[str] | None
    ) -> PushSession:
        session = PushSession(
            options, namesrv, self.hooks, self._message_type, self._adapt, self._pauses
        )
        session.iteration.before_wait = self._check_wait
        return session

    @property
    def _session(self) -> PushSession:
        return self._sessions.current


def whole_or_none(name: str, value: int | None, low: int, high: int | None = None) -> int | None:
    """Check a whole number, or None."""
    return None if value is None else whole(name, value, low, high)
