"""The producer: sends messages, one by one or in batches, to a broker that accepts them.

    async with Producer("orders", namesrv="127.0.0.1:9876") as producer:
        result = await producer.send(Message("orders", b"...", tags="paid", keys=["o-1"]))

The path of a send: validation.check_message → prepared_message.prepare → Sender.send → route of the
topic → Delivery.deliver (the selector chooses a queue; attempts) → SEND_MESSAGE_V2 over the pool →
SendResult. SendEnvelope adds hooks, the namespace, and the queue of a key. A message that shares a
request with others goes through the Accumulator.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import warnings
from collections.abc import Awaitable, Sequence
from typing import Self, Unpack

from pocketmq.client.errors import SHUT_DOWN
from pocketmq.client.in_flight import InFlight
from pocketmq.client.instance import ClientInstance
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.log_fields import fields
from pocketmq.client.observation.send_hooks import (
    AFTER,
    BEFORE,
    AnySendHook,
    HookList,
    SendContext,
    SendKind,
)
from pocketmq.client.observation.trace import SendTrace, TraceDispatcher, recalled
from pocketmq.client.options import ClientOptions, check_options
from pocketmq.client.parameters import (
    MOST_INT,
    Milliseconds,
    Seconds,
    each_milliseconds,
    flag,
    functions,
    milliseconds,
    one_of,
    seconds,
    seconds_or_none,
    shown,
    text,
    unix_seconds,
    whole,
)
from pocketmq.client.producer.accumulator import SMALL_BODY, Accumulator, ConcurrentSends
from pocketmq.client.producer.batch_sender import BatchSender
from pocketmq.client.producer.delivery import RetryPolicy
from pocketmq.client.producer.outage_log import LostPosts
from pocketmq.client.producer.prepared_message import COMPRESSIONS, Compression
from pocketmq.client.producer.queue_choice import Selector, ShardingKey, selector_named
from pocketmq.client.producer.recall import checked_handle
from pocketmq.client.producer.request_reply import RequestReply
from pocketmq.client.producer.send_envelope import (
    NOWHERE,
    SendEnvelope,
    check_target,
    running_loop,
)
from pocketmq.client.producer.sender import Sender
from pocketmq.client.remote_switches import RemoteSwitches
from pocketmq.client.selector.detector import Detector
from pocketmq.client.selector.filters import QueueFilter
from pocketmq.client.selector.latency import (
    LATENCY_MAX_MS,
    NOT_AVAILABLE_DURATION_MS,
    BrokerState,
    LatencyFaultTolerance,
)
from pocketmq.client.selector.penalty import Selection
from pocketmq.client.selector.pipeline import QueueSelector
from pocketmq.client.selector.switches import Switches
from pocketmq.client.send_result import UNCONFIRMED, SendResult
from pocketmq.client.validation import (
    check_message,
    check_messages,
    check_topic_name,
    check_trace,
    check_type,
    goes_alone,
    producer_group,
)
from pocketmq.message.limits import MAX_BODY, TBW102, TRACE_TOPIC
from pocketmq.message.message import Message, MessageExt, MessageQueue
from pocketmq.remoting.errors import RETRIABLE_CODES

log = logging.getLogger(__name__)

# Before Python 3.12 the member of an enum takes longer to look up than a hook to call.
_SINGLE = SendKind.SINGLE


class Producer:
    """Send messages for one producer group.

    The constructor needs no event loop. `start` and `shutdown` are idempotent; `async with` calls
    both. Options, with the reference's names in brackets:

    - `namesrv`: "host:port;host:port", a list, or the URL of a list
      (`pocketmq.client.routes.name_server_list`); None reads the environment's NAMESRV_ADDR.
    - `timeout`: seconds for one call, all attempts together (sendMsgTimeout).
    - `retries`: attempts after the first, of those that reached a broker
      (retryTimesWhenSendFailed); after that, each queue not tried yet is tried once. An attempt
      that finds no connection, or loses it, does not count. 0: transmit a message at most once.
    - `attempt_timeout`: seconds for one attempt while others could follow; None divides the rest
      of `timeout` (sendMsgMaxTimeoutPerRequest).
    - `require_send_ok`: treat a message that is stored but not confirmed in time
      (FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE) as a failed attempt and retry
      it, so it may be stored twice (retryAnotherBrokerWhenNotStoreOK). False: return a result with
      that status.
    - `queue_selector`: chooses the queue of a `key`: "hash" (as the Java client), "consistent" or
      a function (`pocketmq.client.producer.queue_choice`).
    - `linger_ms`: how long `send` waits for other messages to share a batch (autoBatch,
      batchMaxDelayMs); 0: send at once.
    - `accumulate`: put small messages that are sent at the same moment into a batch; none waits
      for others (`pocketmq.client.producer.accumulator`). False: a request for each message.
    - `max_buffered_bytes`: limit of the lingering or posted messages without an answer; further
      ones wait (totalBatchMaxBytes).
    - `compression`: "zlib", "lz4", "zstd" or None, for bodies of at least `compress_over` bytes, at
      `compression_level` (compressType, compressMsgBodyOverHowmuch). Batches are not compressed.
    - `max_message_size`: largest body before compression, bytes (maxMessageSize).
    - `batch_bytes`: largest body of a batch; at most 120,000 for lingering, posted and accumulated
      messages.
    - `max_in_flight`: concurrent calls; further ones wait within their timeout.
    - `hooks`: called before and after sends (`pocketmq.hooks`); you may change `producer.hooks`.
    - `trace`: True, or a topic, to record every send there (enableMsgTrace).
    - `template_topic`, `template_queues`: how a topic that does not exist is created
      (createTopicKey, defaultTopicQueueNums).
    - `filters`: your own queue filters (`pocketmq.selector`).
    - `send_latency_enable`, `start_detector_enable`, `detect_interval_ms`, `detect_timeout_ms`:
      the switches of RIP-63, which the name server may override
      (`pocketmq.client.selector.switches`).
    - `latency_max_ms`, `not_available_duration_ms`: the table of isolations.
    - `selection`: "penalised" or "round-robin" (`pocketmq.client.selector.penalty`).
    - the options of every client: credentials, TLS, namespace … (`pocketmq.client.options`).

    Raises:
        TypeError, ValueError: an option is unknown, or its value is not allowed.
        InvalidName: the group, the namespace or an address is malformed.
        NoNameServer: no address of a name server is given anywhere.
    """

    def __init__(
        self,
        group: str,
        *,
        namesrv: str | Sequence[str] | None = None,
        timeout: Seconds = 10.0,
        retries: int = 2,
        attempt_timeout: Seconds | None = None,
        require_send_ok: bool = False,
        queue_selector: str | Selector = "hash",
        linger_ms: Milliseconds = 0,
        accumulate: bool = True,
        max_buffered_bytes: int = 32 * 1024 * 1024,
        compression: str | None = "zlib",
        compress_over: int = 4096,
        compression_level: int = 5,
        max_message_size: int = MAX_BODY,
        batch_bytes: int = 1024 * 1024,
        max_in_flight: int = 32_768,
        hooks: Sequence[AnySendHook] = (),
        trace: bool | str = False,
        template_topic: str = TBW102,
        template_queues: int = 4,
        filters: Sequence[QueueFilter] = (),
        send_latency_enable: bool = True,
        start_detector_enable: bool = True,
        detect_interval_ms: Milliseconds = 2000,
        detect_timeout_ms: Milliseconds = 200,
        latency_max_ms: Sequence[Milliseconds] = LATENCY_MAX_MS,
        not_available_duration_ms: Sequence[Milliseconds] = NOT_AVAILABLE_DURATION_MS,
        selection: Selection | str = "penalised",
        **client: Unpack[ClientOptions],
    ) -> None:
        check_options(type(self), client)
        self.group = producer_group(group)
        self.hooks = HookList(hooks)
        timeout = seconds("timeout", timeout)
        linger = milliseconds("linger_ms", linger_ms) * 0.001
        detect_interval = milliseconds("detect_interval_ms", detect_interval_ms, above_zero=True)
        detect_timeout = milliseconds("detect_timeout_ms", detect_timeout_ms, above_zero=True)
        whole("retries", retries)
        one_of("compression", compression, [*COMPRESSIONS, None])
        for name, number in (
            ("max_buffered_bytes", max_buffered_bytes),
            ("compress_over", compress_over),
            ("max_message_size", max_message_size),
            ("batch_bytes", batch_bytes),
            ("max_in_flight", max_in_flight),
            ("template_queues", template_queues),
        ):
            whole(name, number, 1)
        for name, value in (
            ("accumulate", accumulate),
            ("require_send_ok", require_send_ok),
            ("send_latency_enable", send_latency_enable),
            ("start_detector_enable", start_detector_enable),
        ):
            flag(name, value)
        check_trace(trace)
        text("template_topic", template_topic)
        whole("compression_level", compression_level, -MOST_INT, MOST_INT)
        functions("filters", filters)
        if not isinstance(selection, Selection):
            one_of("selection", selection, [each.value for each in Selection])
        self._max_message_size = max_message_size
        self._clock = time.monotonic
        self._in_flight = InFlight(max_in_flight)
        self._instance = ClientInstance(
            namesrv,
            owner="producer",
            template=template_topic,
            template_queues=template_queues,
            **client,
        )
        self._namespace = self._instance.namespace
        self._instance.heartbeat.add_producer(self._namespace.wrap(group))
        self._routes = self._instance.routes
        self._pool = self._instance.pool
        self._selector = QueueSelector(
            self._clock,
            switches=Switches(
                send_latency_enable=send_latency_enable,
                start_detector_enable=start_detector_enable,
                detect_interval=math.ceil(detect_interval),
                detect_timeout=math.ceil(detect_timeout),
            ),
            filters=filters,
            selection=Selection(selection),
            tolerance=LatencyFaultTolerance(
                self._clock,
                latency_max_ms=each_milliseconds("latency_max_ms", latency_max_ms),
                not_available_duration_ms=each_milliseconds(
                    "not_available_duration_ms", not_available_duration_ms
                ),
            ),
        )
        self._sender = Sender(
            self._instance,
            self._namespace.wrap(group),
            self._selector,
            RetryPolicy(
                retries=retries,
                attempt_timeout=seconds_or_none(
                    "attempt_timeout", attempt_timeout, above_zero=True
                ),
                retried_codes=RETRIABLE_CODES | UNCONFIRMED if require_send_ok else RETRIABLE_CODES,
            ),
            compression=Compression.named(compression, compress_over, compression_level),
            template=template_topic,
            template_queues=template_queues,
            refused=UNCONFIRMED if require_send_ok else frozenset(),
        )
        batch_bytes = min(batch_bytes, max_message_size)
        batches = BatchSender(
            self._sender,
            max_bytes=batch_bytes,
            max_message_size=max_message_size,
            extra=self._namespace.property,
        )
        self._calls = SendEnvelope(
            self._sender,
            batches,
            self._namespace,
            self.hooks,
            self._in_flight,
            self._instance.binding,
            selector_named(queue_selector),
            group=group,
            client_id=self.client_id,
            timeout=timeout,
            max_message_size=max_message_size,
        )
        self._lingers = linger > 0
        self._accumulator = Accumulator(
            self._calls.send_accumulated,
            self._instance.spawn,
            LostPosts(group),
            linger=linger,
            max_bytes=batch_bytes,
            max_buffered=max_buffered_bytes,
        )
        below = 0 if not accumulate else compress_over if compression else SMALL_BODY
        self._calls.share_by(ConcurrentSends(self._accumulator, self._calls.send_alone, below))
        self._replies = RequestReply(self._instance, self._calls.send_one)
        self._detector = Detector(
            self._selector, self._routes.masters, self._sender.probe, self._routes.poll
        )
        self._remote_switches = RemoteSwitches(self._instance.name_servers, self._selector)
        self._instance.with_route_poll(self._remote_switches.read)
        self._trace: TraceDispatcher | None = None
        if trace:
            topic = TRACE_TOPIC if trace is True else trace
            self._trace = TraceDispatcher(self._calls.send_plain, topic)
            self.hooks.append(SendTrace(self._trace))
        self._life = Lifecycle(self._instance.start, self._begin, self._close)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.group!r}, client_id={self.client_id!r})"

    def __del__(self) -> None:
        calls = getattr(self, "_calls", None)  # None if the constructor failed
        if calls is None or calls.loop is NOWHERE:
            return
        lost = self._accumulator.pending
        warnings.warn(f"{self!r} was never shut down", ResourceWarning, stacklevel=2, source=self)
        if lost:
            log.warning(
                "%r was never shut down: %d messages that were posted are lost; "
                "use the producer in `async with`, or call shutdown()",
                self,
                lost,
                extra=fields(group=self.group),
            )

    @property
    def timeout(self) -> float:
        """Default timeout of a call, seconds; may be changed."""
        return self._calls.timeout

    @timeout.setter
    def timeout(self, value: Seconds) -> None:
        self._calls.timeout = seconds("timeout", value)

    @property
    def client_id(self) -> str:
        """The clientId, by which brokers identify this client."""
        return self._instance.client_id

    @property
    def running(self) -> bool:
        """Whether the producer was started and is not shut down or shutting down."""
        return self._life.running

    @property
    def in_flight(self) -> int:
        """Number of concurrent calls, which `max_in_flight` limits."""
        return self._in_flight.count

    @property
    def buffered_bytes(self) -> int:
        """Bytes of lingering and posted messages without an answer, which `max_buffered_bytes`
        limits."""
        return self._accumulator.buffered

    @property
    def brokers(self) -> tuple[BrokerState, ...]:
        """The state of each broker that was used; shows which ones are avoided now."""
        return self._selector.tolerance.states()

    @property
    def healthy(self) -> bool:
        """Whether the producer runs and sends are likely to succeed: a broker that it has sent to
        was reachable last time; before the first send, a name server. Sends no request; see
        `ping`."""
        brokers = self.brokers
        if not brokers:
            return self.running and self._instance.name_servers.answering
        return self.running and any(broker.reachable for broker in brokers)

    @property
    def last_success(self) -> float | None:
        """When a broker last stored a message, Unix seconds; None before the first one."""
        answered_at = self._selector.answered_at
        return None if answered_at is None else unix_seconds(answered_at)

    async def ping(self, *, timeout: Seconds = 1.0) -> None:
        """Return when a broker of the topics in use has answered; before the first send, when a
        name server has.

        Raises:
            NotRunning: the producer is not running here.
            Unavailable: none answered within `timeout` (seconds or a timedelta).
        """
        await self._instance.ping(seconds("timeout", timeout, above_zero=True))

    @property
    def switches(self) -> Switches:
        """The current switches of RIP-63, including overrides by the name server."""
        return self._selector.switches

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.shutdown()

    async def start(self) -> None:
        """Start the producer. A second call has no effect.

        Raises:
            NotRunning: the producer was shut down.
            NoNameServer: the list of name servers cannot be read, or none of them could be reached
                within `start_timeout`.
        """
        await self._life.start()

    async def _begin(self) -> None:
        self._calls.begin()
        self._instance.keep(self._detector.run, "detector")
        if self._trace is not None:
            self._instance.keep(self._trace.run, "trace")

    async def shutdown(self) -> None:
        """Refuse new sends, wait up to `timeout` for pending ones, and close everything.

        Raises:
            NotRunning: this process was forked after the start: the connections belong to the
                parent.
        """
        self._instance.binding.check_process("producer")
        await self._life.shutdown()

    async def _close(self) -> None:
        self._calls.end(SHUT_DOWN)
        try:
            async with asyncio.timeout(self.timeout):
                await self._accumulator.flush()
                await self._in_flight.drained(self.timeout)
                await self.hooks.finished()
                if self._trace is not None:
                    await self._trace.finish()
        except TimeoutError:
            told, left = fields(group=self.group), self._accumulator.buffered
            log.warning(
                "the producer shut down with %d bytes of messages unanswered", left, extra=told
            )
        finally:
            await self._instance.shutdown()
            self._accumulator.abandon()
            self._replies.abandon()

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: ShardingKey | None = None,
        timeout: Seconds | None = None,
    ) -> SendResult:
        """Send one message and return where it was stored.

        `queue` sends it to that queue, `key` to the queue of that key: messages with equal keys
        stay in order if you await each before the next, or let them linger. Otherwise the selector
        chooses a queue, and failed attempts are retried on other brokers. `timeout`, in seconds, is
        for all attempts together; a message with a timeout does not linger.

        Raises:
            InvalidMessage, InvalidName, TypeError, ValueError: an argument is wrong; nothing was
                sent.
            NotRunning: the producer was not started, was shut down, or runs in another event loop.
            NoRouteInfo: the topic has no route and cannot be created.
            NoNameServer: no name server answered.
            SendTimeout: no broker accepted the message within `timeout`.
            SendError: the attempts are used up, or an answer was final.
        """
        if self._lingers and timeout is None:
            return await (await self.post(message, queue=queue, key=key))
        calls = self._calls
        if queue is not None or key is not None:
            check_target(queue, key)
        deadline = self._clock() + (
            calls.timeout if timeout is None else seconds("timeout", timeout)
        )
        # A fast path for the usual case, without the frame of `enter`.
        if running_loop() is not calls.loop or not self._in_flight.try_enter():
            check_type(message)
            await calls.enter(message.topic, deadline)
        shares = timeout is None
        try:
            if not (hooks := self.hooks):
                return await calls.send(message, queue, key, deadline, shares)
            # What `SendEnvelope._observed` does, without its frame.
            check_type(message)
            context = SendContext(_SINGLE, self.group, self._instance.client_id, [message])
            if (waiting := hooks.call(BEFORE, context)) is not None:
                await waiting
            try:
                result = await calls.send(context.messages[0], queue, key, deadline, shares)
                context.ended(result, None)
                return result
            except BaseException as error:
                context.ended(None, error)
                raise
            finally:
                if (waiting := hooks.call(AFTER, context)) is not None:
                    await waiting
        finally:
            self._in_flight.leave()

    async def post(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: ShardingKey | None = None,
    ) -> Awaitable[SendResult]:
        """Queue a message to be sent in a batch; await the returned object for its result.

            results = [await each for each in [await producer.post(m) for m in messages]]

        `linger_ms` and `batch_bytes` determine when batches are sent
        (`pocketmq.client.producer.accumulator`). The call itself waits only while
        `max_buffered_bytes` is reached. A message that cannot be in a batch (with a delay, a timer,
        a priority, or to a retry topic) is sent alone.

        Raises:
            InvalidMessage, InvalidName, TypeError: an argument is wrong.
            NotRunning: as for `send`.
        """
        plain = queue is None and key is None and not (self.hooks or self._namespace.name)
        if plain:
            check_message(message, self._max_message_size)
        else:
            check_type(message)
        if goes_alone(message):
            alone = await self._calls.alone(message, queue, key)
            topic = self._namespace.wrap(message.topic)
            return self._accumulator.count(self._instance.spawn(alone, "send"), topic)
        if not plain:
            return await self._calls.post(self._accumulator, message, queue, key)
        # A fast path for the usual case, without the frame of `SendEnvelope.post`.
        if running_loop() is not self._calls.loop:
            raise self._calls.not_running()
        accumulator = self._accumulator
        if accumulator.buffered >= accumulator.max_buffered or accumulator.waiting:
            await accumulator.room()
            self._calls.check_running()
        return accumulator.add(message, None)

    async def flush(self) -> None:
        """Send lingering messages now, and wait until every message posted so far is answered.

        Raises:
            NotRunning: this process was forked after the start.
        """
        self._instance.binding.check_process("producer")
        await self._accumulator.flush()

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: ShardingKey | None = None,
        timeout: Seconds | None = None,
    ) -> None:
        """Write one message to a broker's connection, without an answer: it may be lost.

        Raises:
            SendTimeout: no broker could be connected within `timeout`.
            InvalidMessage, NoRouteInfo and others: as for `send`.
        """
        check_type(message)
        await self._calls.send_oneway(message, queue=queue, key=key, timeout=timeout)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        key: ShardingKey | None = None,
        timeout: Seconds | None = None,
    ) -> list[SendResult]:
        """Send messages in as few batches as possible; return the results in the same order.

        Batches are split by topic, by wait_stored and at `batch_bytes`. Each goes to one queue and
        keeps its order; different ones may go to different queues. With `queue` or `key` (all
        messages of one topic), the batches are sent to that queue one after another, up to the
        first failure. `timeout` is for all of them together.

        Raises:
            InvalidMessage, TypeError: a message is wrong; nothing was sent.
            BatchSendError: some messages were not stored.
        """
        check_messages(messages)
        return await self._calls.send_batch(messages, queue=queue, key=key, timeout=timeout)

    async def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: ShardingKey | None = None,
        timeout: Seconds | None = None,
    ) -> MessageExt:
        """Send a message to which a consumer replies, and return the reply.

        `timeout`, in seconds, is for both together.

        Raises:
            RequestTimeout: the message was stored, but no reply came.
            SendError and others: as for `send`.
        """
        check_type(message)
        check_target(queue, key)
        timeout = self.timeout if timeout is None else seconds("timeout", timeout)
        return await self._replies.request(message, queue=queue, key=key, timeout=timeout)

    async def reply(
        self, request: MessageExt, body: bytes, *, timeout: Seconds | None = None
    ) -> SendResult:
        """Reply to a received message that was sent with `request`.

        RocketMQ has no error replies: put the outcome of the request into the body.

        Raises:
            InvalidMessage: the message is not a request.
            TypeError: `request` is not a MessageExt, or `body` is not bytes.
            RequesterGone: the requester is no longer connected to any broker.
            SendError and others: as for `send`.
        """
        if not isinstance(request, MessageExt):
            raise TypeError(f"request must be a message that was received, not {shown(request)}")
        if not isinstance(body, bytes | bytearray | memoryview):
            raise TypeError(f"body must be bytes, not {shown(body)}")
        return await self._replies.reply(request, body, timeout)

    async def recall(
        self, topic: str, recall_handle: str | None, *, timeout: Seconds | None = None
    ) -> str:
        """Cancel a message with a timer that is not due yet; return its unique id.

        `recall_handle` is the one of its SendResult.

        Raises:
            InvalidMessage: it is not a recall handle; it is None for a message without a timer.
            IllegalOperation: the message was delivered already, or is about to be; or it belongs to
                another topic.
            NoPermission: the broker has `recallMessageEnable=false`.
            NoRouteInfo, NoNameServer: the topic had no route within `timeout`.
            BrokerNotFound: no route contains the broker of the handle.
            RemotingError: the broker did not answer, or answered with another error.
        """
        check_topic_name(topic)
        deadline = self._calls.deadline(timeout)
        handle = checked_handle(recall_handle)
        self._instance.check_running()
        msg_id = await self._sender.recall(self._namespace.wrap(topic), handle, deadline)
        if self._trace is not None:
            self._trace.append(recalled(self.group, topic, msg_id))
        return msg_id

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """List the queues to which messages of this topic may be sent (fetchPublishMessageQueues).

        Raises:
            NoRouteInfo, NoNameServer: the topic had no route within the producer's `timeout`.
        """
        check_topic_name(topic)
        self._instance.check_running()
        queues = await self._sender.queues(self._namespace.wrap(topic), self._calls.deadline(None))
        return tuple(map(self._namespace.unwrap_queue, queues)) if self._namespace else queues
