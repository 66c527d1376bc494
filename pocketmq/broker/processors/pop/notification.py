"""NOTIFICATION: tells when there is a message to pop, without popping it.

Reference: broker NotificationProcessor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from pocketmq.broker.background import CallLater
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.pop.long_polling import EVERYTHING, Polling, PopLongPolling
from pocketmq.broker.pop.order_table import OrderTable
from pocketmq.broker.pop.pop_offset import PopOffset
from pocketmq.broker.processors.pop.access import PopAccess
from pocketmq.broker.waiting.late_answer import answer_late
from pocketmq.broker.waiting.turn_queue import TurnQueue
from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers import NotificationRequestHeader, NotificationResponseHeader
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

NotificationRequest = Request[NotificationRequestHeader]


class NotificationProcessor:
    """Notifications of one broker; `polling` has the waiting requests."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        access: PopAccess,
        pop_offset: PopOffset,
        orders: OrderTable,
        woken: TurnQueue,
        clock: Callable[[], int],
        call_later: CallLater,
    ) -> None:
        self._config = config
        self._store = store
        self._access = access
        self._pop_offset = pop_offset
        self._orders = orders
        self._clock = clock
        self._log = LimitedLog(log)
        self.polling = PopLongPolling(
            store, config, self._notify_again, woken, clock, call_later, newest_first=True
        )

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the code here."""
        dispatcher.register(RequestCode.NOTIFICATION, self.notify, NotificationRequestHeader)

    def notify(self, request: NotificationRequest) -> Response | None:
        """Answer whether there is a message; return None if the request waits for one."""
        if request.header.born_time == 0:
            request.header.born_time = self._clock()
        return self._notify(request, last=False)

    def _notify_again(self, request: NotificationRequest, last: bool) -> int:
        return answer_late(request, partial(self._notify_held, last=last), self._log)

    def _notify_held(self, request: NotificationRequest, *, last: bool) -> Response | None:
        if self._config.is_slave:
            return Response(header=NotificationResponseHeader())
        return self._notify(request, last=last)

    def _notify(self, request: NotificationRequest, *, last: bool) -> Response | None:
        header = request.header
        topic = self._access.readable(header, request.connection)
        if self._has_message(header, topic):
            return Response(header=NotificationResponseHeader(has_msg=True))
        polling = Polling.TIMEOUT
        if not last:
            polling = self.polling.park(
                request,
                header.topic,
                header.consumer_group,
                header.queue_id,
                topic.read_queue_nums,
                EVERYTHING,
                header.born_time + header.poll_time,
            )
        if polling is Polling.WAITS:
            return None
        return Response(header=NotificationResponseHeader(polling_full=polling is Polling.FULL))

    def _has_message(self, header: NotificationRequestHeader, topic: TopicConfig) -> bool:
        queues = range(topic.read_queue_nums) if header.queue_id < 0 else (header.queue_id,)
        if any(self._queue_has_message(header, header.topic, queue_id) for queue_id in queues):
            return True
        return any(
            self._queue_has_message(header, retries.topic_name, 0)
            for _, retries in self._access.retry_topics(header.topic, header.consumer_group)
        )

    def _queue_has_message(
        self, header: NotificationRequestHeader, topic: str, queue_id: int
    ) -> bool:
        group = header.consumer_group
        if header.order and self._orders.is_blocked(group, topic, queue_id, header.attempt_id):
            return False
        offset = self._pop_offset.peek(group, topic, queue_id)
        return self._store.max_offset(topic, queue_id) > offset
