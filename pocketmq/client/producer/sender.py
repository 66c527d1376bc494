"""Sends a producer's requests to brokers: routes, attempts, the wire.

`Sender` does not know users' messages and their rules: it gets a PreparedMessage and a queue, or
None to let the selector choose one, and returns the result of the broker's answer.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, TypeVarTuple

from pocketmq.client.errors import (
    BrokerNotFound,
    RemoteSystemError,
    RemotingConnectError,
    RemotingError,
    RequesterGone,
    SendError,
    error_for,
)
from pocketmq.client.instance import ClientInstance
from pocketmq.client.producer.delivery import Delivery, RetryPolicy
from pocketmq.client.producer.outage_log import OutageLog
from pocketmq.client.producer.outages import Outages
from pocketmq.client.producer.prepared_message import Compression, PreparedMessage, compress_body
from pocketmq.client.producer.recall import decoded, refusal
from pocketmq.client.producer.send_header import SendHeaders
from pocketmq.client.selector.pipeline import PublishQueues, QueueSelector
from pocketmq.client.send_result import SendResult
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers.base import Header
from pocketmq.remoting.headers.offset import GetMaxOffsetRequestHeader
from pocketmq.remoting.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

#: The remark of a broker to which the requester that a reply is for is not connected.
_NO_CONNECTION = re.compile("channel of <.*> not found")


class Sender:
    """Sends for one producer group, whose name includes the namespace.

    From `template` and `template_queues`, a broker creates a topic that does not exist. Answers
    with a code in `refused` count as failed attempts, although the message is stored. Deadlines are
    in seconds of time.monotonic.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        selector: QueueSelector,
        policy: RetryPolicy,
        *,
        compression: Compression | None,
        template: str,
        template_queues: int,
        refused: frozenset[int] = frozenset(),
    ) -> None:
        self.group = group
        self._instance = instance
        self._routes = instance.routes
        #: Returns the route of a topic; None while it is not known, or has no queues to write to.
        self.writable = instance.routes.writable
        self._pool = instance.pool
        self._compression = compression
        #: Bytes of a body from which on it is compressed.
        self._compress_from = sys.maxsize if compression is None else compression.threshold
        self._template = template
        self._headers = SendHeaders(group, template, template_queues)
        self._refused = refused
        #: Returns the address for sends to a broker, by its name; raises BrokerNotFound.
        self.address: Callable[[str], str] = instance.master
        self._outages = Outages(
            self._pool.get,
            instance.spawn,
            OutageLog(instance.namespace.unwrap(group), instance.routes.broker_at),
        )
        self._pool.on_connected.append(self._outages.connected)
        self._delivery = Delivery(
            selector,
            policy,
            time.monotonic,
            self._doubt,
            current=self._current,
            wait=self._wait_for_broker,
        )

    def send(
        self, outgoing: PreparedMessage, queue: MessageQueue | None, deadline: float
    ) -> Coroutine[Any, Any, SendResult]:
        """Send one message, compressed if it is large; raises SendError, NoRouteInfo."""
        if len(outgoing.body) >= self._compress_from:
            return self._send_compressed(outgoing, queue, deadline)
        topic, read = outgoing.topic, outgoing.result
        # A fast path for the usual case, without the frame of `_attempts`.
        if queue is None and (route := self.writable(topic)) is not None:
            return self._delivery.deliver(topic, route.publish, self._ask, deadline, outgoing, read)
        return self._attempts(topic, queue, self._ask, deadline, outgoing, read)

    async def _send_compressed(
        self,
        outgoing: PreparedMessage,
        queue: MessageQueue | None,
        deadline: float,
    ) -> SendResult:
        await self._compress(outgoing)
        return await self._attempts(
            outgoing.topic, queue, self._ask, deadline, outgoing, outgoing.result
        )

    async def _compress(self, outgoing: PreparedMessage) -> None:
        if self._compression is not None:
            await compress_body(outgoing, self._compression)

    async def reply(
        self, outgoing: PreparedMessage, queue: MessageQueue | None, deadline: float
    ) -> SendResult:
        """Send a reply, which a broker pushes over the requester's connection.

        A broker without that connection is not tried again. Raises RequesterGone if no broker has
        it; SendError, NoRouteInfo.
        """
        if len(outgoing.body) >= self._compress_from:
            await self._compress(outgoing)
        brokers = (await self._publish_queues(outgoing.topic, deadline)).broker_count
        without: set[str] = set()

        async def attempt(target: MessageQueue, share: float) -> SendResult:
            try:
                return await self._ask(target, share, outgoing, outgoing.result)
            except RemoteSystemError as error:
                if _NO_CONNECTION.search(error.remark):
                    without.add(target.broker_name)
                    error.retriable = len(without) < brokers
                raise

        try:
            return await self._attempts(outgoing.topic, queue, attempt, deadline)
        except SendError as error:
            if len(without) < brokers:
                raise
            last = error.tries[-1].error
            raise RequesterGone(error.topic, error.elapsed, error.tries, last) from last

    async def send_oneway(
        self, outgoing: PreparedMessage, queue: MessageQueue | None, deadline: float
    ) -> None:
        """Write one message to a connection; raises SendError if no broker could be connected."""
        if len(outgoing.body) >= self._compress_from:
            await self._compress(outgoing)
        attempt = self._hand_over_message
        await self._attempts(outgoing.topic, queue, attempt, deadline, outgoing, oneway=True)

    def _hand_over_message(
        self, target: MessageQueue, share: float, outgoing: PreparedMessage
    ) -> Coroutine[Any, Any, None]:
        header = self._headers.header(outgoing, target)
        address = self.address(target.broker_name)
        return self._hand_over(address, outgoing.code, header, outgoing.body, share)

    async def tell(
        self, queue: MessageQueue, code: RequestCode, header: Header, deadline: float
    ) -> None:
        """Send a one-way request to the master of the queue, not over the VIP channel.

        Raises:
            SendError: the broker could not be connected before the deadline.
        """

        async def attempt(target: MessageQueue, share: float) -> None:
            address = self._routes.master(target.broker_name)
            await self._hand_over(address, code, header, b"", share)

        queues = PublishQueues((queue,), start=0)
        await self._delivery.deliver(
            queue.topic, queues, attempt, deadline, pinned=True, oneway=True
        )

    async def _hand_over(
        self,
        address: str,
        code: RequestCode,
        header: Header,
        body: bytes | bytearray | memoryview,
        timeout: float,
    ) -> None:
        self._outages.check(address)
        try:
            await self._pool.send_oneway(address, code, header, body, timeout=timeout)
        except RemotingConnectError as error:
            self._outages.begin(address, error)
            raise

    async def send_batch(
        self, outgoing: PreparedMessage, queue: MessageQueue | None, deadline: float
    ) -> list[SendResult]:
        """Send one batch; return the results of its messages. Raises SendError, NoRouteInfo."""
        return await self._attempts(
            outgoing.topic,
            queue,
            self._ask,
            deadline,
            outgoing,
            outgoing.results,
            messages=len(outgoing.msg_ids),
        )

    async def queues(self, topic: str, deadline: float) -> tuple[MessageQueue, ...]:
        """Return the writable queues, after waiting for a route until the deadline; raises
        NoRouteInfo, NoNameServer."""
        return (await self._publish_queues(topic, deadline)).queues

    async def recall(self, topic: str, recall_handle: str, deadline: float) -> str:
        """Recall a delayed message; return its unique id. Raises InvalidMessage if the text is not
        a handle, BrokerNotFound, and the broker's error."""
        handle = decoded(recall_handle)
        await self._publish_queues(topic, deadline)
        answer = await self._pool.request(
            self._routes.master(handle.broker_name),
            RequestCode.RECALL_MESSAGE,
            RecallMessageRequestHeader(
                topic=topic, recall_handle=recall_handle, producer_group=self.group
            ),
            timeout=max(deadline - time.monotonic(), 0.0),
        )
        if answer.code != ResponseCode.SUCCESS:
            raise refusal(answer, handle)
        return RecallMessageResponseHeader.from_ext(answer.ext_fields).msg_id

    async def probe(self, address: str, timeout: float) -> bool:
        """Return whether the broker at this address answers within `timeout` seconds."""
        topic = next(iter(self._routes.topics), self._template)
        header = GetMaxOffsetRequestHeader(topic=topic, queue_id=0)
        code = RequestCode.GET_MAX_OFFSET
        address = self._instance.vip_channel.address(address, code)
        try:
            await self._pool.request(address, code, header, timeout=timeout)
        except RemotingError:
            return False
        return True

    async def _ask(
        self,
        target: MessageQueue,
        share: float,
        outgoing: PreparedMessage,
        read: Callable[[Command, MessageQueue], R],
    ) -> R:
        """Make one attempt, with a timeout of `share` seconds; `read` decodes the answer."""
        address = self.address(target.broker_name)
        if self._outages.known:
            self._outages.check(address)
        request = self._instance.batch_protocol.request if outgoing.shared else self._pool.request
        header = self._headers.header(outgoing, target)
        try:
            answer = await request(address, outgoing.code, header, outgoing.body, timeout=share)
        except RemotingConnectError as error:
            self._outages.begin(address, error)
            raise
        if answer.code in self._refused:
            unconfirmed = error_for(answer.code, answer.remark, target.broker_name)
            unconfirmed.retriable = True
            raise unconfirmed
        return read(answer, target)

    async def _attempts(
        self,
        topic: str,
        queue: MessageQueue | None,
        attempt: Callable[[MessageQueue, float, *Ts], Awaitable[R]],
        deadline: float,
        *what: *Ts,
        oneway: bool = False,
        messages: int = 1,
    ) -> R:
        queues = self._current(topic) or await self._publish_queues(topic, deadline)
        pinned = queue is not None
        if queue is not None:
            # Sending a message to another queue would break the order.
            queues = PublishQueues((queue,), start=0)
        return await self._delivery.deliver(
            topic, queues, attempt, deadline, *what, pinned=pinned, oneway=oneway, messages=messages
        )

    async def _wait_for_broker(self, broker_name: str, seconds: float) -> None:
        try:
            address = self.address(broker_name)
        except BrokerNotFound:
            await asyncio.sleep(seconds)
        else:
            await self._outages.wait(address, seconds)

    async def _publish_queues(self, topic: str, deadline: float) -> PublishQueues:
        route = self.writable(topic)
        if route is None:
            left = max(deadline - time.monotonic(), 0.0)
            route = await self._routes.wait_for_publish(topic, timeout=left)
        return route.publish

    def _current(self, topic: str) -> PublishQueues | None:
        route = self.writable(topic)
        return None if route is None else route.publish

    def _doubt(self, topic: str) -> None:
        self._routes.doubt(topic, time.monotonic())
