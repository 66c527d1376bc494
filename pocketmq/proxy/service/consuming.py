"""ReceiveMessage, and the calls on received messages: AckMessage, ChangeInvisibleDuration and
ForwardMessageToDeadLetterQueue."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections.abc import Sequence
from typing import Any, Final

from pocketmq.limited_log import LimitedLog
from pocketmq.message import properties as names
from pocketmq.message.limits import one_more
from pocketmq.message.pop_offsets import PopOffsetsError
from pocketmq.message.receipt_handle import (
    ReceiptHandle,
    ReceiptHandleError,
    decode_receipt_handle,
)
from pocketmq.message.record import decode as decode_record
from pocketmq.message.record_layout import RecordError
from pocketmq.message.tags import TagExpression, TagExpressionError
from pocketmq.proxy.config import ProxyConfig
from pocketmq.proxy.port.broker_port import REQUEST_TIMEOUT, Answer, Link
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.proxy.rpc import Call
from pocketmq.proxy.service.access import Access
from pocketmq.proxy.service.checks import group_of, topic_of
from pocketmq.proxy.service.clients import Client, Clients
from pocketmq.proxy.service.message_codec import (
    PlainBodies,
    duration_ms,
    incoming,
    now_ms,
    set_ms,
)
from pocketmq.proxy.service.metadata import Metadata
from pocketmq.proxy.service.polling import ANSWER_MARGIN, polling_ms
from pocketmq.proxy.service.popped import Popped, popped
from pocketmq.proxy.service.renewal import SOON, Renewal
from pocketmq.proxy.service.status import ServiceError, ok, overall, status_of
from pocketmq.proxy.service.turns import Turns
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers.base import Header
from pocketmq.remoting.headers.message_query import ViewMessageRequestHeader
from pocketmq.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from pocketmq.remoting.headers.send import ConsumerSendMsgBackRequestHeader

log = logging.getLogger("pocketmq.proxy")

MAX_BATCH: Final = 32
#: Seconds before the deadline of a receive at which it is answered even if the broker is silent.
LATE: Final = 0.1
#: The invisible time of messages that are renewed, in ms.
RENEWED_INVISIBLE: Final = 60_000
#: The most entries of one AckMessage.
MAX_ACKS: Final = 1_000

_FROM_THE_END: Final = 1
#: Older clients do not know ILLEGAL_POLLING_TIME.
_POLLING_TIME_VERSION: Final = "5.0.3"


class Consuming:
    """Serves the calls of consumers."""

    def __init__(
        self,
        config: ProxyConfig,
        clients: Clients,
        metadata: Metadata,
        access: Access,
        own: Link,
        turns: Turns,
    ) -> None:
        self._turns = turns
        self._config = config
        self._own = own
        self._clients = clients
        self._metadata = metadata
        self._access = access
        self._log = LimitedLog(log)
        self._turn = itertools.count()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.renewal = Renewal(self.change, now_ms, self._may_keep)
        clients.on_gone.append(self._gone)

    # --- receiving --------------------------------------------------------------------------------

    async def receive_message(
        self, call: Call, request: pb.ReceiveMessageRequest
    ) -> Sequence[pb.ReceiveMessageResponse]:
        """Pop messages of a topic from one broker."""
        try:
            return await self._receive(call, request)
        except (ServiceError, RemotingError) as error:
            return [pb.ReceiveMessageResponse(status=status_of(error)), _delivered()]

    async def _receive(
        self, call: Call, request: pb.ReceiveMessageRequest
    ) -> Sequence[pb.ReceiveMessageResponse]:
        topic = topic_of(request.message_queue.topic)
        group = group_of(request.group)
        self._access.consume(call, group, topic)
        client = self._clients.of(call)
        polling = self._polling_ms(call, client, request)
        invisible = self._invisible_ms(request)
        tags, expression_type, expression = _filter(request.filter_expression)
        broker = await self._broker(topic, request.message_queue.broker.name)
        settings = await self._metadata.group(group)
        # Time has passed while brokers were queried.
        polling = int(min(polling, max(call.remaining() * 1000 - ANSWER_MARGIN, 0)))
        header = PopMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=-1,
            max_msg_nums=max(1, min(request.batch_size, MAX_BATCH)),
            invisible_time=invisible,
            poll_time=polling,
            init_mode=_FROM_THE_END,
            born_time=now_ms(),
            exp_type=expression_type,
            exp=expression,
            order=settings.consume_message_orderly,
            attempt_id=request.attempt_id if request.HasField("attempt_id") else None,
        )
        pop = client.link.request(
            broker,
            RequestCode.POP_MESSAGE,
            header,
            timeout=polling / 1000 + REQUEST_TIMEOUT,
        )
        try:
            async with asyncio.timeout_at(_before(call.deadline)) as limit:
                answer = await asyncio.shield(pop)
        except (asyncio.CancelledError, TimeoutError) as error:
            if isinstance(error, RemotingError):
                raise  # the broker did not answer within its own timeout
            if not client.link.withdraw(pop):
                self._spawn(self._give_back(client, group, topic, broker, pop))
            if limit.expired():
                return _no_message()
            raise
        if answer.code in (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND):
            return _no_message()
        answer.check(broker)
        try:
            await self._turns.for_answer(call.owner, answer.size)
        except asyncio.CancelledError:
            self._spawn(self._give_back(client, group, topic, broker, pop))
            raise
        try:
            messages = list(
                popped(answer.header(PopMessageResponseHeader), answer.content(), broker)
            )
        except (PopOffsetsError, RecordError, ReceiptHandleError) as error:
            self._log.error("the answer of broker %s to a pop cannot be read: %s", broker, error)
            raise ServiceError(pb.INTERNAL_SERVER_ERROR, str(error)) from None
        most = settings.retry_max_times + 1
        wanted = []
        for one in messages:
            if not tags.matches(one.record.properties.get(names.TAGS)):
                # A different tag with the same hash.
                self._spawn(self._quietly(self._acknowledge(client, group, topic, one.handle)))
            elif one.deliveries >= most:
                self._spawn(self._quietly(self._bury(client, group, topic, one)))
            else:
                wanted.append(one)
        if not wanted:
            return _no_message()
        answers: list[pb.ReceiveMessageResponse] = []
        try:
            await self._prepare(call, topic, wanted, answers)
        except asyncio.CancelledError:
            answers.clear()
            raise
        finally:
            for one in wanted[len(answers) :]:
                change = self.change(client, group, topic, one.handle, SOON, suspend=True)
                self._spawn(self._quietly(change))
        if request.auto_renew and not client.gone:
            for one in wanted[: len(answers)]:
                self.renewal.add(client, group, topic, one.handle)
        return [pb.ReceiveMessageResponse(status=ok()), *answers, _delivered()]

    async def _prepare(
        self,
        call: Call,
        topic: str,
        messages: Sequence[Popped],
        answers: list[pb.ReceiveMessageResponse],
    ) -> None:
        """Add the client's forms of the first messages to `answers`: all, unless they are large."""
        plain = PlainBodies()
        for one in messages:
            if plain.full:
                return
            if plain.turn_is_over():
                await self._turns.next(call.owner, begun=True)
            message = incoming(
                one.record,
                topic,
                handle=one.handle.encode(),
                attempt=one_more(one.deliveries),
                max_body=self._config.max_message_size,
            )
            answers.append(pb.ReceiveMessageResponse(message=message))
            plain.add(message, one.record)

    def _polling_ms(self, call: Call, client: Client, request: pb.ReceiveMessageRequest) -> int:
        config = self._config
        asked = None
        if request.HasField("long_polling_timeout"):
            asked = duration_ms(request.long_polling_timeout)
        settings = client.settings
        if settings is not None and settings.HasField("request_timeout"):
            request_timeout = duration_ms(settings.request_timeout)
        else:
            request_timeout = round(REQUEST_TIMEOUT * 1000)
        polling = polling_ms(
            call.remaining() * 1000,
            asked,
            request_timeout,
            least=config.grpc_client_consumer_min_long_polling_timeout_millis,
            most=config.grpc_client_consumer_max_long_polling_timeout_millis,
        )
        if polling is None:
            known = client.version >= _POLLING_TIME_VERSION
            raise ServiceError(
                pb.ILLEGAL_POLLING_TIME if known else pb.BAD_REQUEST,
                "The deadline time remaining is not enough for polling, please check network "
                "condition",
            )
        return polling

    def _invisible_ms(self, request: pb.ReceiveMessageRequest) -> int:
        if request.auto_renew:
            return RENEWED_INVISIBLE
        least = self._config.min_invisible_time_mills_for_recv
        return self._allowed(duration_ms(request.invisible_duration), least)

    def _allowed(self, invisible: int, least: int) -> int:
        """Return an invisible time in ms. Raises ServiceError if it is out of range."""
        most = self._config.max_invisible_time_mills
        if invisible < least:
            raise ServiceError(
                pb.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too small. min is {least}"
            )
        if invisible > most:
            raise ServiceError(
                pb.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too large. max is {most}"
            )
        return invisible

    async def _broker(self, topic: str, named: str) -> str:
        route = (await self._metadata.topic(topic)).route
        readable = sorted(data.broker_name for data in route.queue_datas if data.perm & 4)
        if named:
            if named not in readable:
                raise ServiceError(
                    pb.FORBIDDEN, f"topic {topic} cannot be read at broker {named!r:.100}"
                )
            return named
        if not readable:
            raise ServiceError(pb.FORBIDDEN, f"topic {topic} cannot be read")
        return readable[next(self._turn) % len(readable)]

    async def _give_back(
        self, client: Client, group: str, topic: str, broker: str, pop: asyncio.Future[Any]
    ) -> None:
        """Make the messages of a receive visible again after its client cancelled it."""
        try:
            answer = await pop
            if not answer.ok:
                return
            for one in popped(answer.header(PopMessageResponseHeader), answer.content(), broker):
                await self.change(client, group, topic, one.handle, SOON, suspend=True)
        except (RemotingError, PopOffsetsError, RecordError, ReceiptHandleError) as error:
            log.debug("messages of a receive that was given up stay invisible: %s", error)

    # --- results ----------------------------------------------------------------------------------

    async def ack_message(self, call: Call, request: pb.AckMessageRequest) -> pb.AckMessageResponse:
        """Acknowledge messages, with a result for each."""
        client, group, topic = self._consumer(call, request.group, request.topic)
        entries = request.entries
        if not 0 < len(entries) <= MAX_ACKS:
            raise ServiceError(
                pb.BAD_REQUEST, f"{len(entries)} entries; 1 to {MAX_ACKS} are allowed in a call"
            )

        async def acknowledge(entry: pb.AckMessageEntry) -> pb.Status:
            try:
                handle = await self._taken(client, group, topic, entry.receipt_handle)
                await self._acknowledge(client, group, topic, handle)
            except (ServiceError, RemotingError) as error:
                return status_of(error)
            return ok()

        if len(entries) == 1:
            statuses = [await acknowledge(entries[0])]
        else:
            acks: list[asyncio.Future[pb.Status]] = []
            async for part in self._turns.slices(call.owner, entries):
                acks += [asyncio.ensure_future(acknowledge(entry)) for entry in part]
            statuses = await asyncio.gather(*acks)
        answer = pb.AckMessageResponse(status=overall(statuses, by_name=True))
        for entry, status in zip(entries, statuses, strict=True):
            answer.entries.add(
                message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status
            )
        return answer

    async def change_invisible_duration(
        self, call: Call, request: pb.ChangeInvisibleDurationRequest
    ) -> pb.ChangeInvisibleDurationResponse:
        """Change the time after which a message is redelivered."""
        # The official proxy checks the group only. But a handle can be forged, and the message that
        # it names is redelivered in a topic of the group.
        client, group, topic = self._consumer(call, request.group, request.topic)
        invisible = self._allowed(duration_ms(request.invisible_duration), 0)
        handle = await self._taken(client, group, topic, request.receipt_handle)
        suspend = request.suspend
        handle = await self.change(client, group, topic, handle, invisible, suspend=suspend)
        return pb.ChangeInvisibleDurationResponse(status=ok(), receipt_handle=handle.encode())

    async def forward_to_dead_letters(
        self, call: Call, request: pb.ForwardMessageToDeadLetterQueueRequest
    ) -> pb.ForwardMessageToDeadLetterQueueResponse:
        """Move a message to the dead letters of the group, and acknowledge it."""
        client, group, topic = self._consumer(call, request.group, request.topic)
        handle = await self._taken(client, group, topic, request.receipt_handle)
        await self._check_place(client, group, topic, handle)
        await self._send_back(client, group, topic, handle, request.message_id)
        return pb.ForwardMessageToDeadLetterQueueResponse(status=ok())

    async def _check_place(
        self, client: Client, group: str, topic: str, handle: ReceiptHandle
    ) -> None:
        """Raise ServiceError unless a message of the topic is at the position in a client's handle.

        Brokers use only the position. With a forged handle, a group could get any message into its
        dead letters, even from topics that it may not read.
        """
        if handle.physical_offset < 0:
            raise ServiceError(
                pb.INVALID_RECEIPT_HANDLE, "the receipt handle does not say where the message lies"
            )
        stored = handle.stored_topic(topic, group)
        header = ViewMessageRequestHeader(offset=handle.physical_offset, topic=stored)
        answer = await self._request(client, handle, RequestCode.VIEW_MESSAGE_BY_ID, header)
        try:
            fits = answer.ok and decode_record(answer.content()).topic == stored
        except RecordError:
            fits = False
        if not fits:
            raise ServiceError(
                pb.INVALID_RECEIPT_HANDLE,
                f"no message of topic {topic} lies where the receipt handle says",
            )

    def _consumer(
        self, call: Call, group: pb.Resource, topic: pb.Resource
    ) -> tuple[Client, str, str]:
        topic_name = topic_of(topic)
        group_name = group_of(group)
        self._access.consume(call, group_name, topic_name)
        client = self._clients.of(call)
        return client, group_name, topic_name

    async def _taken(self, client: Client, group: str, topic: str, text: str) -> ReceiptHandle:
        """Return the current handle for the one of a client, and stop renewing it."""
        try:
            handle = decode_receipt_handle(text)
        except ReceiptHandleError as error:
            raise ServiceError(pb.INVALID_RECEIPT_HANDLE, str(error)) from None
        handle = await self.renewal.take(client, group, topic, handle)
        if handle.next_visible_time <= now_ms():
            raise ServiceError(pb.INVALID_RECEIPT_HANDLE, "receipt handle is expired")
        return handle

    async def _acknowledge(
        self, client: Client, group: str, topic: str, handle: ReceiptHandle
    ) -> None:
        header = AckMessageRequestHeader(
            consumer_group=group,
            topic=handle.stored_topic(topic, group),
            queue_id=handle.queue_id,
            extra_info=handle._replace(physical_offset=-1).encode(),
            offset=handle.queue_offset,
        )
        await self._ask(client, handle, RequestCode.ACK_MESSAGE, header)

    async def change(
        self,
        client: Client,
        group: str,
        topic: str,
        handle: ReceiptHandle,
        invisible: int,
        *,
        suspend: bool = False,
    ) -> ReceiptHandle:
        """Set the invisible time of a message from now on, in ms; return its new handle. With
        `suspend`, brokers from 5.5 on do not count its next delivery as another attempt.

        Raises RemotingError.
        """
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=group,
            topic=handle.stored_topic(topic, group),
            queue_id=handle.queue_id,
            extra_info=handle._replace(physical_offset=-1).encode(),
            offset=handle.queue_offset,
            invisible_time=invisible,
            suspend=suspend or None,
        )
        answer = await self._ask(client, handle, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        terms = answer.header(ChangeInvisibleTimeResponseHeader)
        return handle._replace(
            # The new checkpoint begins at the message itself (apache/rocketmq#9583); ordered
            # consumption has no checkpoints.
            start_offset=handle.start_offset if handle.in_order else handle.queue_offset,
            pop_time=terms.pop_time,
            invisible_time=terms.invisible_time,
            revive_queue_id=terms.revive_qid,
        )

    async def _bury(self, client: Client, group: str, topic: str, one: Popped) -> None:
        """Move a message that was delivered too often to the dead letters."""
        key = one.record.properties.get(names.UNIQ_KEY, "")
        await self._send_back(client, group, topic, one.handle, key)

    async def _send_back(
        self, client: Client, group: str, topic: str, handle: ReceiptHandle, message_id: str
    ) -> None:
        header = ConsumerSendMsgBackRequestHeader(
            offset=handle.physical_offset,
            group=group,
            delay_level=-1,
            origin_msg_id=message_id,
            origin_topic=topic,
            max_reconsume_times=0,
        )
        await self._ask(client, handle, RequestCode.CONSUMER_SEND_MSG_BACK, header)
        await self._acknowledge(client, group, topic, handle)

    async def _ask(
        self, client: Client, handle: ReceiptHandle, code: int, header: Header
    ) -> Answer:
        """Send a request about a message to its broker. Raises the RemotingError of its answer."""
        answer = await self._request(client, handle, code, header)
        return answer.check(handle.broker_name)

    async def _request(
        self, client: Client, handle: ReceiptHandle, code: int, header: Header
    ) -> Answer:
        """Do the same, ignoring the answer's code; as the proxy itself if the client is gone."""
        link = self._own if client.gone else client.link
        return await link.request(handle.broker_name, code, header)

    def _may_keep(self, client: Client, group: str, topic: str) -> bool:
        return self._access.may_receive(client.link.caller, group, topic)

    # --- in the background ------------------------------------------------------------------------

    def _gone(self, client: Client) -> None:
        self._spawn(self.renewal.release(client))

    async def _quietly(self, work: Any) -> None:
        try:
            await work
        except (ServiceError, RemotingError) as error:
            self._log.warning("a popped message comes back: %s", error)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Make the renewed messages visible, and cancel the running tasks."""
        await self.renewal.release_all()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=1.0)
        for task in tuple(self._tasks):
            task.cancel()


def _filter(expression: pb.FilterExpression) -> tuple[TagExpression, str, str]:
    """Return the wanted tags, and the filter for brokers. Raises ServiceError."""
    if expression.type == pb.SQL:
        if not expression.expression:
            raise ServiceError(pb.ILLEGAL_FILTER_EXPRESSION, "the SQL expression is empty")
        return TagExpression(), "SQL92", expression.expression
    try:
        tags = TagExpression(expression.expression)
    except TagExpressionError as error:
        raise ServiceError(pb.ILLEGAL_FILTER_EXPRESSION, str(error)) from None
    return tags, "TAG", tags.text


def _before(deadline: float) -> float | None:
    """Return the loop time by which a receive must be answered."""
    return None if math.isinf(deadline) else deadline - LATE


def _no_message() -> list[pb.ReceiveMessageResponse]:
    status = pb.Status(code=pb.MESSAGE_NOT_FOUND, message="no new message")
    return [pb.ReceiveMessageResponse(status=status), _delivered()]


def _delivered() -> pb.ReceiveMessageResponse:
    answer = pb.ReceiveMessageResponse()
    set_ms(answer.delivery_timestamp, now_ms())
    return answer
