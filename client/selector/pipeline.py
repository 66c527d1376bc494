"""The selection pipeline (RIP-63): stages of filters over a round-robin walk.

| stage | filters |
|---|---|
| 1 | available, brokers that did not fail in this send, the user's |
| 2 | reachable, brokers that did not fail in this send, the user's |
| 3 | any queue this send has not tried, of another broker than the last if there is one |

A queue is chosen by walking once through the list from where the last choice ended, and taking
the first that passes every filter of the stage. Stage 3 repeats until every queue has been tried
one by one; only then does a send run out of queues.

Reference: MQFaultStrategy.selectOneMessageQueue, with two differences that protocol.md asks for:
a retry avoids every broker that failed in this send, in every stage, and stage 3 never offers the
same queue of one send twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from client.selector.filters import (
    AvailableFilter,
    BrokerFilter,
    QueueFilter,
    ReachableFilter,
    UntriedFilter,
)
from client.selector.latency import LatencyFaultTolerance
from client.selector.switches import Switches
from message.message import MessageQueue

__all__ = ["PublishQueues", "QueueSelector", "Tries"]


class PublishQueues:
    """A topic's writable queues and where the walk through them stands.

    Reference: TopicPublishInfo. The walk begins at a random place, so that many clients starting
    together do not all begin with the same broker.
    """

    __slots__ = ("_next", "broker_count", "queues")

    def __init__(self, queues: Sequence[MessageQueue], *, start: int | None = None) -> None:
        self.queues = tuple(queues)
        self.broker_count = len({queue.broker_name for queue in self.queues})
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
    any time through `apply`.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        switches: Switches | None = None,
        filters: Sequence[QueueFilter] = (),
        tolerance: LatencyFaultTolerance | None = None,
    ) -> None:
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
            return queues.next()
        stages = (self._available, self._reachable) if learning else (_any_queue,)
        avoid = BrokerFilter(tries.failed_brokers if tries is not None else ())
        for stage in stages:
            queue = queues.first(stage, avoid, *self.filters)
            if queue is not None:
                return queue
        if tries is None:
            return queues.next()
        untried = UntriedFilter(tries.queues)
        elsewhere = BrokerFilter((tries.last_broker,) if tries.last_broker is not None else ())
        return queues.first(untried, elsewhere) or queues.first(untried)

    def answered(self, broker_name: str, latency: float) -> None:
        """The broker stored the message after `latency` seconds."""
        if self.switches.send_latency_enable:
            self.tolerance.record(broker_name, latency)

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
