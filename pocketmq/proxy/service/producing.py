"""SendMessage, EndTransaction and RecallMessage."""

from __future__ import annotations

import asyncio
from typing import Final

from pocketmq.message import properties as names
from pocketmq.message.identity import InvalidMessageId, decode_offset_msg_id
from pocketmq.message.properties import PropertiesError, encode
from pocketmq.message.recall_handle import RecallHandleError, decode_recall_handle
from pocketmq.message.record import decode as decode_record
from pocketmq.message.record_layout import RecordError
from pocketmq.message.sysflag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from pocketmq.proxy.config import ProxyConfig
from pocketmq.proxy.port.broker_port import Answer, BrokerPort, Choice
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.proxy.rpc import Call
from pocketmq.proxy.service.access import Access
from pocketmq.proxy.service.checks import check_message, topic_of
from pocketmq.proxy.service.clients import Client, Clients
from pocketmq.proxy.service.message_codec import (
    Outgoing,
    TransactionPlace,
    decode_transaction_place,
    now_ms,
    outgoing,
)
from pocketmq.proxy.service.metadata import Metadata, Topic
from pocketmq.proxy.service.status import ServiceError, ok, overall, status_of
from pocketmq.proxy.service.turns import Turns
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers.message_query import ViewMessageRequestHeader
from pocketmq.remoting.headers.send import (
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from pocketmq.remoting.headers.transaction import EndTransactionRequestHeader
from pocketmq.remoting.held_error import HeldError

#: The most messages of one call.
MAX_MESSAGES: Final = 1_000
#: Timeout of one attempt if the client sets no deadline, and its maximum, in seconds.
SEND_TIMEOUT: Final = 3.0
#: Seconds before the deadline of a call at which it is answered.
MARGIN: Final = 0.1

#: Answers of a broker that has stored the message anyway, and the client's status for each.
_STORED: Final = {
    int(ResponseCode.SUCCESS): (pb.OK, "OK"),
    int(ResponseCode.FLUSH_DISK_TIMEOUT): (
        pb.MASTER_PERSISTENCE_TIMEOUT,
        "stored, but not known to be on the disk",
    ),
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): (
        pb.SLAVE_PERSISTENCE_TIMEOUT,
        "stored, but not known to be on a replica",
    ),
    int(ResponseCode.SLAVE_NOT_AVAILABLE): (
        pb.HA_NOT_AVAILABLE,
        "stored, but there is no replica that could take it",
    ),
}

_RESOLUTIONS: Final = {pb.COMMIT: TRANSACTION_COMMIT, pb.ROLLBACK: TRANSACTION_ROLLBACK}


class Producing:
    """Serves the calls of producers."""

    def __init__(
        self,
        config: ProxyConfig,
        port: BrokerPort,
        clients: Clients,
        metadata: Metadata,
        access: Access,
        turns: Turns,
    ) -> None:
        self._turns = turns
        self._config = config
        self._port = port
        self._clients = clients
        self._metadata = metadata
        self._access = access

    async def send_message(
        self, call: Call, request: pb.SendMessageRequest
    ) -> pb.SendMessageResponse:
        """Store messages of one topic, with a result for each."""
        messages = request.messages
        if not messages:
            raise ServiceError(pb.MESSAGE_CORRUPTED, "there is no message to send")
        if len(messages) > MAX_MESSAGES:
            raise ServiceError(
                pb.MESSAGE_CORRUPTED, f"{len(messages)} messages; at most {MAX_MESSAGES} in a call"
            )
        name = messages[0].topic.name
        if any(message.topic.name != name for message in messages):
            raise ServiceError(pb.MESSAGE_CORRUPTED, "the messages have different topics")
        topic_of(messages[0].topic)
        self._access.publish(call, name)
        client = self._clients.of(call)
        config = self._config
        now = now_ms()
        async for part in self._turns.slices(call.owner, messages):
            for message in part:
                check_message(
                    message,
                    max_body=config.max_message_size,
                    max_delay=config.max_delay_time_mills,
                    now=now,
                )
        prepared = []
        async for part in self._turns.slices(call.owner, messages):
            prepared += [outgoing(message, call.peer, now) for message in part]
        topic = self._metadata.known_topic(name) or await self._metadata.topic(name)
        if config.enable_topic_message_type_check:
            for one in prepared:
                _check_type(topic, one)
        answer = pb.SendMessageResponse()
        if len(messages) == 1:
            answer.entries.append(await self._send(call, client, topic, messages[0], prepared[0]))
        else:
            sends: list[asyncio.Future[pb.SendResultEntry]] = []
            pairs = tuple(zip(messages, prepared, strict=True))
            async for some in self._turns.slices(call.owner, pairs):
                sends += [
                    asyncio.ensure_future(self._send(call, client, topic, message, one))
                    for message, one in some
                ]
            answer.entries.extend(await asyncio.gather(*sends))
        answer.status.CopyFrom(overall([entry.status for entry in answer.entries]))
        return answer

    async def _send(
        self, call: Call, client: Client, topic: Topic, message: pb.Message, one: Outgoing
    ) -> pb.SendResultEntry:
        """Store one message, if necessary with a second attempt on another broker; never raises."""
        try:
            group = message.system_properties.message_group or None
            choice = self._port.choose(topic.name, topic.route, group)
            if choice is None:
                raise ServiceError(
                    pb.FORBIDDEN, f"topic {topic.name} has no queue that may be written"
                )
            answer, choice = await self._attempt(call, client, choice, topic.name, message, one)
            return _entry(answer, choice, message, one)
        except (ServiceError, RemotingError, PropertiesError) as error:
            if isinstance(error, PropertiesError):
                error = ServiceError(pb.ILLEGAL_MESSAGE_PROPERTY_KEY, str(error))
            return pb.SendResultEntry(status=status_of(error))

    async def _attempt(
        self,
        call: Call,
        client: Client,
        choice: Choice,
        topic: str,
        message: pb.Message,
        one: Outgoing,
    ) -> tuple[Answer, Choice]:
        header = SendMessageRequestHeaderV2(
            producer_group=topic,
            topic=topic,
            default_topic_queue_nums=4,
            queue_id=choice.queue.queue_id,
            sys_flag=one.sys_flag,
            born_timestamp=one.born_timestamp,
            flag=0,
            properties=encode(one.properties),
            reconsume_times=message.system_properties.delivery_attempt,
        )
        left = min(SEND_TIMEOUT, call.remaining()) - MARGIN
        # Half messages are sent once: a second one would be a transaction that nobody ends.
        other = None
        once = not choice.elsewhere or one.message_type == pb.TRANSACTION
        timeout = left if once else left / 2
        try:
            answer = await self._ask(client, choice, header, message.body, timeout)
            return answer, choice
        except RemotingError as error:
            if not once:
                other = choice.again()
            if other is None or call.remaining() < 2 * MARGIN:
                raise
            first = HeldError(error)
        header.queue_id = other.queue.queue_id
        timeout = min(SEND_TIMEOUT, call.remaining()) - MARGIN
        try:
            return await self._ask(client, other, header, message.body, timeout), other
        except RemotingError:
            raise first.take() from None

    async def _ask(
        self,
        client: Client,
        choice: Choice,
        header: SendMessageRequestHeaderV2,
        body: bytes,
        timeout: float,
    ) -> Answer:
        try:
            answer = await client.link.request(
                choice.queue.broker_name,
                RequestCode.SEND_MESSAGE_V2,
                header,
                body,
                timeout=max(timeout, MARGIN),
            )
        except BaseException as error:
            choice.ended(error, 0)
            raise
        choice.ended(None, answer.code)
        return answer

    async def end_transaction(
        self, call: Call, request: pb.EndTransactionRequest
    ) -> pb.EndTransactionResponse:
        """Commit a transaction, or roll it back."""
        topic = topic_of(request.topic)
        self._access.publish(call, topic)
        client = self._clients.of(call)
        if not request.transaction_id or request.transaction_id.isspace():
            raise ServiceError(pb.INVALID_TRANSACTION_ID, "the transaction id is blank")
        try:
            place = decode_transaction_place(request.transaction_id)
        except ValueError as error:
            raise ServiceError(pb.INVALID_TRANSACTION_ID, str(error)) from None
        header = EndTransactionRequestHeader(
            producer_group=topic,
            topic=topic,
            tran_state_table_offset=place.queue_offset,
            commit_log_offset=place.physical_offset,
            commit_or_rollback=_RESOLUTIONS.get(request.resolution, 0),
            msg_id=request.message_id or place.unique_key,
            from_transaction_check=request.source == pb.SOURCE_SERVER_CHECK,
            transaction_id=place.unique_key,
            bname=place.broker_name,
        )
        if header.commit_or_rollback:  # brokers do not answer a request without a decision
            if call.caller is not None:
                await self._check_half(client, topic, place)
            answer = await client.link.request(
                place.broker_name, RequestCode.END_TRANSACTION, header
            )
            answer.check(place.broker_name)
        return pb.EndTransactionResponse(status=ok())

    async def _check_half(self, client: Client, topic: str, place: TransactionPlace) -> None:
        """Raise ServiceError unless a half message for the topic is at the position in a
        transaction id.

        Brokers compare only the producer group, which may have the same name as a topic, and let
        the proxy's user end any transaction.
        """
        answer = await client.link.request(
            place.broker_name,
            RequestCode.VIEW_MESSAGE_BY_ID,
            ViewMessageRequestHeader(offset=place.physical_offset),
        )
        try:
            fits = answer.ok and (
                decode_record(answer.content()).properties.get(names.REAL_TOPIC) == topic
            )
        except RecordError:
            fits = False
        if not fits:
            raise ServiceError(
                pb.INVALID_TRANSACTION_ID,
                f"the transaction id does not lead to a half message for topic {topic}",
            )

    async def recall_message(
        self, call: Call, request: pb.RecallMessageRequest
    ) -> pb.RecallMessageResponse:
        """Recall a message that was to be delivered later."""
        name = topic_of(request.topic)
        self._access.publish(call, name)
        client = self._clients.of(call)
        try:
            handle = decode_recall_handle(request.recall_handle)
        except RecallHandleError as error:
            raise ServiceError(pb.BAD_REQUEST, str(error)) from None
        topic = await self._metadata.topic(name)
        if pb.DELAY not in topic.types:
            raise ServiceError(
                pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, f"topic {name} takes no delayed messages"
            )
        answer = await client.link.request(
            handle.broker_name,
            RequestCode.RECALL_MESSAGE,
            RecallMessageRequestHeader(
                topic=name, recall_handle=request.recall_handle, producer_group=name
            ),
        )
        message_id = answer.check(handle.broker_name).header(RecallMessageResponseHeader).msg_id
        return pb.RecallMessageResponse(status=ok(), message_id=message_id)


def _check_type(topic: Topic, one: Outgoing) -> None:
    if one.message_type not in topic.types:
        kind = pb.MessageType.Name(one.message_type)
        allowed = ", ".join(map(pb.MessageType.Name, topic.types))
        raise ServiceError(
            pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"the message is {kind}, and topic {topic.name} takes {allowed or 'no'} messages "
            "(message.type)",
        )


def _entry(
    answer: Answer, choice: Choice, message: pb.Message, one: Outgoing
) -> pb.SendResultEntry:
    stored = _STORED.get(answer.code)
    if stored is None:
        answer.check(choice.queue.broker_name)
        raise AssertionError("unreachable")
    code, text = stored
    header = answer.header(SendMessageResponseHeader)
    key = message.system_properties.message_id
    entry = pb.SendResultEntry(
        status=pb.Status(code=code, message=text),
        message_id=key,
        offset=header.queue_offset or 0,
        transaction_id=header.transaction_id or key,
    )
    if header.recall_handle:
        entry.recall_handle = header.recall_handle
    if one.message_type == pb.TRANSACTION:
        try:
            physical = decode_offset_msg_id(header.msg_id or "").physical_offset
        except InvalidMessageId:
            physical = 0
        place = TransactionPlace(key, choice.queue.broker_name, header.queue_offset or 0, physical)
        entry.transaction_id = place.encode()
    return entry
