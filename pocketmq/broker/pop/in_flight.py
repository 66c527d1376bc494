"""How many popped messages of a queue are not acknowledged yet, by group. No I/O.

It counts from the start of the broker on, and only as far as it learns of acknowledgements. With
enablePopMessageThreshold a queue with too many gives no more. Reference: PopInflightMessageCounter.
"""

from __future__ import annotations

from collections.abc import Callable

from pocketmq.broker.pop.buffer import PopQueue


class InFlight:
    """The counts of one broker."""

    def __init__(self) -> None:
        self._counts: dict[PopQueue, int] = {}

    def count(self, queue: PopQueue) -> int:
        """Return how many messages are in flight."""
        return self._counts.get(queue, 0)

    def add(self, queue: PopQueue, messages: int) -> None:
        """Count messages that were popped."""
        self._counts[queue] = self._counts.get(queue, 0) + messages

    def subtract(self, queue: PopQueue, messages: int) -> None:
        """Count messages that came to an end: acknowledged, or taken back."""
        left = self._counts.get(queue, 0) - messages
        if left > 0:
            self._counts[queue] = left
        else:
            self._counts.pop(queue, None)

    def clear(self, queue: PopQueue) -> None:
        """Forget a queue."""
        self._counts.pop(queue, None)

    def forget(self, concerned: Callable[[PopQueue], bool]) -> None:
        """Forget the queues of a topic or group that was deleted."""
        for queue in [queue for queue in self._counts if concerned(queue)]:
            del self._counts[queue]
