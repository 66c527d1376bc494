"""Pops that found nothing wait here for a message, their deadline, or a disconnection.

Pops wait by topic, group and queue; -1 stands for any queue. If a message passes their filter, it
wakes one pop of its queue and one pop of any queue in each group; other pops of the group would
find nothing. A message in a retry topic of a group (v1 or v2) wakes one pop of that group, whatever
queue it waits for, since each pop also reads the retry topics. A woken pop is executed again, and
waits again if it finds nothing.

The hold service of pulls is different: a pull waits for one offset of one queue, a message wakes
all pulls of its queue, and they do not wait again. Woken pops share their turns with woken pulls,
so that together they leave time for other requests. Reference: PopLongPollingService.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias

from pocketmq.broker.background import CallLater, Timer
from pocketmq.broker.waiting.filter_work import MAX_BYTES, FilterTurn, PropertyFilter, WaitingBytes
from pocketmq.broker.waiting.hold_service import REMOVED_AT_ONCE
from pocketmq.broker.waiting.poll_shares import PollShares
from pocketmq.broker.waiting.turn_queue import TurnQueue
from pocketmq.limited_log import LimitedLog
from pocketmq.message.retry_topic import pop_retry_topic
from pocketmq.remoting.answers.batch_answers import is_heard, lost
from pocketmq.remoting.serving.budget import Budget
from pocketmq.remoting.serving.long_requests import in_pieces
from pocketmq.remoting.serving.request import Request

log = logging.getLogger(__name__)

ANY_QUEUE: Final = -1
EARLY_MS: Final = 50
"""A pop is answered this long before its deadline, so that the client still gets the answer."""
LISTEN_AT_ONCE: Final = 512
"""Queues that a pop begins to listen to in one go: a millisecond."""

#: Called for each append: queue offset, tags code, store timestamp (ms).
ArrivalListener: TypeAlias = Callable[[int, int, int], None]
#: Executes a request again; with True it must not wait again. Returns the size of the answer in
#: bytes.
Execute: TypeAlias = Callable[[Request[Any], bool], int]


class ArrivalSource(Protocol):
    """The part of the message store that is used."""

    def listen(self, topic: str, queue_id: int, listener: ArrivalListener) -> None: ...
    def unlisten(self, topic: str, queue_id: int, listener: ArrivalListener) -> None: ...
    def properties_at(self, topic: str, queue_id: int, offset: int) -> Mapping[str, str] | None: ...


class Limits(Protocol):
    """The settings that are used."""

    pop_polling_size: int
    max_pop_polling_size: int
    pop_long_polling_force_notify_interval: int
    use_separate_retry_queue: bool


class Polling(Enum):
    """Whether a request waits, and if not, the reason."""

    WAITS = "waits"
    FULL = "full"
    TIMEOUT = "timeout"


class Filter:
    """The messages that a pop requests: with one of the tag codes, and with properties that
    `accept` accepts; None: any."""

    __slots__ = ("accept", "codes")

    def __init__(
        self, codes: frozenset[int] | None = None, accept: PropertyFilter | None = None
    ) -> None:
        self.codes = codes
        self.accept = accept


EVERYTHING: Final = Filter()


class ParkedPop:
    """One waiting request."""

    __slots__ = ("filter", "key", "request", "timer", "topic", "weight")

    def __init__(
        self,
        request: Request[Any],
        topic: _WaitingTopic,
        key: tuple[str, int],
        filter: Filter,
        weight: int,
    ) -> None:
        self.request = request
        self.topic = topic
        self.key = key
        self.filter = filter
        self.weight = weight
        self.timer: Timer


class _WaitingTopic:
    """The pops that wait for messages of one topic, and their listeners.

    The listener of a queue stays until an append finds no waiting pop, because a consumer usually
    pops again right after an answer.
    """

    def __init__(self, polling: PopLongPolling, name: str) -> None:
        self.name = name
        # By group, then by queue id; the oldest first.
        self.groups: dict[str, dict[int, dict[ParkedPop, None]]] = {}
        self._polling = polling
        self._listening: dict[tuple[str, int], ArrivalListener] = {}

    def lacks(self, queues: int) -> int:
        """Return the least number of queues, of the `queues` ones of the topic, that it does not
        listen to."""
        return queues - len(self._listening)

    def listen(self, queues: Iterable[int]) -> None:
        """Listen to queues of the topic."""
        # Usually all listeners are registered already.
        listening = self._listening
        for queue_id in queues:
            if (self.name, queue_id) not in listening:
                self._listen(self.name, queue_id, self._arrival_in(queue_id))

    def listen_to_retries(self, group: str, queues: int) -> None:
        """Listen to the retry topics of a group; the topic has `queues` queues."""
        listening = self._listening
        for v2 in (False, True):
            retry_topic = pop_retry_topic(self.name, group, v2=v2)
            for queue_id in range(self._polling.retry_queues(queues)):
                if (retry_topic, queue_id) not in listening:
                    arrival = self._arrival_for(group, retry_topic, queue_id)
                    self._listen(retry_topic, queue_id, arrival)

    def _listen(self, topic: str, queue_id: int, listener: ArrivalListener) -> None:
        self._listening[topic, queue_id] = listener
        self._polling.store.listen(topic, queue_id, listener)

    def unlisten(self, topic: str, queue_id: int) -> None:
        """Stop listening to a queue."""
        listener = self._listening.pop((topic, queue_id), None)
        if listener is not None:
            self._polling.store.unlisten(topic, queue_id, listener)
        if not self._listening and not self.groups:
            self._polling.forget(self)

    def close(self) -> None:
        """Stop listening."""
        for topic, queue_id in tuple(self._listening):
            self.unlisten(topic, queue_id)

    def _arrival_in(self, queue_id: int) -> ArrivalListener:
        def arrived(offset: int, tags_code: int, store_timestamp: int) -> None:
            if not self.groups:
                self.unlisten(self.name, queue_id)
                return
            for queues in tuple(self.groups.values()):
                for key in (ANY_QUEUE, queue_id):
                    parked = queues.get(key)
                    if parked:
                        self._polling.offer(parked, self.name, queue_id, offset, tags_code)

        return arrived

    def _arrival_for(self, group: str, retry_topic: str, queue_id: int) -> ArrivalListener:
        def arrived(offset: int, tags_code: int, store_timestamp: int) -> None:
            queues = self.groups.get(group)
            if not queues:
                self.unlisten(retry_topic, queue_id)
                return
            parked = queues.get(ANY_QUEUE) or next(iter(queues.values()))
            self._polling.offer(parked, retry_topic, queue_id, offset, tags_code)

        return arrived


class PopLongPolling:
    """The waiting requests of one kind; `execute` runs one again.

    `newest_first`: wake the newest request first instead of the oldest.
    """

    def __init__(
        self,
        store: ArrivalSource,
        limits: Limits,
        execute: Execute,
        woken: TurnQueue,
        clock: Callable[[], int],
        call_later: CallLater,
        *,
        newest_first: bool = False,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.store = store
        self._limits = limits
        self._execute = execute
        self._woken = woken
        self._clock = clock
        self._call_later = call_later
        self._newest_first = newest_first
        self._log = LimitedLog(log)
        self._topics: dict[str, _WaitingTopic] = {}
        self._by_request: dict[int, ParkedPop] = {}
        self._shares = PollShares()
        self._bytes = WaitingBytes(max_bytes, "waiting pops", self._log)
        self._filters = FilterTurn()
        self._again = Budget(limits.max_pop_polling_size, "pops", "turns", self._log)
        self._closed = False

    def __len__(self) -> int:
        """Return the number of waiting requests."""
        return len(self._by_request)

    def retry_queues(self, queues: int) -> int:
        """Return the number of queues in which retries of a topic with `queues` queues arrive."""
        return queues if self._limits.use_separate_retry_queue else 1

    def waiting(self, topic: str, group: str, queue_id: int) -> int:
        """Return the number of requests of a group that wait for one queue, or for any (-1)."""
        waiting = self._topics.get(topic)
        return 0 if waiting is None else len(waiting.groups.get(group, {}).get(queue_id, ()))

    def park(
        self,
        request: Request[Any],
        topic: str,
        group: str,
        queue_id: int,
        queues: int,
        filter: Filter,
        until: int,
    ) -> Polling:
        """Let a request wait until a message passes the filter, or until `until` (Unix ms). The
        topic has `queues` queues. A request of a disconnected client is dropped."""
        now = self._clock()
        if self._closed or now > until - EARLY_MS:
            return Polling.TIMEOUT
        connection = request.connection
        of_connection = len(connection.attributes.get(_PARKED, ()))
        limit = self._limits.max_pop_polling_size
        if self._shares.are_full(limit, request.owner, of_connection):
            return Polling.FULL
        if not is_heard(request):
            return Polling.WAITS
        waiting = self._waiting_topic(topic)
        if waiting.lacks(queues) > LISTEN_AT_ONCE and self._take_again(request):
            # What comes in meanwhile is found when the request is executed again.
            self._woken.add(self._listen_first(request, topic, queues))
            return Polling.WAITS
        by_queue = waiting.groups.get(group, {})
        parked_here = by_queue.get(queue_id, {})
        if len(parked_here) > self._limits.pop_polling_size:
            return Polling.FULL
        weight = self._bytes.take(request, filter.codes, filter.accept)
        if weight is None:
            return Polling.FULL
        parked = ParkedPop(request, waiting, (group, queue_id), filter, weight)
        parked_here[parked] = None
        by_queue[queue_id] = parked_here
        waiting.groups[group] = by_queue
        self._by_request[id(request)] = parked
        self._shares.add(request.owner)
        seconds = (until - EARLY_MS - now) / 1000
        parked.timer = self._call_later(seconds, lambda: self._end(parked))
        self._remember_on_connection(parked)
        waiting.listen(range(queues))
        waiting.listen_to_retries(group, queues)
        return Polling.WAITS

    def cancel(self, request: Request[Any]) -> bool:
        """Remove a waiting request without answering it; return False if it does not wait."""
        parked = self._by_request.get(id(request))
        if parked is None:
            return False
        self._remove(parked)
        return True

    def offer(
        self,
        parked_pops: dict[ParkedPop, None],
        topic: str,
        queue_id: int,
        offset: int,
        tags_code: int,
    ) -> None:
        """Wake one of these requests whose filter accepts a message.

        Every popLongPollingForceNotifyInterval-th message wakes one in any case, so that the
        consumer offset advances even if no message passes.
        """
        parked = self._first(parked_pops)
        if parked is None:
            return
        interval = self._limits.pop_long_polling_force_notify_interval
        if (interval > 0 and offset % interval == 0) or self._wants(
            parked.filter, topic, queue_id, offset, tags_code
        ):
            self._wake(parked)

    def wake_one(self, topic: str, group: str, queue_id: int) -> None:
        """Execute one request of a group that waits for this queue, or for any (-1)."""
        waiting = self._topics.get(topic)
        if waiting is not None:
            parked = self._first(waiting.groups.get(group, {}).get(queue_id, {}))
            if parked is not None:
                self._wake(parked)

    def wake_group(self, topic: str, group: str, queue_id: int) -> None:
        """Execute one request of a group that waits for any queue, and one that waits for this
        queue: it has become available again."""
        for key in (ANY_QUEUE, queue_id):
            self.wake_one(topic, group, key)

    def wake_topic(self, topic: str) -> None:
        """Execute all requests that wait for a topic: it was deleted, or its queues changed."""
        waiting = self._topics.get(topic)
        if waiting is not None:
            for parked in self._all(waiting):
                self._wake(parked)

    def run_again(self, request: Request[Any]) -> bool:
        """Execute a request that does not wait again in one of the next turns; return False if too
        many of its client are queued already."""
        if not self._take_again(request):
            return False
        self._woken.add(self._again_steps(request))
        return True

    def _take_again(self, request: Request[Any]) -> bool:
        if not self._again.take(request, 1):
            return False
        request.keep()
        return True

    def end_waiting(self) -> None:
        """Answer all waiting requests as if they had timed out."""
        for parked in tuple(self._by_request.values()):
            self._end(parked)

    def end_all(self) -> None:
        """Answer all waiting requests as if they had timed out, and let none wait from now on."""
        self._closed = True
        self.end_waiting()

    def close(self) -> None:
        """Remove all waiting requests; the connections are about to close."""
        self._closed = True
        for parked in tuple(self._by_request.values()):
            self._remove(parked)
        for waiting in tuple(self._topics.values()):
            waiting.close()

    def forget(self, waiting: _WaitingTopic) -> None:
        """Remove a topic without waiting requests and listeners."""
        self._topics.pop(waiting.name, None)

    # --- waking -------------------------------------------------------------------------------

    def _first(self, parked_pops: dict[ParkedPop, None]) -> ParkedPop | None:
        order: Iterable[ParkedPop] = (
            reversed(parked_pops) if self._newest_first else iter(parked_pops)
        )
        return next(iter(order), None)

    def _all(self, waiting: _WaitingTopic) -> list[ParkedPop]:
        return [
            parked
            for queues in waiting.groups.values()
            for parked_pops in queues.values()
            for parked in parked_pops
        ]

    def _wants(
        self, filter: Filter, topic: str, queue_id: int, offset: int, tags_code: int
    ) -> bool:
        if filter.codes is not None and tags_code not in filter.codes:
            return False
        if filter.accept is None or not self._filters.may_ask(filter.accept):
            return True
        try:
            properties = self.store.properties_at(topic, queue_id, offset)
            if properties is None:
                return True
            self._filters.asked(filter.accept, properties)
            return filter.accept(properties)
        except Exception:
            # Wake the pop: it fails again when it is executed, and is answered with the error.
            self._log.exception(
                "queue %s/%d: cannot filter the message at %d", topic, queue_id, offset
            )
            return True

    def _wake(self, parked: ParkedPop) -> None:
        # Reading properties for a filter may dispatch messages, which may have woken this request.
        if self._by_request.get(id(parked.request)) is not parked:
            return
        self._remove(parked)
        self._woken.add(self._steps(parked.request, last=False))

    def _end(self, parked: ParkedPop) -> None:
        self._remove(parked)
        self._woken.add(self._steps(parked.request, last=True))

    def _steps(self, request: Request[Any], *, last: bool) -> Iterator[int]:
        # Do not pop messages for a client that has disconnected.
        yield self._execute(request, last) if is_heard(request) else 0

    def _listen_first(self, request: Request[Any], topic: str, queues: int) -> Iterator[int]:
        for first in range(0, queues, LISTEN_AT_ONCE):
            last = min(first + LISTEN_AT_ONCE, queues)
            self._waiting_topic(topic).listen(range(first, last))
            yield 0
        yield from self._again_steps(request)

    def _waiting_topic(self, name: str) -> _WaitingTopic:
        waiting = self._topics.get(name)
        if waiting is None:
            waiting = self._topics[name] = _WaitingTopic(self, name)
        return waiting

    def _again_steps(self, request: Request[Any]) -> Iterator[int]:
        self._again.give_back(request, 1)
        yield from self._steps(request, last=False)

    def _remove(self, parked: ParkedPop) -> None:
        del self._by_request[id(parked.request)]
        self._shares.remove(parked.request.owner)
        if parked.weight:
            filter = parked.filter
            self._bytes.give_back(parked.request, parked.weight, filter.codes, filter.accept)
        parked.timer.cancel()
        group, queue_id = parked.key
        groups = parked.topic.groups
        queues = groups[group]
        del queues[queue_id][parked]
        if not queues[queue_id]:
            del queues[queue_id]
            if not queues:
                del groups[group]
        parked.request.connection.attributes[_PARKED].pop(parked, None)

    # --- disconnections -----------------------------------------------------------------------

    def _remember_on_connection(self, parked: ParkedPop) -> None:
        # One close callback per connection, not per pop: a consumer may pop for days.
        connection = parked.request.connection
        all_parked: dict[ParkedPop, PopLongPolling] | None = connection.attributes.get(_PARKED)
        if all_parked is None:
            all_parked = connection.attributes[_PARKED] = {}
            connection.add_close_callback(self._connection_closed)
        all_parked[parked] = self

    def _connection_closed(self, connection: Any) -> None:
        self._woken.begin(_cancelled(tuple(connection.attributes.get(_PARKED, {}).items())))


def _cancelled(all_parked: Sequence[tuple[ParkedPop, PopLongPolling]]) -> Iterator[int]:
    """Remove requests in steps: very many connections with thousands may be lost at once."""
    for some in in_pieces(all_parked, REMOVED_AT_ONCE):
        for parked, polling in some:
            polling.cancel(parked.request)
            lost(parked.request)
        yield 0


_PARKED: Final = "parked pops"
