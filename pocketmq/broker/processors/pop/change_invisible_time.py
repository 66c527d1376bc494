"""CHANGE_MESSAGE_INVISIBLETIME: a consumer needs a popped message for longer, or returns it.

Reference: broker ChangeInvisibleTimeProcessor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pocketmq.broker.acknowledge.unwritten_sends import UnwrittenSends
from pocketmq.broker.pop.check_point import CheckPointId
from pocketmq.broker.pop.deliveries import PopDeliveries
from pocketmq.broker.pop.order_table import OrderTable
from pocketmq.broker.processors.pop.access import PopAccess, handle_of
from pocketmq.broker.tables.consumer_offset import ConsumerOffsets
from pocketmq.message.receipt_handle import ORDER_REVIVE_QUEUE
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers import (
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.store.message_store import MessageStore

SAME_MS: Final = 100
"""A new checkpoint must have a later pop time than the one it replaces, so that acknowledgements
can distinguish them. If the old pop time is now, or less than this in the future, the new one is
1 ms later; if it is further in the future, the clock was set back."""


class ChangeInvisibleTimeProcessor:
    """Changed invisible times of one broker; `clock` gives milliseconds."""

    def __init__(
        self,
        store: MessageStore,
        access: PopAccess,
        offsets: ConsumerOffsets,
        deliveries: PopDeliveries,
        orders: OrderTable,
        unwritten: UnwrittenSends,
        clock: Callable[[], int],
    ) -> None:
        self._store = store
        self._access = access
        self._offsets = offsets
        self._deliveries = deliveries
        self._orders = orders
        self._unwritten = unwritten
        self._clock = clock

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the code here."""
        dispatcher.register(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME, self.change, ChangeInvisibleTimeRequestHeader
        )

    def change(self, request: Request[ChangeInvisibleTimeRequestHeader]) -> Response:
        """Make a message invisible for the given time from now on."""
        header = request.header
        self._access.queue(header)
        self._access.invisible_time(header.invisible_time)
        low = self._store.min_offset(header.topic, header.queue_id)
        high = self._store.max_offset(header.topic, header.queue_id)
        if not low <= header.offset < high:
            return Response(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{header.topic}@{header.queue_id}, "
                f"offset:{header.offset}, store:{low}~{high}",
            )
        handle = handle_of(header.extra_info)
        self._access.group(header.consumer_group, handle.pop_time, request.connection)
        self._access.delivery(header, handle.pop_time)
        self._access.own_message(header)
        id = CheckPointId(
            header.topic,
            header.consumer_group,
            header.queue_id,
            handle.start_offset,
            handle.pop_time,
        )
        now = self._clock()
        if handle.in_order:
            return self._change_in_order(header, id, now)
        self._access.end_of_delivery(handle)
        if 0 <= handle.pop_time - now < SAME_MS:
            now = handle.pop_time + 1
        self._deliveries.renew(
            id,
            header.offset,
            handle.revive_queue_id,
            handle.next_visible_time,
            handle.broker_name,
            now,
            header.invisible_time,
            suspend=bool(header.suspend),
        )
        self._unwritten.add(request)
        return Response(
            header=ChangeInvisibleTimeResponseHeader(
                pop_time=now,
                invisible_time=header.invisible_time,
                revive_qid=handle.revive_queue_id,
            )
        )

    def _change_in_order(
        self, header: ChangeInvisibleTimeRequestHeader, id: CheckPointId, now: int
    ) -> Response:
        group, topic, queue_id = id.group, id.topic, id.queue_id
        visible = now + header.invisible_time
        if header.offset >= self._offsets.query(group, topic, queue_id):
            self._orders.postpone(group, topic, queue_id, header.offset, id.pop_time, visible)
        return Response(
            header=ChangeInvisibleTimeResponseHeader(
                pop_time=id.pop_time,
                invisible_time=visible - id.pop_time,
                revive_qid=ORDER_REVIVE_QUEUE,
            )
        )
