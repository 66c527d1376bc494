"""The producer: sends messages, one by one or in batches, to whichever broker takes them.

    async with Producer("orders", namesrv="127.0.0.1:9876") as producer:
        result = await producer.send(Message("orders", b"...", tags="paid", keys=["o-1"]))

The way of a send: validation.check_message → outgoing.prepare → route of the topic →
Delivery.deliver (queue by the selector, attempts) → SEND_MESSAGE_V2 over the pool → SendResult.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar

from client.errors import BatchSendError, InvalidMessage, NotRunning, RemotingError
from client.in_flight import InFlight
from client.instance import ClientInstance
from client.producer.batch import BatchPart, split
from client.producer.delivery import Delivery, RetryPolicy
from client.producer.outgoing import Compression, Outgoing, compress_body, prepare
from client.producer.result import SendResult
from client.remote_switches import RemoteSwitches
from client.selector.detector import Detector
from client.selector.filters import QueueFilter
from client.selector.latency import (
    LATENCY_MAX_MS,
    NOT_AVAILABLE_DURATION_MS,
    LatencyFaultTolerance,
)
from client.selector.pipeline import PublishQueues, QueueSelector
from client.selector.switches import Switches
from client.validation import check_message, producer_group
from message.identity import new_unique_id
from message.limits import MAX_BODY, TBW102
from message.message import Message, MessageQueue
from remoting.codes import RequestCode
from remoting.frame import Command
from remoting.headers.offset import GetMaxOffsetRequestHeader

__all__ = ["Producer"]

#: Parts of one `send_batch` that are on the way at the same time; those to one broker together.
BATCH_CONCURRENCY = 32
#: For a chosen queue: its order would not survive a message that goes elsewhere, or twice.
ONE_ATTEMPT = RetryPolicy(retries=0)

R = TypeVar("R")


class Producer:
    """Sends messages for one producer group.

    Options, with the reference's names in brackets:

    - `namesrv`: "host:port;host:port" or a list; default the environment's NAMESRV_ADDR.
    - `timeout`: seconds for a send, all attempts together (sendMsgTimeout).
    - `retries`: attempts after the first (retryTimesWhenSendFailed); after those, every queue not
      tried yet is tried once. 0: one attempt.
    - `attempt_timeout`: seconds for one attempt while others could follow; None divides what is
      left of `timeout` (sendMsgMaxTimeoutPerRequest).
    - `compression`: "zlib", "lz4", "zstd" or None, for bodies from `compress_over` bytes on, at
      `compression_level` (compressType, compressMsgBodyOverHowmuch). Batches are never compressed.
    - `max_message_size`: bytes of a body before compression (maxMessageSize).
    - `batch_bytes`: body size at which `send_batch` begins the next batch.
    - `max_in_flight`: sends under way; further ones wait for a place within their timeout.
    - `template_topic`, `template_queues`: how a topic that does not exist is created
      (createTopicKey, defaultTopicQueueNums).
    - `filters`: the user's own queue filters (client.selector.filters); `producer.selector.filters`
      may be changed at any time.
    - `send_latency_enable`, `start_detector_enable`, `detect_interval` and `detect_timeout` (ms):
      the switches of RIP-63 (client.selector.switches says how the name server overrides them).
    - `latency_max_ms`, `not_available_duration_ms`: the table of isolations.
    - `instance_name`, `unit_name`: parts of the clientId.

    The constructor touches no event loop. `start` and `shutdown` are what `async with` calls; both
    may be called again without effect. A producer that was shut down is not started again.
    """

    def __init__(
        self,
        group: str,
        *,
        namesrv: str | Sequence[str] | None = None,
        timeout: float = 3.0,
        retries: int = 2,
        attempt_timeout: float | None = None,
        compression: str | None = "zlib",
        compress_over: int = 4096,
        compression_level: int = 5,
        max_message_size: int = MAX_BODY,
        batch_bytes: int = 1024 * 1024,
        max_in_flight: int = 32_768,
        template_topic: str = TBW102,
        template_queues: int = 4,
        filters: Sequence[QueueFilter] = (),
        send_latency_enable: bool = True,
        start_detector_enable: bool = True,
        detect_interval: int = 2000,
        detect_timeout: int = 200,
        latency_max_ms: Sequence[float] = LATENCY_MAX_MS,
        not_available_duration_ms: Sequence[float] = NOT_AVAILABLE_DURATION_MS,
        instance_name: str = "DEFAULT",
        unit_name: str = "",
    ) -> None:
        self.group = producer_group(group)
        self.timeout = timeout
        self._compression = Compression.named(compression, compress_over, compression_level)
        self._max_message_size = max_message_size
        self._batch_bytes = min(batch_bytes, max_message_size)
        self._template = template_topic
        self._template_queues = template_queues
        self._clock = time.monotonic
        self._in_flight = InFlight(max_in_flight)
        self._instance = ClientInstance(
            namesrv,
            instance_name=instance_name,
            unit_name=unit_name,
            template=template_topic,
            template_queues=template_queues,
        )
        self._instance.heartbeat.add_producer(group)
        self._routes = self._instance.routes
        self._pool = self._instance.pool
        switches = Switches(
            send_latency_enable=send_latency_enable,
            start_detector_enable=start_detector_enable,
            detect_interval=detect_interval,
            detect_timeout=detect_timeout,
        )
        self.selector = QueueSelector(
            self._clock,
            switches=switches,
            filters=filters,
            tolerance=LatencyFaultTolerance(
                self._clock,
                latency_max_ms=latency_max_ms,
                not_available_duration_ms=not_available_duration_ms,
            ),
        )
        self._delivery = Delivery(
            self.selector,
            RetryPolicy(retries=retries, attempt_timeout=attempt_timeout),
            self._clock,
            self._doubt,
        )
        self.detector = Detector(self.selector, self._routes.masters, self._probe)
        self._remote_switches = RemoteSwitches(self._instance.name_servers, self.selector)
        self._instance.with_route_poll(self._remote_switches.read)
        self._running = False

    @property
    def client_id(self) -> str:
        """The name brokers know this client by."""
        return self._instance.client_id

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.shutdown()

    async def start(self) -> None:
        """Begin: route polls, heartbeats and the detector. Raises NotRunning after a shutdown."""
        if self._running:
            return
        await self._instance.start()
        self._instance.spawn(self.detector.run(), "detector")
        self._running = True

    async def shutdown(self) -> None:
        """Take no more sends, wait up to `timeout` for those under way, and close everything."""
        if self._running:
            self._running = False
            await self._in_flight.drained(self.timeout)
        await self._instance.shutdown()

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send one message and return where it was stored.

        With `queue` it goes to that queue in one attempt; else the selector chooses, and failed
        attempts are repeated on other brokers. `timeout` in seconds is the total.

        Raises InvalidMessage or InvalidName before anything is sent, NoRouteInfo when the topic has
        no route and can not be created, SendError when every attempt failed.
        """
        check_message(message, self._max_message_size)
        deadline = self._clock() + (self.timeout if timeout is None else timeout)
        if not (self._running and self._in_flight.try_enter()):
            await self._enter(deadline)
        try:
            return await self._send_one(prepare(message, new_unique_id()), queue, deadline)
        finally:
            self._in_flight.leave()

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> None:
        """Hand one message to the connection of a broker; nobody says whether it arrived.

        Raises what `send` raises; SendError only when no broker could be connected.
        """
        check_message(message, self._max_message_size)
        deadline = self._clock() + (self.timeout if timeout is None else timeout)
        await self._enter(deadline)
        try:
            outgoing = prepare(message, new_unique_id())
            if self._compression is not None and self._compression.applies(message.body):
                await compress_body(outgoing, self._compression)

            async def attempt(target: MessageQueue, share: float) -> None:
                await self._pool.send_oneway(
                    self._routes.master(target.broker_name),
                    outgoing.code,
                    outgoing.header(self.group, self._template, self._template_queues, target),
                    outgoing.body,
                    timeout=share,
                )

            await self._attempts(outgoing.topic, queue, attempt, deadline, oneway=True)
        finally:
            self._in_flight.leave()

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> list[SendResult]:
        """Send messages in as few requests as fit; the results are in the order of `messages`.

        They are split by topic, by wait_stored and at `batch_bytes`. The messages of one batch go
        to one queue in their order; different batches may go to different queues. With `queue`
        (all messages of its topic) the batches follow one another in it, up to the first failure.

        Raises InvalidMessage before anything is sent when any message is wrong, BatchSendError when
        some were not stored. `timeout` in seconds is the total.
        """
        for message in messages if queue is not None else ():
            _check_queue(queue, message.topic)
        deadline = self._clock() + (self.timeout if timeout is None else timeout)
        await self._enter(deadline)
        try:
            parts = split(
                messages,
                new_unique_id,
                max_bytes=self._batch_bytes,
                max_message_size=self._max_message_size,
            )
            results: list[SendResult | None] = [None] * len(messages)
            errors = await self._send_parts(parts, messages, results, queue, deadline)
        finally:
            self._in_flight.leave()
        if errors:
            failed = [
                message for message, result in zip(messages, results, strict=True) if result is None
            ]
            raise BatchSendError(errors[0], results, failed) from errors[0]
        return [result for result in results if result is not None]

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues a message of this topic may be sent to (fetchPublishMessageQueues)."""
        self._instance.check_running("producer")
        return (await self._routes.for_publish(topic, timeout=self.timeout)).publish.queues

    async def _enter(self, deadline: float) -> None:
        """Take a place among the sends under way; raises NotRunning, RemotingTimeout."""
        if not self._running:
            raise NotRunning("producer")
        await self._in_flight.enter(max(deadline - self._clock(), 0.0))
        if not self._running:
            self._in_flight.leave()
            raise NotRunning("producer")

    async def _send_parts(
        self,
        parts: Sequence[BatchPart],
        messages: Sequence[Message],
        results: list[SendResult | None],
        queue: MessageQueue | None,
        deadline: float,
    ) -> list[RemotingError]:
        errors: list[RemotingError] = []
        waiting = iter(parts)

        async def work() -> None:
            for part in waiting:
                try:
                    stored = await self._send_part(part, messages, queue, deadline)
                except RemotingError as error:
                    errors.append(error)
                    if queue is not None:
                        return
                    continue
                for index, result in zip(part.indexes, stored, strict=True):
                    results[index] = result

        if len(parts) == 1 or queue is not None:
            await work()
        else:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(BATCH_CONCURRENCY, len(parts))):
                    group.create_task(work())
        return errors

    async def _send_part(
        self,
        part: BatchPart,
        messages: Sequence[Message],
        queue: MessageQueue | None,
        deadline: float,
    ) -> list[SendResult]:
        if len(part.indexes) == 1:
            outgoing = prepare(messages[part.indexes[0]], part.msg_ids[0], gathered=True)
            return [await self._send_one(outgoing, queue, deadline)]
        outgoing = part.outgoing()
        attempt = self._asking(outgoing, outgoing.results)
        return await self._attempts(outgoing.topic, queue, attempt, deadline)

    async def _send_one(
        self, outgoing: Outgoing, queue: MessageQueue | None, deadline: float
    ) -> SendResult:
        if self._compression is not None and self._compression.applies(outgoing.body):
            await compress_body(outgoing, self._compression)
        attempt = self._asking(outgoing, outgoing.result)
        # What _attempts does, without its frame, for the send that everyone makes.
        if queue is None and (route := self._routes.writable(outgoing.topic)) is not None:
            return await self._delivery.deliver(outgoing.topic, route.publish, attempt, deadline)
        return await self._attempts(outgoing.topic, queue, attempt, deadline)

    def _asking(
        self, outgoing: Outgoing, read: Callable[[Command, MessageQueue], R]
    ) -> Callable[[MessageQueue, float], Awaitable[R]]:
        request = self._instance.batching.request if outgoing.gathered else self._pool.request

        async def attempt(target: MessageQueue, share: float) -> R:
            answer = await request(
                self._routes.master(target.broker_name),
                outgoing.code,
                outgoing.header(self.group, self._template, self._template_queues, target),
                outgoing.body,
                timeout=share,
            )
            return read(answer, target)

        return attempt

    async def _attempts(
        self,
        topic: str,
        queue: MessageQueue | None,
        attempt: Callable[[MessageQueue, float], Awaitable[R]],
        deadline: float,
        *,
        oneway: bool = False,
    ) -> R:
        _check_queue(queue, topic)
        route = self._routes.writable(topic)
        if route is None:
            left = max(deadline - self._clock(), 0.0)
            route = await self._routes.for_publish(topic, timeout=left)
        queues = route.publish if queue is None else PublishQueues((queue,))
        policy = None if queue is None else ONE_ATTEMPT
        return await self._delivery.deliver(topic, queues, attempt, deadline, policy, oneway=oneway)

    def _doubt(self, topic: str) -> None:
        self._routes.doubt(topic, self._clock())

    async def _probe(self, address: str, timeout: float) -> bool:
        topic = next(iter(self._routes.topics), self._template)
        header = GetMaxOffsetRequestHeader(topic=topic, queue_id=0)
        try:
            await self._pool.request(address, RequestCode.GET_MAX_OFFSET, header, timeout=timeout)
        except RemotingError:
            return False
        return True


def _check_queue(queue: MessageQueue | None, topic: str) -> None:
    if queue is not None and queue.topic != topic:
        raise InvalidMessage(f"a message of topic {topic} can not go to {queue}")
