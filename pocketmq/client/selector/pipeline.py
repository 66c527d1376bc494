"""The selection pipeline (RIP-63): stages of filters over a round-robin walk.

| stage | filters |
|---|---|
| 1 | available, brokers that did not fail in this send, the user's |
| 2 | reachable, brokers that did not fail in this send, the user's |
| 3 | any queue this send has not tried, of another broker than the last if there is one |

A queue is chosen by walking through the list from where the last choice ended, and taking the first
that passes every filter of the stage and has not received more messages than the others. With
penalised selection the broker of that queue is then compared with others that pass, drawn at
random, and the send goes to the better one (client.selector.penalty). Stage 3 repeats until every
queue has been tried one by one; only then does a send run out of queues.

Reference: MQFaultStrategy.selectOneMessageQueue. Different here: a retry avoids every broker that
failed in this send, in every stage; stage 3 never offers the same queue of one send twice; the
comparison.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pocketmq.client.selector.filters import (
    AvailableFilter,
    BrokerFilter,
    QueueFilter,
    ReachableFilter,
    UntriedFilter,
)
from pocketmq.client.selector.latency import LatencyFaultTolerance
from pocketmq.client.selector.penalty import Selection, better
from pocketmq.client.selector.switches import Switches
from pocketmq.message.message import MessageQueue

#: How many messages a queue may lag behind the others, if no request carries more.
LAG = 8


class PublishQueues:
    """A topic's writable queues, and which of them is next.

    Reference: TopicPublishInfo. The walk begins at a random place, so that many clients starting
    together do not all begin with the same broker. `brokers` are the names in the walk's order.

    Different here: turns count messages, not requests, so that bursts and single sends mix evenly.
    A queue whose last request was larger than those of the others is passed over until they have
    received as many messages. One that lost its turn to a better broker has the next turn, until it
    lags by LAG messages or twice the largest request so far. One that could not be used for a while
    does not catch up afterwards.
    """

    __slots__ = ("_lag", "_level", "_next", "_received", "broker_count", "brokers", "queues")

    def __init__(self, queues: Sequence[MessageQueue], *, start: int | None = None) -> None:
        self.queues = tuple(queues)
        self.brokers = tuple(dict.fromkeys(queue.broker_name for queue in self.queues))
        self.broker_count = len(self.brokers)
        self._next = random.randrange(len(self.queues) or 1) if start is None else start
        #: Messages for each queue. One that has received fewer than `_level` counts as level.
        self._received = [0] * len(self.queues)
        self._level = 0
        self._lag = LAG

    def next(self, messages: int = 1) -> MessageQueue | None:
        """The next queue, for so many messages; None when there is none at all."""
        received = self._received
        size = len(received)
        if not size:
            return None
        index, level = self._next % size, self._level
        if received[index] > level:
            level = self._level = max(level, min(received))
            while received[index] > level:
                index = (index + 1) % size
        self._next = index + 1
        # What `_charge` does: it is level, and its request moves the level of no other.
        received[index] = level + messages
        if messages > 1 and 2 * messages > self._lag:
            self._lag = 2 * messages
        return self.queues[index]

    def first(self, *filters: QueueFilter, messages: int = 1) -> MessageQueue | None:
        """The next queue among those that pass every filter, or None."""
        received, level = self._received, self._level
        index = min(self._passing(filters), key=lambda i: max(received[i], level), default=None)
        if index is None:
            return None
        self._level = max(received[index], level)
        self._next = index + 1
        self._charge(index, messages)
        return self.queues[index]

    def instead(
        self, turn: MessageQueue, *filters: QueueFilter, messages: int = 1
    ) -> MessageQueue | None:
        """A queue that passes every filter in place of `turn`, which was the next; None if none
        passes. The walk goes on after `turn`."""
        index = min(self._passing(filters), key=self._received.__getitem__, default=None)
        if index is None:
            return None
        self._received[self.queues.index(turn)] -= messages
        self._charge(index, messages)
        return self.queues[index]

    def _passing(self, filters: Sequence[QueueFilter]) -> Iterator[int]:
        """The places of the queues that pass every filter, in the order of the walk."""
        size = len(self.queues)
        for step in range(size):
            index = (self._next + step) % size
            if all(passes(self.queues[index]) for passes in filters):
                yield index

    def _charge(self, index: int, messages: int) -> None:
        total = max(self._received[index], self._level) + messages
        self._received[index] = total
        self._lag = max(self._lag, 2 * messages)
        self._level = max(self._level, total - self._lag)


class Tries:
    """What one send has tried so far: its queues, the brokers that failed, the last of them."""

    __slots__ = ("failed_brokers", "last_broker", "queues")

    def __init__(self) -> None:
        self.queues: set[MessageQueue] = set()
        self.failed_brokers: set[str] = set()
        self.last_broker: str | None = None

    def failed(self, queue: MessageQueue) -> None:
        self.queues.add(queue)
        self.failed_brokers.add(queue.broker_name)
        self.last_broker = queue.broker_name


class QueueSelector:
    """Chooses queues and learns from the outcome of each send.

    `filters` are the user's; the list may be changed at any time. `switches` may be replaced at
    any time through `apply`. `selection`: how to choose among the queues that pass. `draw` gives
    random numbers from 0 up to, not including, 1.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        switches: Switches | None = None,
        filters: Sequence[QueueFilter] = (),
        tolerance: LatencyFaultTolerance | None = None,
        selection: Selection = Selection.PENALISED,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.selection = selection
        self.clock = clock
        #: When a broker stored a message last, clock seconds; None for never.
        self.answered_at: float | None = None
        self._draw = draw
        self.tolerance = tolerance if tolerance is not None else LatencyFaultTolerance(clock)
        self.filters: list[QueueFilter] = list(filters)
        self.apply(switches if switches is not None else Switches())
        self._available = AvailableFilter(self.tolerance)
        self._reachable = ReachableFilter(self.tolerance)

    def apply(self, switches: Switches) -> None:
        """Take other switches; what a switch that is now off has learnt is dropped."""
        self.switches = switches
        #: After so many seconds without an answer, what is known of a broker's latency is old.
        self._stale_after = switches.detect_interval / 1000
        if not switches.send_latency_enable:
            self.tolerance.clear()
        elif not switches.start_detector_enable:
            self.tolerance.mark_all_reachable()

    def select(
        self, queues: PublishQueues, tries: Tries | None = None, messages: int = 1
    ) -> MessageQueue | None:
        """The queue for the next attempt of a send; None when every queue has been tried.

        `tries` is None for a send's first attempt; `messages`: how many the request carries.
        """
        learning = self.switches.send_latency_enable
        if tries is None and not self.filters and not (learning and self.tolerance.on_trial):
            queue = queues.next(messages)
            if not learning or queues.broker_count < 2 or self.selection is Selection.ROUND_ROBIN:
                return queue
            assert queue is not None
            return self._better(queues, queue, queues.brokers, messages)
        stages = (self._available, self._reachable) if learning else (_any_queue,)
        avoid = BrokerFilter(tries.failed_brokers if tries is not None else ())
        for stage in stages:
            queue = queues.first(stage, avoid, *self.filters, messages=messages)
            if queue is None:
                continue
            if not learning or self.selection is Selection.ROUND_ROBIN:
                return queue
            usable = dict.fromkeys(
                each.broker_name for each in queues.queues if stage(each) and avoid(each)
            )
            return self._better(queues, queue, tuple(usable), messages)
        if tries is None:
            return queues.next(messages)
        untried = UntriedFilter(tries.queues)
        elsewhere = BrokerFilter((tries.last_broker,) if tries.last_broker is not None else ())
        return queues.first(untried, elsewhere, messages=messages) or queues.first(
            untried, messages=messages
        )

    def _better(
        self, queues: PublishQueues, queue: MessageQueue, brokers: Sequence[str], messages: int
    ) -> MessageQueue:
        """`queue`, whose turn it is, or one of another of the `brokers` if that is better."""
        others = len(brokers) - 1
        if others < 1:
            return queue
        now = self.clock()
        item = self.tolerance.item
        turn = brokers.index(queue.broker_name)
        best = turn
        # A queue that lost its turn has the next one as well, so two others are compared with it.
        for _ in range(min(others, 2)):
            other = (turn + 1 + int(self._draw() * others)) % (others + 1)
            if other != best and better(
                item(brokers[other]), item(brokers[best]), now, self._stale_after, messages
            ):
                best = other
            elif best == turn:
                return queue
        of_other = partial(_is_of, brokers[best])
        return queues.instead(queue, of_other, *self.filters, messages=messages) or queue

    def other_available(self, queues: PublishQueues, broker_name: str) -> bool:
        """Whether any other broker of the queues is available."""
        tolerance = self.tolerance
        return not tolerance.on_trial or any(
            name != broker_name and tolerance.is_available(name) for name in queues.brokers
        )

    def answered(self, broker_name: str, latency: float) -> None:
        """The broker stored the message after `latency` seconds."""
        now = self.answered_at = self.clock()
        if self.switches.send_latency_enable:
            self.tolerance.answered(broker_name, latency, now, self._stale_after)

    def refused(self, broker_name: str, latency: float) -> None:
        """The broker answered with an error: isolated, and reachable because it answered."""
        if self.switches.send_latency_enable:
            self.tolerance.record(broker_name, latency, isolate=True)

    def silent(self, broker_name: str, latency: float) -> None:
        """No answer (no connection, lost, or too late): isolated, and unreachable while the
        detector runs that can take that back."""
        if self.switches.send_latency_enable:
            self.tolerance.record(
                broker_name,
                latency,
                isolate=True,
                reachable=not self.switches.start_detector_enable,
            )


def _is_of(broker_name: str, queue: MessageQueue) -> bool:
    return queue.broker_name == broker_name


def _any_queue(_queue: MessageQueue, /) -> bool:
    return True
