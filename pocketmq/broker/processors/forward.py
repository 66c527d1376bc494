"""Requests of admins that a consumer answers: running info (307), consume a message directly (309),
offsets in the consumer's memory (223, sent to the consumer as 221).

The broker forwards the request to the consumer, and returns the answer unchanged. Reference:
broker AdminBrokerProcessor.callConsumer, Broker2Client.getConsumeStatus.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from pocketmq.auth.signature import CREDENTIALS
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables.consumer_groups import ClientInfo, ConsumerGroups
from pocketmq.broker.tables.subscription_group import SubscriptionGroups
from pocketmq.broker.tables.topic_config import TopicConfigs
from pocketmq.limited_log import LimitedLog
from pocketmq.message.buffers import Buffer
from pocketmq.message.identity import InvalidMessageId, decode_offset_msg_id
from pocketmq.message.message import MessageQueue
from pocketmq.message.retry_topic import topics_of
from pocketmq.remoting.bodies.offset import GetConsumerStatusBody
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError, RemotingTimeout
from pocketmq.remoting.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from pocketmq.remoting.serving.budget import Budget
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.store.errors import RecordNotFound
from pocketmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

VERSION_3_0_7: Final = 28  # clients from this version on answer 221
VERSION_3_1_8: Final = 62  # clients from this version on answer 307 and 309
CALL_SECONDS: Final = 10.0
STATUS_SECONDS: Final = 5.0
ASKED_AT_ONCE: Final = 64  # the most consumers of a group asked at the same time
#: Memory of the requests, with the messages to consume, that wait for consumers, in bytes; `Budget`
#: limits the share of each client to a tenth, which is more than the largest message.
MAX_WAITING: Final = 64 << 20
_OVERHEAD: Final = 4 << 10  # bytes of a request of the usual size


class ForwardProcessor:
    """Requests to the consumers of one broker; each consumer has `call_seconds` to answer."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        consumers: ConsumerGroups,
        *,
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        self._call_seconds = call_seconds
        self._config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._waiting = Budget(MAX_WAITING, "requests to consumers", "bytes", LimitedLog(log))

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the codes that consumers answer here."""
        dispatcher.register(
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            self.running_info,
            GetConsumerRunningInfoRequestHeader,
        )
        dispatcher.register(
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            self.consume_directly,
            ConsumeMessageDirectlyResultRequestHeader,
        )
        dispatcher.register(
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            self.consumer_status,
            GetConsumerStatusRequestHeader,
        )

    async def running_info(self, request: Request[GetConsumerRunningInfoRequestHeader]) -> Response:
        """Return a consumer's report of its state."""
        header = request.header
        client = self._client(header.consumer_group, header.client_id)
        self._check(client, header.consumer_group)
        return await self._call(request, client, header.consumer_group, request.ext_fields)

    async def consume_directly(
        self, request: Request[ConsumeMessageDirectlyResultRequestHeader]
    ) -> Response:
        """Let a consumer consume a stored message directly."""
        header = request.header
        group = header.consumer_group
        fields = {**request.ext_fields, "brokerName": self._config.broker_name}
        topic = self._topics.get(header.topic) if header.topic else None
        if topic is not None:
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        settings = self._groups.find_any(group, request.connection)
        if settings is not None:
            fields["groupSysFlag"] = str(settings.group_sys_flag)
        try:
            place = decode_offset_msg_id(header.msg_id or "")
            stored_topic = self._store.message_at(place.physical_offset).topic
            record = bytes(self._store.record_at(place.physical_offset))
        except (InvalidMessageId, RecordNotFound) as error:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR, f"the message to consume is not here: {error}"
            ) from None
        client = self._client(group, header.client_id)
        topics = topics_of(stored_topic, group)
        if self._groups.is_retry_of_another(stored_topic, group):
            topics = (stored_topic,)
        self._check(client, group, *topics)
        return await self._call(request, client, group, fields, record)

    @staticmethod
    def _check(client: ClientInfo, group: str, *topics: str) -> None:
        """Raise RemotingError if the consumer has no permission to receive this: permissions may
        have changed since it joined the group."""
        if not client.may_consume(group, *topics):
            raise RemotingError(
                ResponseCode.NO_PERMISSION,
                f"the consumer <{group}> <{client.client_id}> has no permission to receive that",
            )

    def _client(self, group: str, client_id: str | None) -> ClientInfo:
        online = self._consumers.get(group)
        client = online.find(client_id) if online is not None else None
        if client is None:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
            )
        if client.version < VERSION_3_1_8:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{client.version}> too low to finish, please "
                "upgrade it to V3_1_8_SNAPSHOT",
            )
        return client

    async def _call(
        self,
        request: Request[Any],
        client: ClientInfo,
        group: str,
        fields: Mapping[str, str],
        body: Buffer = b"",
    ) -> Response:
        size = len(request.head) + len(body) + _OVERHEAD
        request.keep()
        if not self._waiting.take(request, size):
            raise RemotingError(
                ResponseCode.SYSTEM_BUSY, "too many requests to consumers are not answered yet"
            )
        # Do not forward the admin's credentials: the consumer could replay the request.
        fields = {key: text for key, text in fields.items() if key not in CREDENTIALS}
        try:
            answer = await client.connection.send_request(
                request.code, None, body, self._call_seconds, ext_fields=fields
            )
        except RemotingTimeout as error:
            raise RemotingError(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer <{group}> <{client.client_id}> Timeout: {error}",
            ) from None
        except RemotingError as error:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR,
                f"invoke consumer <{group}> <{client.client_id}> Exception: {error}",
            ) from None
        finally:
            self._waiting.give_back(request, size)
        return Response(
            answer.code, answer.remark, body=answer.body, ext_fields=dict(answer.ext_fields)
        )

    async def consumer_status(self, request: Request[GetConsumerStatusRequestHeader]) -> Response:
        """Return the offsets that the consumers of a group have in memory, or those of one of them.

        Consumers that do not answer are omitted.
        """
        header = request.header
        online = self._consumers.get(header.group)
        if online is None:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{header.group}]",
            )
        clients = online.reachable()
        wanted = (header.client_addr or "").strip()
        if wanted:
            clients = [client for client in clients if client.client_id == wanted]
        for client in clients:
            if client.version < VERSION_3_0_7:
                raise RemotingError(
                    ResponseCode.SYSTEM_ERROR,
                    f"the client does not support this feature. version={client.version}",
                )
        told = GetConsumerStatusRequestHeader(topic=header.topic, group=header.group)
        body = GetConsumerStatusBody()
        for start in range(0, len(clients), ASKED_AT_ONCE):
            some = clients[start : start + ASKED_AT_ONCE]
            tables = await asyncio.gather(*(_status(client.connection, told) for client in some))
            for client, table in zip(some, tables, strict=True):
                if table is not None:
                    body.consumer_table[client.client_id] = table
        return Response(body=body.encode())


async def _status(
    connection: Any, header: GetConsumerStatusRequestHeader
) -> dict[MessageQueue, int] | None:
    try:
        answer = await connection.send_request(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header, b"", STATUS_SECONDS
        )
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            return None
        return GetConsumerStatusBody.decode(answer.body).message_queue_table
    except RemotingError as error:
        log.warning("consumer at %s: cannot get its offsets: %s", connection.peer, error)
        return None
