"""The selection pipeline (RIP-63): stages of filters over a round-robin walk.

| stage | filters |
|---|---|
| 1 | available, broker did not fail in this send, the user's |
| 2 | reachable, broker did not fail in this send, the user's |
| 3 | queue not tried in this send, of another broker than the last if there is one |

The walk begins after the last chosen queue and takes the first one that passes all filters of the
stage and has not received more messages than the others. With penalised selection, the broker of
that queue is then compared with random others that pass, and the better one gets the send
(`client.selector.penalty`). Stage 3 repeats until every queue has been tried once; only then does a
send run out of queues.

Reference: MQFaultStrategy.selectOneMessageQueue. Differences: in every stage, a retry avoids all
brokers that failed in this send; stage 3 never offers a queue twice to one send; and the comparison
of brokers.
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

#: How many messages fewer than the others a queue may receive, if requests are not larger.
LAG = 8


class PublishQueues:
    """A topic's writable queues, and the next one in turn.

    Reference: TopicPublishInfo. The walk begins at a random queue, so that clients that start
    together do not all begin with the same broker. `brokers`: the names in the order of the walk.

    Unlike the reference, turns count messages, not requests, so that bursts and single sends mix
    evenly. A queue whose last request was larger than those of the others is skipped until they
    have received as many messages. One that lost its turn to a better broker has the next turn,
    until it lags by LAG messages or twice the largest request so far. One that could not be used
    for a while does not catch up afterwards.
    """

    __slots__ = ("_lag", "_level", "_next", "_received", "broker_count", "brokers", "queues")

    def __init__(self, queues: Sequence[MessageQueue], *, start: int | None = None) -> None:
        self.queues = tuple(queues)
        self.brokers = tuple(dict.fromkeys(queue.broker_name for queue in self.queues))
        self.broker_count = len(self.brokers)
        self._next = random.randrange(len(self.queues) or 1) if start is None else start
        #: Messages per queue. A queue with fewer than `_level` counts as having `_level`.
        self._received = [0] * len(self.queues)
        self._level = 0
        self._lag = LAG

    def next(self, messages: int = 1) -> MessageQueue | None:
        """Return the next queue, for a request of `messages`; None if the topic has no queues."""
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
        # As `_charge` does: the queue is at the level, and the level of the others stays.
        received[index] = level + messages
        if messages > 1 and 2 * messages > self._lag:
            self._lag = 2 * messages
        return self.queues[index]

    def first(self, *filters: QueueFilter, messages: int = 1) -> MessageQueue | None:
        """Return the next queue among those that pass every filter, or None."""
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
        """Return a queue that passes every filter, in place of `turn`, which was the next; None if
        none passes. The walk continues after `turn`."""
        index = min(self._passing(filters), key=self._received.__getitem__, default=None)
        if index is None:
            return None
        self._received[self.queues.index(turn)] -= messages
        self._charge(index, messages)
        return self.queues[index]

    def _passing(self, filters: Sequence[QueueFilter]) -> Iterator[int]:
        """Yield the indexes of the queues that pass every filter, in the order of the walk."""
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
    """The attempts of one send so far: the queues, the failed brokers, and the last of these."""

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
    any time with `apply`. `selection`: how to choose among the queues that pass. `draw` returns
    random numbers in [0, 1).
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
        #: When a broker last stored a message, clock seconds; None for never.
        self.answered_at: float | None = None
        self._draw = draw
        self.tolerance = tolerance if tolerance is not None else LatencyFaultTolerance(clock)
        self.filters: list[QueueFilter] = list(filters)
        self.apply(switches if switches is not None else Switches())
        self._available = AvailableFilter(self.tolerance)
        self._reachable = ReachableFilter(self.tolerance)

    def apply(self, switches: Switches) -> None:
        """Replace the switches; the state that belongs to a switch that is now off is dropped."""
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
        """Return the queue for the next attempt of a send; None if every queue has been tried.

        `tries` is None for a send's first attempt. `messages`: their number in the request.
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
        """Return `queue`, whose turn it is, or one of another of the `brokers` if that is
        better."""
        others = len(brokers) - 1
        if others < 1:
            return queue
        now = self.clock()
        item = self.tolerance.item
        turn = brokers.index(queue.broker_name)
        best = turn
        # A queue that lost its turn has the next one too, so it is compared with two others.
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
        """Return whether any other broker of the queues is available."""
        tolerance = self.tolerance
        return not tolerance.on_trial or any(
            name != broker_name and tolerance.is_available(name) for name in queues.brokers
        )

    def answered(self, broker_name: str, latency: float) -> None:
        """Record that the broker stored the message after `latency` seconds."""
        now = self.answered_at = self.clock()
        if self.switches.send_latency_enable:
            self.tolerance.answered(broker_name, latency, now, self._stale_after)

    def refused(self, broker_name: str, latency: float) -> None:
        """Record an error answer: the broker is isolated, but reachable, because it answered."""
        if self.switches.send_latency_enable:
            self.tolerance.record(broker_name, latency, isolate=True)

    def silent(self, broker_name: str, latency: float) -> None:
        """Record that no answer came (no connection, lost, or too late): the broker is isolated,
        and unreachable if the detector runs, which can undo that."""
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
