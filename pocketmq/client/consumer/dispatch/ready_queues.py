"""Delivers messages to callers of `poll`: from the queues in turn, held until the next call."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from pocketmq.client.consumer.fetch.process_queue import ProcessQueue
from pocketmq.client.consumer.fetch.pull_limiter import PullLimiter
from pocketmq.message.message import MessageExt

M = TypeVar("M", bound=MessageExt)


class ReadyQueues(Generic[M]):
    """The prefetched messages of a pull consumer, and those it delivered last."""

    def __init__(self, limiter: PullLimiter) -> None:
        #: Set while messages are ready, and when waiting callers should check again.
        self.arrival = asyncio.Event()
        self._limiter = limiter
        self._ready: deque[ProcessQueue[M]] = deque()
        self._held: set[ProcessQueue[M]] = set()

    @property
    def size(self) -> int:
        """Bytes of prefetched messages."""
        return self._limiter.size

    def arrived(self, pq: ProcessQueue[M]) -> None:
        """Record that a queue has messages."""
        if not pq.ready:
            pq.ready = True
            self._ready.append(pq)
        self.arrival.set()

    def take(self, count: int) -> list[M]:
        """Deliver up to `count` messages, and hold them until `release`."""
        messages: list[M] = []
        ready = self._ready
        while ready and len(messages) < count:
            pq = ready.popleft()
            pq.ready = False
            # Skip queues that were dropped or paused, or that a seek has emptied.
            if pq.dropped or pq.paused or not pq.buffer:
                continue
            taken = pq.take(count - len(messages))
            self._limiter.remove(pq, taken)
            self._held.add(pq)
            messages += taken
            if pq.buffer:
                pq.ready = True
                ready.append(pq)
        if not ready:
            self.arrival.clear()
        return messages

    def give_back(self, messages: Sequence[M]) -> None:
        """Return messages to be delivered again, before later ones: the caller was cancelled."""
        for message in reversed(messages):
            pq = next((pq for pq in self._held if pq.holds(message)), None)
            if pq is not None and pq.put_back(message):
                self._limiter.add(pq, (message,))
                self.arrived(pq)

    def release(self) -> None:
        """Mark all delivered messages as consumed."""
        if self._held:
            for pq in self._held:
                pq.release()
            self._held.clear()
