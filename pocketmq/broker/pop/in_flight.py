"""The number of popped messages of a queue that are not acknowledged yet, by group. No I/O.

It counts from the start of the broker. With enablePopMessageThreshold, a queue with too many such
messages delivers no more. Reference: PopInflightMessageCounter.
"""

from __future__ import annotations

from collections.abc import Callable

from pocketmq.broker.pop.buffer import PopQueue


class InFlight:
    """The counts of one broker."""

    def __init__(self) -> None:
        self._counts: dict[PopQueue, int] = {}

    def count(self, queue: PopQueue) -> int:
        """Return the number of messages in flight."""
        return self._counts.get(queue, 0)

    def add(self, queue: PopQueue, messages: int) -> None:
        """Count messages that were popped."""
        self._counts[queue] = self._counts.get(queue, 0) + messages

    def subtract(self, queue: PopQueue, messages: int) -> None:
        """Subtract messages that were acknowledged or revived."""
        left = self._counts.get(queue, 0) - messages
        if left > 0:
            self._counts[queue] = left
        else:
            self._counts.pop(queue, None)

    def clear(self, queue: PopQueue) -> None:
        """Remove a queue."""
        self._counts.pop(queue, None)

    def forget(self, concerned: Callable[[PopQueue], bool]) -> None:
        """Remove the queues of a deleted topic or group."""
        for queue in [queue for queue in self._counts if concerned(queue)]:
            del self._counts[queue]
