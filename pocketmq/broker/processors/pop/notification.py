"""NOTIFICATION: tells when there is a message to pop, without popping it.

From 5.4 on it has a filter. A message that comes in wakes only the requests whose filter accepts
it. Of those that a group has not popped yet, only tags are looked at, and only while they are few;
otherwise each counts as one to pop, as do all in the retry topics.

Reference: broker NotificationProcessor.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from pocketmq.broker.background import CallLater
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.pop.long_polling import EVERYTHING, Filter, Polling, PopLongPolling
from pocketmq.broker.pop.order_table import OrderTable
from pocketmq.broker.pop.pop_offset import PopOffset
from pocketmq.broker.processors.pop.access import OPENED_AT_ONCE, PopAccess
from pocketmq.broker.processors.pop.filters import requested_filter
from pocketmq.broker.tables.consumer_filter import NotCompiled
from pocketmq.broker.waiting.compile_queue import CompileQueue
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

#: Entries of queues that one request looks at: a millisecond.
MOST_ENTRIES: Final = 4_096

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
        compiling: CompileQueue,
        clock: Callable[[], int],
        call_later: CallLater,
    ) -> None:
        self._config = config
        self._store = store
        self._access = access
        self._pop_offset = pop_offset
        self._orders = orders
        self._compiling = compiling
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
        return self._notify_now(request)

    def _notify_now(self, request: NotificationRequest) -> Response | None:
        try:
            return self._notify(request, last=False)
        except NotCompiled as new:
            self._compiling.then(request, self._notify_now, new.text)
            return None

    def _notify_again(self, request: NotificationRequest, last: bool) -> int:
        return answer_late(request, partial(self._notify_held, last=last), self._log)

    def _notify_held(self, request: NotificationRequest, *, last: bool) -> Response | None:
        # With an expression that is no longer known, the client has to ask again.
        if not self._config.is_slave:
            with contextlib.suppress(NotCompiled):
                return self._notify(request, last=last)
        return Response(header=NotificationResponseHeader())

    def _notify(self, request: NotificationRequest, *, last: bool) -> Response | None:
        header = request.header
        topic = self._access.readable(header, request.connection)
        filter = self._filter(header)
        if header.queue_id < 0 and not self._store.open_some(header.topic, OPENED_AT_ONCE):
            if not last and self.polling.run_again(request):
                return None
            return Response(header=NotificationResponseHeader())
        if self._has_message(header, topic, filter):
            return Response(header=NotificationResponseHeader(has_msg=True))
        polling = Polling.TIMEOUT
        if not last:
            polling = self.polling.park(
                request,
                header.topic,
                header.consumer_group,
                header.queue_id,
                topic.read_queue_nums,
                filter,
                header.born_time + header.poll_time,
            )
        if polling is Polling.WAITS:
            return None
        return Response(header=NotificationResponseHeader(polling_full=polling is Polling.FULL))

    def _filter(self, header: NotificationRequestHeader) -> Filter:
        if not header.exp_type or not self._config.use_message_filter_for_notification:
            return EVERYTHING
        return requested_filter(header.exp, header.exp_type)

    def _has_message(
        self, header: NotificationRequestHeader, topic: TopicConfig, filter: Filter
    ) -> bool:
        queues = range(topic.read_queue_nums) if header.queue_id < 0 else (header.queue_id,)
        return self._queues_have_message(header, header.topic, queues, filter) or any(
            self._queues_have_message(
                header, retries.topic_name, range(retries.read_queue_nums), EVERYTHING
            )
            for _, retries in self._access.retry_topics(header.topic, header.consumer_group)
        )

    def _queues_have_message(
        self,
        header: NotificationRequestHeader,
        topic: str,
        queues: Iterable[int],
        filter: Filter,
    ) -> bool:
        group = header.consumer_group
        most = self._config.max_message_filter_num_for_notification
        left = MOST_ENTRIES
        for queue_id, offset, end in self._pop_offset.unread(group, topic, queues):
            if header.order and self._orders.is_blocked(group, topic, queue_id, header.attempt_id):
                continue
            rest = end - offset
            if filter.codes is None or rest >= min(most, left):
                return True
            left -= rest
            if self._has_tags(topic, queue_id, offset, rest, filter.codes):
                return True
        return False

    def _has_tags(
        self, topic: str, queue_id: int, offset: int, count: int, codes: frozenset[int]
    ) -> bool:
        """Tell whether one of `count` entries of a queue has one of these tag codes, or is
        missing."""
        queue = self._store.queues[topic][queue_id]
        while count > 0:
            entries = list(queue.read(offset, count))
            if not entries or any(code in codes for _, _, code in entries):
                return True
            offset += len(entries)
            count -= len(entries)
        return False
