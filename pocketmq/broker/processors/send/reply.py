"""SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2: a reply, pushed to the client that requested it.

The reply's property REPLY_TO_CLIENT has the client id of the requester, which is registered as a
producer. The broker sends it the reply at once (326), and also stores the reply for later queries.
Reference: broker ReplyMessageProcessor.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final

from pocketmq.broker.acknowledge.put_safety import PutSafety
from pocketmq.broker.acknowledge.unwritten_sends import UnwrittenSends
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.inner_message import InnerMessage, PutHooks
from pocketmq.broker.processors.send.checks import SendChecks, SendHeader, of_client
from pocketmq.broker.statistics.statistics import Statistics
from pocketmq.broker.tables.producer_groups import ProducerGroups
from pocketmq.limited_log import LimitedLog
from pocketmq.message import properties as names
from pocketmq.message import sysflag
from pocketmq.message.identity import encode_offset_msg_id, host_text
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from pocketmq.remoting.serving.budget import Budget
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.remoting.shares import Shares
from pocketmq.store.results import PutResult

log = logging.getLogger(__name__)

PUSH_SECONDS: Final = 10.0

MAX_UNANSWERED: Final = 16 << 20
"""Bytes of the replies that one requester has not answered. Anybody who knows its client id can
send it replies; with too many, its other answers wait, and its connection may be closed."""

MAX_WAITING: Final = 256 << 20
"""Bytes of all these replies; a tenth of it for the replies from one connection."""

ReplyRequest = Request[SendMessageRequestHeader | SendMessageRequestHeaderV2]


class ReplyProcessor:
    """Replies through one broker. `store_host` is its packed address, `clock` gives ms."""

    def __init__(
        self,
        config: BrokerConfig,
        put_hooks: PutHooks,
        checks: SendChecks,
        producers: ProducerGroups,
        statistics: Statistics,
        unwritten: UnwrittenSends,
        safety: PutSafety,
        store_host: bytes,
        clock: Callable[[], int],
    ) -> None:
        self._config = config
        self._put_hooks = put_hooks
        self._checks = checks
        self._producers = producers
        self._statistics = statistics
        self._unwritten = unwritten
        self._safety = safety
        self._store_host = store_host
        self._clock = clock
        self._log = LimitedLog(log)
        self._waiting = Budget(MAX_WAITING, "replies", "bytes", self._log)
        self._unanswered = Shares()  # bytes by requester

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the reply codes here."""
        dispatcher.register(RequestCode.SEND_REPLY_MESSAGE, self.reply, SendMessageRequestHeader)
        dispatcher.register(
            RequestCode.SEND_REPLY_MESSAGE_V2, self.reply, SendMessageRequestHeaderV2
        )

    async def reply(self, request: ReplyRequest) -> Response:
        """Push a reply and store it; the answer tells whether the requester accepted it."""
        answer = SendMessageResponseHeader(
            region=self._config.region_id, trace_on=self._config.trace_on
        )
        try:
            topic = self._checks.topic(request)
            queue_id = _queue_of(request.header, topic)
        except RemotingError as error:
            return Response(error.code, error.remark, answer)
        properties = names.decode(request.header.properties)
        properties[names.MSG_REGION] = self._config.region_id
        properties[names.TRACE_ON] = "true" if self._config.trace_on else "false"
        failure = await self._push(request, dict(properties))
        response = Response(header=answer)
        if failure is None:
            # Clients cannot decode an answer without these fields.
            answer.msg_id = "0"
            answer.queue_id = queue_id
            answer.queue_offset = 0
        else:
            self._log.warning("%s", failure)
            response.code, response.remark = ResponseCode.SYSTEM_ERROR, failure
        if self._config.store_reply_message_enable:
            try:
                # Check again: the topic may have been deleted, or given fewer queues, meanwhile.
                queue_id = _queue_of(request.header, self._checks.known(topic.topic_name))
            except RemotingError as error:
                self._log.warning("reply is not stored: %s", error.remark)
                return response
            await self._keep(request, queue_id, properties, answer)
            try:
                await self._checks.saved(topic.topic_name)
            except RemotingError as error:
                return Response(error.code, error.remark, answer)
        return response

    async def _push(self, request: ReplyRequest, properties: dict[str, str]) -> str | None:
        """Push the reply to the requester; return None if it accepted it, else the reason."""
        client_id = properties.get(names.REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{names.REPLY_TO_CLIENT}] is null"
        client = self._producers.find(client_id)
        if client is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now = self._clock()
        properties[names.PUSH_REPLY_TIME] = str(now)
        sent: SendHeader = request.header
        header = ReplyMessageRequestHeader(
            producer_group=sent.producer_group,
            topic=sent.topic,
            default_topic=sent.default_topic,
            default_topic_queue_nums=sent.default_topic_queue_nums or 0,
            queue_id=sent.queue_id,
            sys_flag=sent.sys_flag,
            born_timestamp=sent.born_timestamp,
            flag=sent.flag,
            born_host=host_text(request.connection.peer_packed),
            store_host=host_text(self._store_host),
            store_timestamp=now,
            properties=names.encode(properties),
            reconsume_times=sent.reconsume_times,
            unit_mode=sent.unit_mode,
        )
        requester, size = client.connection, len(request.body)
        if self._unanswered.of(requester) + size > MAX_UNANSWERED:
            return f"push reply message to {client_id} fail. It has many unanswered replies."
        if not self._waiting.take(request, size):
            return (
                f"push reply message to {client_id} fail. Many replies wait for their requesters."
            )
        self._unanswered.add(requester, size)
        try:
            pushed = await requester.send_request(
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, request.body, PUSH_SECONDS
            )
        except RemotingError as error:
            return f"push reply message to {client_id} fail. {error}"
        finally:
            self._waiting.give_back(request, size)
            self._unanswered.remove(requester, size)
        if pushed.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id} fail. {pushed.remark or ''}"
        return None

    async def _keep(
        self,
        request: ReplyRequest,
        queue_id: int,
        properties: dict[str, str],
        answer: SendMessageResponseHeader,
    ) -> None:
        header = request.header
        # Like the official broker, do not start a transaction here. A reply is for its requester.
        for name in (names.TRAN_MSG, names.INNER_MULTI_DISPATCH):
            properties.pop(name, None)
        try:
            of_client(properties, header.topic)
        except RemotingError as error:
            self._log.warning("reply for topic %s is not stored: %s", header.topic, error)
            return
        inner = InnerMessage(
            header.topic,
            queue_id,
            request.body,
            properties,
            header.born_timestamp,
            request.connection.peer_packed,
            flag=header.flag,
            sys_flag=header.sys_flag & ~sysflag.TRANSACTION_MASK,
            reconsume_times=header.reconsume_times,
        )
        try:
            result = self._put_hooks.put(inner)
        except RemotingError as error:
            self._log.warning("reply for topic %s is not stored: %s", header.topic, error)
            return
        if not result.ok:
            self._log.warning("reply for topic %s is not stored: %s", header.topic, result.remark)
            return
        size = result.end_offset - result.physical_offset
        self._statistics.count_put(inner.topic, size, inner.properties)
        answer.msg_id = encode_offset_msg_id(self._store_host, result.physical_offset)
        answer.queue_id = queue_id
        answer.queue_offset = result.queue_offset
        if self._safety.waits:
            await self._safe(result)
        else:
            self._unwritten.add(request)

    async def _safe(self, result: PutResult) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def safe(code: int, remark: str | None) -> None:
            if not done.done():
                done.set_result(None)

        self._safety.when_safe(result.end_offset, safe)
        await done


def _queue_of(header: SendHeader, topic: TopicConfig) -> int:
    if header.queue_id >= max(topic.read_queue_nums, topic.write_queue_nums):
        raise RemotingError(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{header.queue_id}] is illegal, topic {topic.topic_name} has "
            f"{topic.read_queue_nums} read and {topic.write_queue_nums} write queues",
        )
    if header.queue_id >= 0:
        return header.queue_id
    if topic.write_queue_nums <= 0:
        raise RemotingError(ResponseCode.INVALID_PARAMETER, "the topic has no queue to write")
    return random.randrange(topic.write_queue_nums)
