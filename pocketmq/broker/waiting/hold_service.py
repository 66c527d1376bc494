"""Long polls: pulls that found nothing wait here for a message, their deadline, or a disconnection.

A held pull is woken by the first append to its queue that passes its filter (by tags or
properties). It is then executed once more, without being held again, so that it is answered in any
case. Woken pulls run from the next turn of the event loop on, a bounded part of them in each turn:
so the append that woke them finishes first, and they see a batch as a whole. Deadlines are kept in
buckets of 100 ms, with a single timer for the earliest one; a pull never ends before its deadline,
and at most one bucket after it.
Reference: broker PullRequestHoldService, which checks deadlines only every 5 s. Here, every held
pull is compared with the end of its queue at this interval, in case an append was missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Protocol

from pocketmq.broker.waiting.filter_work import MAX_BYTES, FilterTurn, PropertyFilter, WaitingBytes
from pocketmq.broker.waiting.poll_shares import PollShares
from pocketmq.broker.waiting.turn_queue import TurnQueue
from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.answers.batch_answers import lost
from pocketmq.remoting.serving.long_requests import in_pieces
from pocketmq.remoting.serving.request import Request

log = logging.getLogger(__name__)

BUCKET_SECONDS: Final = 0.1
RECHECK_SECONDS: Final = 5.0
#: The most timed-out pulls that are woken in one turn of the loop; it takes about 2 ms.
WAKE_AT_ONCE: Final = 1000
#: The pulls that are woken within the append of a message, and the others in each step: 2 ms, and
#: 0.2 ms. So many pulls of a lost connection are removed in one step, too.
WOKEN_AT_ONCE: Final = 512
REMOVED_AT_ONCE: Final = 64

#: Called for each append: queue offset, tags code, store timestamp (ms).
ArrivalListener = Callable[[int, int, int], None]


class ArrivalSource(Protocol):
    """The part of the message store that the hold service uses."""

    def listen(self, topic: str, queue_id: int, listener: ArrivalListener) -> None: ...
    def unlisten(self, topic: str, queue_id: int, listener: ArrivalListener) -> None: ...
    def max_offset(self, topic: str, queue_id: int) -> int: ...
    def properties_at(self, topic: str, queue_id: int, offset: int) -> Mapping[str, str] | None: ...


class HeldPull:
    """One waiting pull: its filter (`codes` None: any tag, `accept` None: any properties) and its
    deadline."""

    __slots__ = ("accept", "bucket", "codes", "offset", "queue", "request", "timeout_ms", "weight")

    def __init__(
        self,
        request: Request[Any],
        queue: _WaitingQueue,
        offset: int,
        codes: frozenset[int] | None,
        accept: PropertyFilter | None,
        timeout_ms: int,
        bucket: int,
        weight: int,
    ) -> None:
        self.request = request
        self.queue = queue
        self.offset = offset
        self.codes = codes
        self.accept = accept
        self.timeout_ms = timeout_ms
        self.bucket = bucket
        self.weight = weight


class _WaitingQueue:
    """The pulls held for one queue; listens to its appends.

    It stays until an append finds no held pull, because a consumer usually pulls again right after
    an answer, and one useless call costs less than registering the listener again.
    """

    __slots__ = ("_filters", "_log", "forget", "held", "queue_id", "store", "topic", "wake")

    def __init__(
        self,
        topic: str,
        queue_id: int,
        store: ArrivalSource,
        wake: Callable[[Sequence[HeldPull]], None],
        forget: Callable[[_WaitingQueue], None],
        filters: FilterTurn,
        log: LimitedLog,
    ) -> None:
        self._filters = filters
        self.topic = topic
        self.queue_id = queue_id
        self.held: dict[HeldPull, None] = {}
        self.store = store
        self.wake = wake
        self.forget = forget
        self._log = log

    def arrived(self, queue_offset: int, tags_code: int, store_timestamp: int) -> None:
        """Wake the pulls whose filters accept the new message. This runs inside `MessageStore.put`,
        so it must be short."""
        if not self.held:
            self.forget(self)
            return
        properties: Mapping[str, str] | None = None
        read = False
        woken = []
        for held in tuple(self.held):
            if queue_offset < held.offset or not (held.codes is None or tags_code in held.codes):
                continue
            # If no time is left for the filter, the pull is woken and applies it in another turn.
            if held.accept is not None and self._filters.may_ask(held.accept):
                # Read the properties once, when the first filter needs them.
                if not read:
                    properties = self._properties(queue_offset)
                    read = True
                if properties is not None:
                    self._filters.asked(held.accept, properties)
                    if not _accepts(held.accept, properties):
                        continue
            woken.append(held)
        self.wake(woken)

    def _properties(self, queue_offset: int) -> Mapping[str, str] | None:
        """Return None if the message cannot be read: the woken pulls report the reason."""
        try:
            return self.store.properties_at(self.topic, self.queue_id, queue_offset)
        except Exception:
            self._log.exception(
                "queue %s/%d: cannot read the message at %d",
                self.topic,
                self.queue_id,
                queue_offset,
            )
            return None


def _accepts(accept: PropertyFilter, properties: Mapping[str, str]) -> bool:
    """Return True also if the filter fails: the pull is woken, fails again and is answered with the
    error."""
    try:
        return accept(properties)
    except Exception:
        return True


class HoldService:
    """Holds pulls. `execute` executes a woken pull again; it must answer it, and returns the size
    of the answer in bytes.

    At most `limit` pulls wait at once, at most a tenth of that from one connection and half from
    one address; further pulls are not held. Unusually large pulls share `max_bytes`, and are not
    held when these are used up.

    Attributes:
        woken: runs the woken pulls, in the order in which they were woken.
        parents: executes and answers parents of pulls (Batch-Protocol). They have a separate queue
            because a parent takes longer than a pull.
    """

    def __init__(
        self,
        store: ArrivalSource,
        execute: Callable[[Request[Any]], int],
        *,
        limit: int,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.woken = TurnQueue()
        self.parents = TurnQueue()
        self._store = store
        self._execute = execute
        self._limit = limit
        self._shares = PollShares()
        self._log = LimitedLog(log)
        self._bytes = WaitingBytes(max_bytes, "held pulls", self._log)
        self._filters = FilterTurn()
        # By topic, then by queue id.
        self._queues: dict[str, dict[int, _WaitingQueue]] = {}
        # By identity: equal requests must not be confused.
        self._by_request: dict[int, HeldPull] = {}
        self._buckets: dict[int, dict[HeldPull, None]] = {}
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._deadline_bucket = 0
        self._recheck_timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of waiting pulls."""
        return len(self._by_request)

    def __contains__(self, request: Request[Any]) -> bool:
        """Tell whether this very request, not an equal one, is waiting."""
        return id(request) in self._by_request

    def hold(
        self,
        request: Request[Any],
        topic: str,
        queue_id: int,
        offset: int,
        codes: frozenset[int] | None,
        timeout_ms: int,
        accept: PropertyFilter | None = None,
    ) -> bool:
        """Keep `request` until a message at `offset` or later arrives, or for `timeout_ms`.

        Only messages with one of the tag `codes` and with properties that `accept` accepts wake it;
        None: any.

        Return False if a limit is reached or the client is gone: the caller answers at once.
        """
        connection = request.connection
        of_connection = len(connection.attributes.get(_HOLDS, ()))
        if connection.closed or self._shares.are_full(self._limit, request.owner, of_connection):
            return False
        weight = self._bytes.take(request, codes, accept)
        if weight is None:
            return False
        queues = self._queues.get(topic)
        queue = queues.get(queue_id) if queues is not None else None
        if queue is None:
            queue = _WaitingQueue(
                topic, queue_id, self._store, self._wake_all, self._forget, self._filters, self._log
            )
            self._queues.setdefault(topic, {})[queue_id] = queue
            self._store.listen(topic, queue_id, queue.arrived)
        loop = asyncio.get_running_loop()
        bucket = _bucket(loop.time(), timeout_ms)
        held = HeldPull(request, queue, offset, codes, accept, timeout_ms, bucket, weight)
        queue.held[held] = None
        self._by_request[id(request)] = held
        self._shares.add(request.owner)
        self._buckets.setdefault(bucket, {})[held] = None
        self._remember_on_connection(held)
        self._arm(loop, bucket)
        return True

    def renew(self, request: Request[Any]) -> None:
        """Restart the timeout of a held pull; do nothing if it is not held."""
        held = self._by_request.get(id(request))
        if held is None:
            return
        loop = asyncio.get_running_loop()
        bucket = _bucket(loop.time(), held.timeout_ms)
        self._remove_from_bucket(held)
        held.bucket = bucket
        self._buckets.setdefault(bucket, {})[held] = None
        self._arm(loop, bucket)

    def cancel(self, request: Request[Any]) -> bool:
        """Remove a held pull without answering it; return False if it is not held."""
        held = self._by_request.get(id(request))
        if held is None:
            return False
        self._remove(held)
        return True

    def wake_topic(self, topic: str) -> None:
        """Execute all held pulls of `topic` again: it was deleted, or its queues changed."""
        for queue in tuple(self._queues.get(topic, {}).values()):
            self._wake_all(tuple(queue.held))

    def end_all(self) -> None:
        """Answer all held pulls now, as if they had timed out, and hold none from now on."""
        self._limit = 0
        for held in tuple(self._by_request.values()):
            self._wake(held)
        while self.woken.finish_first() or self.parents.finish_first():
            pass

    def close(self) -> None:
        """Remove all held pulls and stop the timers; the connections are about to close."""
        for held in tuple(self._by_request.values()):
            self._remove(held)
        for queue in self._all_queues():
            self._forget(queue)
        self.woken.clear()
        self.parents.clear()
        for timer in (self._deadline_timer, self._recheck_timer):
            if timer is not None:
                timer.cancel()
        self._deadline_timer = self._recheck_timer = None

    # --- waking ---------------------------------------------------------------------------

    def _wake(self, held: HeldPull) -> None:
        # Callers iterate over a snapshot: this pull may have been woken since.
        if held not in held.queue.held:
            return
        self._remove(held)
        self.woken.add(map(self._run, (held.request,)))

    def _wake_all(self, all_held: Sequence[HeldPull]) -> None:
        for held in all_held[:WOKEN_AT_ONCE]:
            self._wake(held)
        if len(all_held) > WOKEN_AT_ONCE:
            self.woken.add(self._waking(all_held[WOKEN_AT_ONCE:]))

    def _waking(self, all_held: Sequence[HeldPull]) -> Iterator[int]:
        for some in in_pieces(all_held, REMOVED_AT_ONCE):
            for held in some:
                self._wake(held)
            yield 0

    def _run(self, request: Request[Any]) -> int:
        return 0 if request.connection.closed else self._execute(request)

    def _remove(self, held: HeldPull) -> None:
        del self._by_request[id(held.request)]
        self._shares.remove(held.request.owner)
        if held.weight:
            self._bytes.give_back(held.request, held.weight, held.codes, held.accept)
        queue = held.queue
        del queue.held[held]
        self._remove_from_bucket(held)
        held.request.connection.attributes[_HOLDS].pop(held, None)

    def _forget(self, queue: _WaitingQueue) -> None:
        # Callers iterate over a snapshot: this queue may have been removed or replaced since.
        queues = self._queues.get(queue.topic, {})
        if queues.get(queue.queue_id) is queue:
            del queues[queue.queue_id]
            if not queues:
                del self._queues[queue.topic]
            self._store.unlisten(queue.topic, queue.queue_id, queue.arrived)

    def _all_queues(self) -> list[_WaitingQueue]:
        return [queue for queues in self._queues.values() for queue in queues.values()]

    def _remove_from_bucket(self, held: HeldPull) -> None:
        bucket = self._buckets[held.bucket]
        del bucket[held]
        if not bucket:
            del self._buckets[held.bucket]

    # --- disconnections -------------------------------------------------------------------

    def _remember_on_connection(self, held: HeldPull) -> None:
        # One close callback per connection, not per pull: a consumer may pull for days.
        connection = held.request.connection
        holds: dict[HeldPull, None] | None = connection.attributes.get(_HOLDS)
        if holds is None:
            holds = connection.attributes[_HOLDS] = {}
            connection.add_close_callback(self._connection_closed)
        holds[held] = None

    def _connection_closed(self, connection: Any) -> None:
        self.woken.begin(self._removed(tuple(connection.attributes.get(_HOLDS, ()))))

    def _removed(self, holds: Sequence[HeldPull]) -> Iterator[int]:
        """Remove pulls in steps: very many connections with thousands may be lost at once."""
        for some in in_pieces(holds, REMOVED_AT_ONCE):
            for held in some:
                if held in held.queue.held:  # it may have been woken since
                    self._remove(held)
                lost(held.request)
            yield 0

    # --- timers ---------------------------------------------------------------------------

    def _arm(self, loop: asyncio.AbstractEventLoop, bucket: int) -> None:
        if self._deadline_timer is None or bucket < self._deadline_bucket:
            if self._deadline_timer is not None:
                self._deadline_timer.cancel()
            self._deadline_bucket = bucket
            self._deadline_timer = loop.call_at(bucket * BUCKET_SECONDS, self._deadline)
        if self._recheck_timer is None:
            self._recheck_timer = loop.call_later(RECHECK_SECONDS, self._recheck)

    def _deadline(self) -> None:
        self._deadline_timer = None
        loop = asyncio.get_running_loop()
        # 2 ms of tolerance: a timer may fire a little early, by the resolution of the clock.
        due = int(loop.time() / BUCKET_SECONDS + 0.02)
        ended = (held for bucket in sorted(self._buckets) if bucket <= due
                 for held in self._buckets[bucket])  # fmt: skip
        try:
            for held in tuple(islice(ended, WAKE_AT_ONCE)):
                self._wake(held)
        finally:
            # The rest of a bucket is due already, so this runs in the next turn.
            if self._buckets:
                self._arm(loop, min(self._buckets))

    def _recheck(self) -> None:
        self._recheck_timer = None
        try:
            self._check_queues()
        finally:
            if self._queues:
                loop = asyncio.get_running_loop()
                self._recheck_timer = loop.call_later(RECHECK_SECONDS, self._recheck)

    def _check_queues(self) -> None:
        for queue in self._all_queues():
            if not queue.held:
                self._forget(queue)
                continue
            try:
                # This may open the queue and dispatch messages, which call `arrived` meanwhile.
                end = self._store.max_offset(queue.topic, queue.queue_id)
            except OSError as error:
                self._log.error(
                    "queue %s/%d: held pulls are not checked: %s",
                    queue.topic,
                    queue.queue_id,
                    error,
                )
                continue
            for held in tuple(queue.held):
                # A filter may already have rejected all messages after the offset.
                if held.codes is None and held.accept is None and end > held.offset:
                    self._wake(held)


def _bucket(now: float, timeout_ms: int) -> int:
    """Return the first bucket that ends after the deadline."""
    return int((now + timeout_ms / 1000) / BUCKET_SECONDS) + 1


_HOLDS: Final = "held pulls"
