"""POP_MESSAGE: messages of any queue of a topic, invisible to other consumers for a while.

A pop reads the queues in turn, starting with a random one, and the retry topics of its group, at
random before or after them. In a topic of priority messages it starts with the most urgent queue
(RIP-80), except for a share of pops that the group may set. The messages that it takes from one
queue go into one checkpoint. It is answered as soon as it has messages, and waits if there are
none. Reference: broker PopMessageProcessor.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from pocketmq.broker.background import CallLater
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.pop.check_point import CheckPointId
from pocketmq.broker.pop.deliveries import PopDeliveries
from pocketmq.broker.pop.in_flight import InFlight
from pocketmq.broker.pop.long_polling import Filter, Polling, PopLongPolling
from pocketmq.broker.pop.order_info import OrderInfo
from pocketmq.broker.pop.order_table import OrderTable
from pocketmq.broker.pop.pop_offset import PopOffset
from pocketmq.broker.processors.pop.access import MOST_MESSAGES, OPENED_AT_ONCE, PopAccess
from pocketmq.broker.processors.pop.filters import requested_filter
from pocketmq.broker.statistics.statistics import Statistics
from pocketmq.broker.tables.consumer_filter import NotCompiled
from pocketmq.broker.tables.consumer_offset import ConsumerOffsets
from pocketmq.broker.waiting.compile_queue import CompileQueue
from pocketmq.broker.waiting.late_answer import answer_late
from pocketmq.broker.waiting.turn_queue import TurnQueue
from pocketmq.limited_log import LimitedLog
from pocketmq.message import properties as names
from pocketmq.message.pop_offsets import (
    message_count_entry,
    message_offset_entry,
    queue_count_entry,
    start_offset_entry,
)
from pocketmq.message.receipt_handle import ORDER_REVIVE_QUEUE, ReceiptHandle
from pocketmq.message.record import encode_record, iter_records
from pocketmq.message.record_layout import queue_offsets_of
from pocketmq.message.retry_topic import TopicKind
from pocketmq.message.sql_filter import FILTER_WORK
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import (
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.store.message_store import MessageStore
from pocketmq.store.reader import DiskLimits
from pocketmq.store.results import GetResult, GetStatus

log = logging.getLogger(__name__)

LATE_MS: Final = 500
"""A pop later than this after its deadline gets no messages: its client no longer waits."""

_FOUND: Final = GetStatus.FOUND
#: The store returns another offset to read at.
_CORRECTED: Final = (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY)

PopRequest = Request[PopMessageRequestHeader]


class _Source(NamedTuple):
    """A topic to pop from."""

    topic: str
    kind: TopicKind
    queues: Sequence[int]


#: Queue entries that are examined in the time of one comparison of a filter.
_ENTRIES: Final = 16
#: The same in the time of one read of a queue, whatever it finds.
_ENTRIES_OF_READ: Final = 640
#: Queues in which a new group starts in one turn: it may read the first message of each.
_STARTS: Final = 128


class _Pop:
    """The state of one pop during its execution."""

    __slots__ = (
        "buffers",
        "counts",
        "filter",
        "header",
        "messages",
        "moved",
        "now",
        "rest",
        "revive_queue_id",
        "starts",
        "wanted",
        "work",
    )

    def __init__(self, header: PopMessageRequestHeader, filter: Filter, now: int) -> None:
        self.header = header
        self.filter = filter
        self.now = now
        self.revive_queue_id = ORDER_REVIVE_QUEUE
        self.wanted = header.max_msg_nums  # messages still to be found
        self.work = FILTER_WORK * _ENTRIES  # queue entries that it may still examine
        self.rest = 0  # messages that remain in the queues
        self.moved = False  # an offset has advanced without a message
        self.starts: list[str] = []
        self.messages: list[str] = []
        self.counts: list[str] = []
        self.buffers: list[bytes | memoryview] = []


class PopProcessor:
    """Pops of one broker; `polling` has the waiting ones."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        access: PopAccess,
        offsets: ConsumerOffsets,
        pop_offset: PopOffset,
        deliveries: PopDeliveries,
        orders: OrderTable,
        in_flight: InFlight,
        statistics: Statistics,
        woken: TurnQueue,
        compiling: CompileQueue,
        clock: Callable[[], int],
        call_later: CallLater,
    ) -> None:
        self._config = config
        self._store = store
        self._access = access
        self._offsets = offsets
        self._pop_offset = pop_offset
        self._deliveries = deliveries
        self._orders = orders
        self._in_flight = in_flight
        self._statistics = statistics
        self._compiling = compiling
        self._clock = clock
        self._log = LimitedLog(log)
        self.polling = PopLongPolling(store, config, self._pop_again, woken, clock, call_later)

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the codes of pops here."""
        dispatcher.register(RequestCode.POP_MESSAGE, self.pop, PopMessageRequestHeader)
        dispatcher.register(RequestCode.POLLING_INFO, self.polling_info, PollingInfoRequestHeader)

    def polling_info(self, request: Request[PollingInfoRequestHeader]) -> Response:
        """Return the number of pops of a group that wait for one queue, or for any (-1)."""
        header = request.header
        self._access.readable(header, request.connection)
        count = self.polling.waiting(header.topic, header.consumer_group, header.queue_id)
        return Response(header=PollingInfoResponseHeader(polling_num=count))

    def pop(self, request: PopRequest) -> Response | None:
        """Answer with messages; return None if there are none and the request waits."""
        header, now = request.header, self._clock()
        if header.born_time == 0:
            header.born_time = now
        if now - header.born_time - header.poll_time > LATE_MS:
            return self._nothing(header, now, Polling.TIMEOUT)
        return self._pop_now(request)

    def _pop_now(self, request: PopRequest) -> Response | None:
        try:
            return self._pop(request, last=False)
        except NotCompiled as new:
            self._compiling.then(request, self._pop_now, new.text)
            return None

    def _pop_again(self, request: PopRequest, last: bool) -> int:
        """Execute a pop that waited; return the size of its answer."""
        return answer_late(request, partial(self._pop_held, last=last), self._log)

    def _pop_held(self, request: PopRequest, *, last: bool) -> Response | None:
        # Not if the client does not read its answers, or must use the new master. With a new
        # expression, it takes the messages with the next pop.
        if request.connection.writable and not self._config.is_slave:
            with contextlib.suppress(NotCompiled):
                return self._pop(request, last=last)
        return self._nothing(request.header, self._clock(), Polling.TIMEOUT)

    def _pop(self, request: PopRequest, *, last: bool) -> Response | None:
        header = request.header
        topic = self._checked(request)
        filter = requested_filter(header.exp, header.exp_type)
        pop = _Pop(header, filter, self._clock())
        if not header.order:
            pop.revive_queue_id = self._deliveries.next_revive_queue()
        sources = self._sources(header, topic)
        if not all(self._is_open(source) and self._start(header, source) for source in sources):
            if not last and self.polling.run_again(request):
                return None
            return self._nothing(header, pop.now, Polling.TIMEOUT)
        for source in sources:
            self._pop_from(pop, source)
        if pop.buffers:
            if pop.rest > 0:
                self.polling.wake_one(header.topic, header.consumer_group, header.queue_id)
            return self._found(pop)
        if pop.moved and not last:
            # There may be more after the messages that the filter rejected. Other requests run
            # first.
            if self.polling.run_again(request):
                return None
            last = True
        if last:
            return self._nothing(header, pop.now, Polling.TIMEOUT, pop.rest)
        polling = self.polling.park(
            request,
            header.topic,
            header.consumer_group,
            header.queue_id,
            topic.read_queue_nums,
            pop.filter,
            header.born_time + header.poll_time,
        )
        if polling is Polling.WAITS:
            return None
        return self._nothing(header, pop.now, polling, pop.rest)

    # --- checks -------------------------------------------------------------------------------

    def _checked(self, request: PopRequest) -> TopicConfig:
        header, config = request.header, self._config
        if not 0 < header.max_msg_nums <= MOST_MESSAGES:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER,
                f"the broker[{config.advertised_host}] pop message's num is {header.max_msg_nums}, "
                f"it must be from 1 to {MOST_MESSAGES}",
            )
        if not config.timer_wheel_enable:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR,
                f"the broker[{config.advertised_host}] pop message is forbidden because "
                "timerWheelEnable is false",
            )
        topic = self._access.readable(header, request.connection)
        self._access.invisible_time(header.invisible_time)
        self._access.retry_topic(header.topic, header.consumer_group)
        return topic

    # --- reading ------------------------------------------------------------------------------

    def _sources(self, header: PopMessageRequestHeader, topic: TopicConfig) -> list[_Source]:
        """Return the topics to read, in this order."""
        config, chance = self._config, random.randrange(100)
        count = topic.read_queue_nums
        factor = 0 if header.order else self._access.priority_factor(topic, header.consumer_group)
        by_priority = chance < factor
        # With a factor near 100, the chance itself would never begin with some of the queues.
        first = random.randrange(count) if factor and count else chance
        if header.queue_id >= 0:
            queues: Sequence[int] = (header.queue_id,)
        else:
            queues = self._queues(count, None if by_priority else first)
        sources = [_Source(header.topic, TopicKind.NORMAL, queues)]
        if not header.order:
            retries = [
                _Source(
                    retry.topic_name,
                    kind,
                    self._queues(retry.read_queue_nums, None if by_priority else first),
                )
                for kind, retry in self._access.retry_topics(header.topic, header.consumer_group)
            ]
            if chance % 2:
                retries.reverse()
            retries_first = config.pop_from_retry_probability
            if by_priority:
                retries_first = config.pop_from_retry_probability_for_priority
            if chance < retries_first:
                return retries + sources
            sources += retries
        return sources

    def _queues(self, count: int, first: int | None) -> Sequence[int]:
        """Return the ids of `count` queues in turn from `first` on, or, if it is None, the most
        urgent one first."""
        if first is None:
            return range(count)[::-1] if self._config.priority_order_asc else range(count)
        start = first % count if count else 0
        return (*range(start, count), *range(start))

    def _is_open(self, source: _Source) -> bool:
        """Return whether the queues are open, and open some if they are not."""
        return len(source.queues) == 1 or self._store.open_some(source.topic, OPENED_AT_ONCE)

    def _start(self, header: PopMessageRequestHeader, source: _Source) -> bool:
        """If a group is new in many queues, let it start in some of them; return whether the others
        can start as they are popped."""
        if len(source.queues) <= _STARTS:
            return True
        group, topic = header.consumer_group, source.topic
        committed = self._offsets.offsets(group, topic)
        if len(source.queues) - len(committed) <= _STARTS:
            return True
        new = (queue_id for queue_id in source.queues if queue_id not in committed)
        for queue_id in tuple(islice(new, _STARTS)):
            self._pop_offset.take(group, topic, queue_id, -1, header.init_mode)
        return False

    def _pop_from(self, pop: _Pop, source: _Source) -> None:
        group, topic, init_mode = pop.header.consumer_group, source.topic, pop.header.init_mode
        committed = self._offsets.offsets(group, topic)
        # There may be 16,384 queues, and most are at their end.
        take, max_offset = self._pop_offset.take, self._store.max_offset
        for queue_id in source.queues:
            if pop.work < 0:
                pop.rest += 1  # the other queues are for another turn or another pop
                break
            offset = take(group, topic, queue_id, committed.get(queue_id, -1), init_mode)
            end = max_offset(topic, queue_id)
            if end == offset:
                continue
            if pop.wanted > 0 and not self._is_held_up(pop, source, queue_id):
                self._take(pop, source, queue_id, offset)
            elif not pop.header.order:
                pop.rest += max(0, end - offset)

    def _is_held_up(self, pop: _Pop, source: _Source, queue_id: int) -> bool:
        """Tell whether a queue with messages must not be popped now."""
        header = pop.header
        queue = (source.topic, header.consumer_group, queue_id)
        config = self._config
        if header.order:
            return self._orders.is_blocked(
                header.consumer_group,
                source.topic,
                queue_id,
                header.attempt_id,
                header.invisible_time,
            )
        return (
            config.enable_pop_message_threshold
            and self._in_flight.count(queue) > config.pop_inflight_message_threshold
        )

    def _take(self, pop: _Pop, source: _Source, queue_id: int, offset: int) -> None:
        """Take messages of one queue."""
        header = pop.header
        group, topic = header.consumer_group, source.topic
        result = self._get(pop, topic, queue_id, offset)
        if result.status in _CORRECTED:
            self._log.warning(
                "group %s pops %s/%d at %d, which has %d to %d: continuing at %d",
                group,
                topic,
                queue_id,
                offset,
                result.min_offset,
                result.max_offset,
                result.next_begin_offset,
            )
            offset = result.next_begin_offset
            self._pop_offset.set(group, topic, queue_id, offset)
            result = self._get(pop, topic, queue_id, offset)
        behind = result.next_begin_offset
        pop.work -= max(behind - offset, _ENTRIES_OF_READ) + _ENTRIES * result.filter_work
        if result.status is _FOUND:
            offsets = self._offsets_of(result, offset)
            if header.order:
                self._note_order(pop, source, queue_id, offset, offsets)
            elif not self._deliveries.hand_out(
                CheckPointId(topic, group, queue_id, offset, pop.now),
                offsets,
                header.invisible_time,
                pop.revive_queue_id,
                behind,
            ):
                pop.rest += max(0, result.max_offset - offset)
                return
            pop.starts.append(start_offset_entry(source.kind, queue_id, offset))
            pop.messages.append(message_offset_entry(source.kind, queue_id, offsets))
            pop.wanted -= len(offsets)
            self._add_buffers(pop, source, offset, result)
            self._count(pop, source, result)
        elif behind > offset:
            # No matching messages, or messages that no longer exist.
            pop.moved = True
            if header.order:
                self._offsets.commit(group, topic, queue_id, behind)
            else:
                self._deliveries.buffer.skip((topic, group, queue_id), behind)
        pop.rest += max(0, result.max_offset - max(behind, offset))

    def _get(self, pop: _Pop, topic: str, queue_id: int, offset: int) -> GetResult:
        config = self._config
        return self._store.get(
            topic,
            queue_id,
            offset,
            min(pop.wanted, config.max_transfer_count_on_message_in_memory),
            max_bytes=config.max_transfer_bytes_on_message_in_memory,
            codes=pop.filter.codes,
            accept=pop.filter.accept,
            disk=DiskLimits(
                config.message_memory,
                config.max_transfer_count_on_message_in_disk,
                config.max_transfer_bytes_on_message_in_disk,
            ),
        )

    @staticmethod
    def _offsets_of(result: GetResult, offset: int) -> Sequence[int]:
        if result.message_count == result.next_begin_offset - offset:
            return range(offset, result.next_begin_offset)
        return [found for buffer in result.buffers for found in queue_offsets_of(buffer)]

    def _note_order(
        self, pop: _Pop, source: _Source, queue_id: int, offset: int, offsets: Sequence[int]
    ) -> None:
        header = pop.header
        group, topic = header.consumer_group, source.topic
        queue = (topic, group, queue_id)
        info = self._orders.update(
            group,
            topic,
            queue_id,
            offsets,
            attempt_id=header.attempt_id,
            pop_time=pop.now,
            invisible_time=header.invisible_time,
        )
        pop.counts += _count_entries(source.kind, queue_id, info)
        self._offsets.commit(group, topic, queue_id, offset)
        self._in_flight.clear(queue)
        self._in_flight.add(queue, len(offsets))

    def _add_buffers(self, pop: _Pop, source: _Source, offset: int, result: GetResult) -> None:
        if source.kind is TopicKind.NORMAL or self._config.pop_response_return_actual_retry_topic:
            pop.buffers += result.buffers
            return
        header = pop.header
        for buffer in result.buffers:
            for record in iter_records(buffer):
                handle = ReceiptHandle(
                    offset,
                    pop.now,
                    header.invisible_time,
                    pop.revive_queue_id,
                    source.kind,
                    self._config.broker_name,
                    record.queue_id,
                    record.queue_offset,
                )
                record.properties[names.POP_CK] = handle.encode()
                pop.buffers.append(
                    encode_record(record, topic=header.topic, properties=record.properties)
                )

    def _count(self, pop: _Pop, source: _Source, result: GetResult) -> None:
        statistics = self._statistics
        statistics.get_found += 1
        of_group = statistics.get_of(source.topic, pop.header.consumer_group)
        for traffic in (of_group, statistics.get):
            traffic.add(result.message_count, 1, result.size)

    # --- answers ------------------------------------------------------------------------------

    def _found(self, pop: _Pop) -> Response:
        header = pop.header
        return Response(
            ResponseCode.SUCCESS,
            "FOUND",
            PopMessageResponseHeader(
                pop_time=pop.now,
                invisible_time=header.invisible_time,
                revive_qid=pop.revive_queue_id,
                rest_num=pop.rest,
                start_offset_info=";".join(pop.starts),
                msg_offset_info=";".join(pop.messages),
                order_count_info=";".join(pop.counts) if header.order else None,
            ),
            pop.buffers,
        )

    def _nothing(
        self, header: PopMessageRequestHeader, now: int, polling: Polling, rest: int = 0
    ) -> Response:
        self._statistics.get_miss += 1
        full = polling is Polling.FULL
        return Response(
            ResponseCode.POLLING_FULL if full else ResponseCode.POLLING_TIMEOUT,
            "NO_MESSAGE_IN_QUEUE",
            PopMessageResponseHeader(
                pop_time=now,
                invisible_time=header.invisible_time,
                revive_qid=ORDER_REVIVE_QUEUE if header.order else 0,
                rest_num=rest,
                start_offset_info="",
                msg_offset_info="",
            ),
        )


def _count_entries(kind: TopicKind, queue_id: int, info: OrderInfo) -> list[str]:
    """Return the entries of orderCountInfo for a pop of one queue."""
    delivered = info.delivered or {}
    entries = [
        message_count_entry(kind, queue_id, offset, count) for offset, count in delivered.items()
    ]
    least = min(delivered.values()) if len(delivered) == len(info.places) else 0
    entries.append(queue_count_entry(kind, queue_id, least))
    return entries
