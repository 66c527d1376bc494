"""Request-reply: a message that is answered with another message.

    reply = await producer.request(Message("quotes", b"EUR/CHF"), timeout=2.0)
    ...
    await producer.reply(message, b"0.9312")        # in a consumer of "quotes"

A request is an ordinary message with three more properties: a correlation id, the requester's
clientId, and how long that client waits (ms). The reply is sent to the reply topic of the
requester's cluster, and the broker that receives it pushes it over the requester's connection
(PUSH_REPLY_MESSAGE_TO_CLIENT). It knows that connection from a heartbeat, so every broker needs one
first. Reference: DefaultMQProducerImpl.request, ClientRemotingProcessor.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable

from pocketmq.client.errors import SHUT_DOWN, InvalidMessage, NotRunning, RequestTimeout
from pocketmq.client.instance import ClientInstance
from pocketmq.client.observation.send_hooks import SendKind
from pocketmq.client.parameters import Seconds
from pocketmq.client.producer.queue_choice import ShardingKey
from pocketmq.client.send_result import SendResult
from pocketmq.limited_log import LimitedLog
from pocketmq.message import properties as names
from pocketmq.message.compression import CompressionError, decompress
from pocketmq.message.identity import pack_host
from pocketmq.message.message import Message, MessageExt, MessageQueue
from pocketmq.message.sysflag import COMPRESSED
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.connection import split_address
from pocketmq.remoting.headers.client import ReplyMessageRequestHeader
from pocketmq.remoting.serving.request import Request, Response

log = logging.getLogger(__name__)

REPLY_TOPIC_SUFFIX = "REPLY_TOPIC"
REPLY_TYPE = "reply"
#: How long requests wait for the answer to a broker's first heartbeat, seconds.
INTRODUCTION = 0.5
_NO_HOST = bytes(8)


class RequestReply:
    """The pending requests of one client, and its replies to requests of others.

    `send` is SendEnvelope.send_one; `introduction`: see `INTRODUCTION`.
    """

    def __init__(
        self,
        instance: ClientInstance,
        send: Callable[..., Awaitable[SendResult]],
        *,
        introduction: float = INTRODUCTION,
    ) -> None:
        self._introduction = introduction
        self._instance = instance
        self._log = LimitedLog(log)
        self._client_id = instance.client_id
        self._send = send
        #: Address → first heartbeat to that broker, and until when requests wait for it.
        self._introductions: dict[str, tuple[asyncio.Task[bool], float]] = {}
        self._waiting: dict[str, asyncio.Future[MessageExt]] = {}
        instance.dispatcher.register(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self.receive, ReplyMessageRequestHeader
        )

    def __len__(self) -> int:
        return len(self._waiting)

    async def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None,
        key: ShardingKey | None,
        timeout: float,
    ) -> MessageExt:
        """Send a request and wait for its reply; `timeout`, in seconds, is for both."""
        self._instance.check_running()
        deadline = time.monotonic() + timeout
        # The heartbeats below go to the topic's brokers, so the route must be known first.
        topic = self._instance.namespace.wrap(message.topic)
        await self._instance.routes.wait_for_publish(topic, timeout=timeout)
        correlation_id = str(uuid.uuid4())
        waiting: asyncio.Future[MessageExt] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = waiting
        try:
            await self._be_known(deadline)
            extra = (
                f"{names.CORRELATION_ID}\x01{correlation_id}\x02"
                f"{names.REPLY_TO_CLIENT}\x01{self._client_id}\x02"
                f"{names.TTL}\x01{max(int(timeout * 1000), 1)}\x02"
            )
            await self._send(
                SendKind.REQUEST,
                message,
                queue=queue,
                key=key,
                timeout=max(deadline - time.monotonic(), 0.0),
                extra=extra,
            )
            try:
                async with asyncio.timeout(max(deadline - time.monotonic(), 0.0)):
                    return await waiting
            except TimeoutError:
                raise RequestTimeout(message.topic, timeout) from None
        finally:
            del self._waiting[correlation_id]
            waiting.cancel()

    async def reply(self, request: MessageExt, body: bytes, timeout: Seconds | None) -> SendResult:
        """Send the reply to a received message."""
        cluster = request.properties.get(names.CLUSTER)
        if cluster is None or not is_request(request):
            raise InvalidMessage(
                f"message {request.msg_id} of topic {request.topic} is not a request: it lacks the "
                f"property {names.CLUSTER} or {names.REPLY_TO_CLIENT}"
            )
        extra = f"{names.MSG_TYPE}\x01{REPLY_TYPE}\x02"
        for name in (names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.TTL):
            value = request.properties.get(name)
            if value:
                extra += f"{name}\x01{value}\x02"
        return await self._send(
            SendKind.REPLY,
            Message(f"{cluster}_{REPLY_TOPIC_SUFFIX}", body),
            timeout=timeout,
            code=RequestCode.SEND_REPLY_MESSAGE_V2,
            extra=extra,
        )

    def abandon(self) -> None:
        """Fail all pending requests at the shutdown."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(NotRunning("producer", SHUT_DOWN))

    async def _be_known(self, deadline: float) -> None:
        """Send a heartbeat to brokers that have not answered one: any of them may get the reply.

        Requests wait only once for a broker that does not answer, and never for more than half of
        the time left: the reply may come through another.
        """
        heartbeat = self._instance.heartbeat
        now = time.monotonic()
        waiting: list[asyncio.Task[bool]] = []
        until = now
        targets = heartbeat.targets()
        for gone in self._introductions.keys() - set(targets):
            del self._introductions[gone]
        for address in targets:
            if address in heartbeat.versions:
                continue
            introduction = self._introductions.get(address)
            if introduction is None or introduction[0].done():
                task = self._instance.spawn(heartbeat.send(address), f"heartbeat to {address}")
                introduction = task, now + self._introduction if introduction is None else now
                self._introductions[address] = introduction
            task, patience = introduction
            if patience > now:
                waiting.append(task)
                until = max(until, patience)
        if waiting:
            timeout = min(until - now, max(deadline - now, 0.0) / 2)
            await asyncio.wait(waiting, timeout=timeout)

    def receive(self, request: Request[ReplyMessageRequestHeader]) -> Response:
        """PUSH_REPLY_MESSAGE_TO_CLIENT: give a reply to the pending request."""
        try:
            message = _received(request.header, bytes(request.body))
        except (CompressionError, ValueError) as error:
            self._log.warning("a reply cannot be read: %s", error)
            return Response(ResponseCode.SYSTEM_ERROR, "process reply message fail")
        correlation_id = message.properties.get(names.CORRELATION_ID, "")
        waiting = self._waiting.get(correlation_id)
        if waiting is None or waiting.done():
            self._log.warning(
                "a reply from %s came too late or to the wrong client: correlation id %s",
                message.born_host,
                correlation_id,
            )
        else:
            waiting.set_result(message)
        return Response()


def is_request(message: MessageExt) -> bool:
    """Return whether a message is a request, which needs a reply."""
    return names.REPLY_TO_CLIENT in message.properties


def _received(header: ReplyMessageRequestHeader, body: bytes) -> MessageExt:
    sys_flag = header.sys_flag
    if sys_flag & COMPRESSED:
        body = decompress(body, sys_flag)
        sys_flag &= ~COMPRESSED
    arrived = f"{names.ARRIVE_TIME}\x01{time.time_ns() // 1_000_000}\x02"
    return MessageExt(
        topic=header.topic,
        body=body,
        properties_bytes=f"{header.properties}\x02{arrived}".encode(),
        flag=header.flag,
        queue_id=header.queue_id,
        queue_offset=0,
        physical_offset=0,
        sys_flag=sys_flag,
        born_timestamp=header.born_timestamp,
        packed_born_host=_packed(header.born_host),
        store_timestamp=header.store_timestamp,
        packed_store_host=_packed(header.store_host),
        reconsume_times=header.reconsume_times,
        prepared_transaction_offset=0,
        store_size=0,
        body_crc=0,
    )


def _packed(host: str) -> bytes:
    # The reference writes a socket address as Java prints it, "/ip:port" or "name/ip:port".
    try:
        return pack_host(*split_address(host.rpartition("/")[2]))
    except ValueError:
        return _NO_HOST
