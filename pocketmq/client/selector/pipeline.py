"""The selection pipeline (RIP-63): stages of filters over a round-robin walk.

| stage | filters |
|---|---|
| 1 | available, brokers that did not fail in this send, the user's |
| 2 | reachable, brokers that did not fail in this send, the user's |
| 3 | any queue this send has not tried, of another broker than the last if there is one |

A queue is chosen by walking once through the list from where the last choice ended, and taking
the first that passes every filter of the stage. With penalised selection the broker of that queue
is then compared with one other that passes, drawn at random, and the send goes to the better one
(client.selector.penalty). Stage 3 repeats until every queue has been tried one by one; only then
does a send run out of queues.

Reference: MQFaultStrategy.selectOneMessageQueue. Different here: a retry avoids every broker that
failed in this send, in every stage; stage 3 never offers the same queue of one send twice; the
comparison.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from pocketmq.client.selector.filters import (
    AvailableFilter,
    BrokerFilter,
    QueueFilter,
    ReachableFilter,
    UntriedFilter,
)
from pocketmq.client.selector.latency import FaultItem, LatencyFaultTolerance
from pocketmq.client.selector.penalty import Selection, better
from pocketmq.client.selector.switches import Switches
from pocketmq.message.message import MessageQueue

__all__ = ["PublishQueues", "QueueSelector", "Tries"]


class PublishQueues:
    """A topic's writable queues and where the walk through them stands.

    Reference: TopicPublishInfo. The walk begins at a random place, so that many clients starting
    together do not all begin with the same broker. `by_broker` are the same queues, each broker's
    with a walk of their own; empty where there is only one broker.
    """

    __slots__ = ("_next", "broker_count", "brokers", "by_broker", "queues")

    def __init__(self, queues: Sequence[MessageQueue], *, start: int | None = None) -> None:
        self.queues = tuple(queues)
        parts: dict[str, list[MessageQueue]] = {}
        for queue in self.queues:
            parts.setdefault(queue.broker_name, []).append(queue)
        self.brokers = tuple(parts)
        self.broker_count = len(parts)
        self.by_broker: Mapping[str, PublishQueues] = (
            {name: PublishQueues(part, start=start) for name, part in parts.items()}
            if len(parts) > 1
            else {}
        )
        self._next = random.randrange(len(self.queues) or 1) if start is None else start

    def next(self) -> MessageQueue | None:
        """The next queue in turn; None when there is none at all."""
        queues = self.queues
        if not queues:
            return None
        index = self._next % len(queues)
        self._next = index + 1
        return queues[index]

    def first(self, *filters: QueueFilter) -> MessageQueue | None:
        """The first queue in turn that passes every filter, or None after one whole walk."""
        for _ in self.queues:
            queue = self.next()
            if queue is not None and all(passes(queue) for passes in filters):
                return queue
        return None


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
        self._draw = draw
        self.tolerance = tolerance if tolerance is not None else LatencyFaultTolerance(clock)
        self.filters: list[QueueFilter] = list(filters)
        self.switches = switches if switches is not None else Switches()
        self._available = AvailableFilter(self.tolerance)
        self._reachable = ReachableFilter(self.tolerance)

    def apply(self, switches: Switches) -> None:
        """Take other switches; what a switch that is now off has learnt is dropped."""
        self.switches = switches
        if not switches.send_latency_enable:
            self.tolerance.clear()
        elif not switches.start_detector_enable:
            self.tolerance.mark_all_reachable()

    def select(self, queues: PublishQueues, tries: Tries | None = None) -> MessageQueue | None:
        """The queue for the next attempt of a send; None when every queue has been tried.

        `tries` is None for a send's first attempt.
        """
        learning = self.switches.send_latency_enable
        if tries is None and not self.filters and (not learning or self.tolerance.all_available()):
            queue = queues.next()
            if not learning or queues.broker_count < 2 or self.selection is Selection.ROUND_ROBIN:
                return queue
            assert queue is not None
            return self._better(queues, queue, queues.brokers)
        stages = (self._available, self._reachable) if learning else (_any_queue,)
        avoid = BrokerFilter(tries.failed_brokers if tries is not None else ())
        for stage in stages:
            queue = queues.first(stage, avoid, *self.filters)
            if queue is None:
                continue
            if not learning or self.selection is Selection.ROUND_ROBIN:
                return queue
            brokers = [
                name
                for name, part in queues.by_broker.items()
                if stage(part.queues[0]) and avoid(part.queues[0])
            ]
            return self._better(queues, queue, brokers)
        if tries is None:
            return queues.next()
        untried = UntriedFilter(tries.queues)
        elsewhere = BrokerFilter((tries.last_broker,) if tries.last_broker is not None else ())
        return queues.first(untried, elsewhere) or queues.first(untried)

    def _better(
        self, queues: PublishQueues, queue: MessageQueue, brokers: Sequence[str]
    ) -> MessageQueue:
        """`queue`, whose turn it is, or one of another of the `brokers` if that is better."""
        others = len(brokers) - 1
        if others < 1:
            return queue
        turn = brokers.index(queue.broker_name)
        other = brokers[(turn + 1 + int(self._draw() * others)) % (others + 1)]
        item = self.tolerance.item
        stale_after = self.switches.detect_interval / 1000
        if not better(item(other), item(queue.broker_name), self.clock(), stale_after):
            return queue
        return queues.by_broker[other].first(*self.filters) or queue

    def other_available(self, queues: PublishQueues, broker_name: str) -> bool:
        """Whether any other broker of the queues is available."""
        tolerance = self.tolerance
        return tolerance.all_available() or any(
            name != broker_name and tolerance.is_available(name) for name in queues.brokers
        )

    def began(self, broker_name: str, now: float) -> FaultItem:
        """An attempt begins; whoever makes it takes 1 off `in_flight` again when it ends."""
        item = self.tolerance.item(broker_name)
        item.began(now)
        return item

    def answered(self, broker_name: str, latency: float) -> None:
        """The broker stored the message after `latency` seconds."""
        if self.switches.send_latency_enable:
            stale_after = self.switches.detect_interval / 1000
            self.tolerance.answered(broker_name, latency, stale_after)

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


def _any_queue(_queue: MessageQueue, /) -> bool:
    return True
