"""Queue filters: callables that decide whether a queue may be chosen (RIP-63).

A filter takes a MessageQueue and returns a bool. A custom one is a function or a class with
`__call__`:

    Producer("orders", filters=[lambda queue: queue.broker_name.startswith("zone-a-")])

Filters are preferences: if no queue passes them, the last stage of the pipeline still offers every
queue in turn, so a filter can never leave a send without a queue.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from pocketmq.client.selector.latency import LatencyFaultTolerance
from pocketmq.message.message import MessageQueue


class QueueFilter(Protocol):
    def __call__(self, queue: MessageQueue, /) -> bool:
        """Return whether the queue may be chosen."""


class AvailableFilter:
    """Passes queues of brokers that are neither isolated nor unreachable."""

    def __init__(self, tolerance: LatencyFaultTolerance) -> None:
        self._tolerance = tolerance

    def __call__(self, queue: MessageQueue, /) -> bool:
        return self._tolerance.is_available(queue.broker_name)


class ReachableFilter:
    """Passes queues of brokers that are reachable, isolated or not."""

    def __init__(self, tolerance: LatencyFaultTolerance) -> None:
        self._tolerance = tolerance

    def __call__(self, queue: MessageQueue, /) -> bool:
        return self._tolerance.is_reachable(queue.broker_name)


class BrokerFilter:
    """Passes queues of all but the given brokers: a retry avoids the brokers that just failed."""

    def __init__(self, broker_names: Collection[str]) -> None:
        self._broker_names = broker_names

    def __call__(self, queue: MessageQueue, /) -> bool:
        return queue.broker_name not in self._broker_names


class UntriedFilter:
    """Passes queues that this send has not tried yet."""

    def __init__(self, tried: Collection[MessageQueue]) -> None:
        self._tried = tried

    def __call__(self, queue: MessageQueue, /) -> bool:
        return queue not in self._tried
