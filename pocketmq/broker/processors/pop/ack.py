"""ACK_MESSAGE and BATCH_ACK_MESSAGE: a consumer has processed popped messages.

Reference: broker AckMessageProcessor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pocketmq.broker.acknowledge.unwritten_sends import UnwrittenSends
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.pop.check_point import MOST_MESSAGES, CheckPointId
from pocketmq.broker.pop.deliveries import PopDeliveries
from pocketmq.broker.pop.in_flight import InFlight
from pocketmq.broker.pop.long_polling import PopLongPolling
from pocketmq.broker.pop.order_table import Ack, OrderTable
from pocketmq.broker.processors.pop.access import PopAccess, handle_of
from pocketmq.broker.tables.consumer_offset import ConsumerOffsets
from pocketmq.message.receipt_handle import ORDER_REVIVE_QUEUE, ReceiptHandle
from pocketmq.message.retry_topic import TopicKind, normal_topic, stored_topic
from pocketmq.remoting.answers.success_answer import success_answer
from pocketmq.remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import AckMessageRequestHeader, Header
from pocketmq.remoting.serving.dispatch import Answer, Dispatcher
from pocketmq.remoting.serving.long_requests import (
    Done,
    LongRequests,
    Steps,
    at_once,
    in_pieces,
)
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.store.message_store import MessageStore

#: Entries of a BATCH_ACK_MESSAGE; one of 32 messages takes 40 µs.
_ACKS_OF_STEP: Final = 32

_KINDS = {str(int(kind)): kind for kind in TopicKind}


class AckProcessor:
    """Acknowledgements of one broker; `polling` has the waiting pops."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        access: PopAccess,
        offsets: ConsumerOffsets,
        deliveries: PopDeliveries,
        orders: OrderTable,
        in_flight: InFlight,
        polling: PopLongPolling,
        unwritten: UnwrittenSends,
        long: LongRequests,
    ) -> None:
        self._long = long
        self._config = config
        self._store = store
        self._access = access
        self._offsets = offsets
        self._deliveries = deliveries
        self._orders = orders
        self._in_flight = in_flight
        self._polling = polling
        self._unwritten = unwritten

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the codes here."""
        dispatcher.register(
            RequestCode.ACK_MESSAGE, self.ack, AckMessageRequestHeader, many=self.ack_together
        )
        dispatcher.register(RequestCode.BATCH_ACK_MESSAGE, self.ack_many)

    def ack_together(
        self, requests: Sequence[Request[AckMessageRequestHeader]]
    ) -> list[Response | bytes]:
        """End the delivery of messages whose checkpoints are in memory, up to the first other
        message, which is for `ack`.

        Consumers acknowledge each message with its own request, and most checkpoints are in memory.
        """
        ack, subtract = self._deliveries.buffer.ack, self._in_flight.subtract
        wakes = self._config.enable_pop_message_threshold
        answers: list[Response | bytes] = []
        code = requests[0].code
        for request in requests:
            if request.code != code:
                break
            header = request.header
            words = header.extra_info.split(" ", 2)
            try:
                id = (
                    header.topic,
                    header.consumer_group,
                    header.queue_id,
                    int(words[0]),
                    int(words[1]),
                )
            except (IndexError, ValueError):
                break
            if wakes or not ack(id, header.offset):
                break
            subtract(id[:3], 1)
            answers.append(success_answer(request))
        return answers

    def ack(self, request: Request[AckMessageRequestHeader]) -> Response | bytes:
        """End the delivery of one message."""
        header = request.header
        handle = handle_of(header.extra_info)
        id = CheckPointId(
            header.topic,
            header.consumer_group,
            header.queue_id,
            handle.start_offset,
            handle.pop_time,
        )
        if not self._deliveries.buffer.knows(id):
            # A message whose checkpoint is in memory was checked when it was popped.
            self._access.queue(header)
            self._access.group(header.consumer_group, handle.pop_time, request.connection)
            self._access.delivery(header, handle.pop_time)
            low = self._store.min_offset(header.topic, header.queue_id)
            high = self._store.max_offset(header.topic, header.queue_id)
            if not low <= header.offset <= high:
                raise RemotingError(
                    ResponseCode.NO_MESSAGE,
                    f"offset is illegal, key:{header.topic}@{header.queue_id}, "
                    f"commit:{header.offset}, store:{low}~{high}",
                )
        if handle.in_order:
            self.ack_in_order(id, header.offset, handle.invisible_time)
        else:
            self._acknowledge(request, id, (header.offset,), handle)
        return success_answer(request)

    def ack_many(self, request: Request[Header]) -> Answer:
        """End the delivery of many messages, from any number of pops."""
        body = BatchAckMessageRequestBody.of(request) if request.body else None
        if body is None or not body.acks:
            return Response(ResponseCode.NO_MESSAGE)
        steps = self._ack_all(request, body)
        if len(body.acks) <= _ACKS_OF_STEP:
            return at_once(steps)
        begun = self._long.begin(request, steps)
        return begun.result if isinstance(begun, Done) else begun

    def _ack_all(
        self, request: Request[Header], body: BatchAckMessageRequestBody
    ) -> Steps[Response]:
        name = body.broker_name or self._config.broker_name
        refused: RemotingError | None = None
        for some in in_pieces(body.acks, _ACKS_OF_STEP):
            for ack in some:
                try:
                    self._ack_some(request, ack, name)
                except RemotingError as error:
                    refused = refused or error  # the others count all the same
            yield
        return Response() if refused is None else Response(refused.code, refused.remark)

    def _ack_some(self, request: Request[Header], ack: BatchAck, broker_name: str) -> None:
        kind = _KINDS.get(ack.retry or "0")
        if kind is None:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER, f"r = {ack.retry[:20]!r} of a BatchAck: 0, 1 or 2"
            )
        topic, queue_id = stored_topic(ack.topic, ack.consumer_group, kind), ack.queue_id
        low = self._store.min_offset(topic, queue_id)
        high = self._store.max_offset(topic, queue_id)
        offsets = [offset for offset in ack.offsets(MOST_MESSAGES) if low <= offset <= high]
        if (
            not offsets
            or not self._access.knows(topic)
            or self._access.is_deleted(topic, ack.consumer_group, ack.pop_time)
        ):
            return
        self._access.group(ack.consumer_group, ack.pop_time, request.connection)
        id = CheckPointId(topic, ack.consumer_group, queue_id, ack.start_offset, ack.pop_time)
        handle = ReceiptHandle(
            ack.start_offset,
            ack.pop_time,
            ack.invisible_time,
            ack.revive_queue_id,
            kind,
            broker_name,
            queue_id,
        )
        if ack.revive_queue_id == ORDER_REVIVE_QUEUE:
            for offset in offsets:
                self.ack_in_order(id, offset, ack.invisible_time)
        else:
            self._acknowledge(request, id, offsets, handle)

    def _acknowledge(
        self,
        request: Request[Header] | Request[AckMessageRequestHeader],
        id: CheckPointId,
        offsets: Sequence[int],
        handle: ReceiptHandle,
    ) -> None:
        self._access.end_of_delivery(handle)
        written = self._deliveries.acknowledge(
            id, offsets, handle.revive_queue_id, handle.next_visible_time, handle.broker_name
        )
        if written:
            self._unwritten.add(request)
        if self._config.enable_pop_message_threshold:
            # The queue may have been blocked because of these messages.
            topic = normal_topic(id.topic, id.group)
            self._polling.wake_group(topic, id.group, id.queue_id)

    def ack_in_order(self, id: CheckPointId, offset: int, invisible_time: int) -> None:
        """End the delivery of a message that was popped in order.

        Raises RemotingError (MESSAGE_ILLEGAL) for a message that was not.
        """
        group, topic, queue_id = id.group, id.topic, id.queue_id
        committed = self._offsets.query(group, topic, queue_id)
        if offset < committed:
            return
        following = self._orders.ack(group, topic, queue_id, offset, id.pop_time, committed)
        if following is Ack.UNKNOWN:
            raise RemotingError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{committed}, "
                f"commit:{offset}",
            )
        self._in_flight.subtract((topic, group, queue_id), 1)
        if isinstance(following, Ack):
            return
        if not self._offsets.has_reset(group, topic, queue_id):
            self._offsets.commit(group, topic, queue_id, following)
        if not self._orders.is_blocked(group, topic, queue_id, invisible_time=invisible_time):
            self._polling.wake_group(topic, group, queue_id)
