"""Holds messages back until they fill a batch, or the first has waited for its handler's `wait`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.dispatch.handlers import AnyHandler, Batched
from pocketmq.client.consumer.dispatch.shown_names import ShownNames
from pocketmq.client.consumer.fetch.process_queue import ProcessQueue
from pocketmq.client.consumer.fetch.pull_limiter import PullLimiter

Queue = ProcessQueue[ConsumedMessage]


class BatchWaits:
    """The queues of one consumer whose next messages wait. `handlers`: by the application's topic
    name. `over` is called with a queue when its first message has waited long enough."""

    def __init__(
        self,
        handlers: Mapping[str, AnyHandler],
        names: ShownNames,
        limiter: PullLimiter,
        over: Callable[[Queue], object],
    ) -> None:
        self._handlers = handlers
        self._names = names
        self._limiter = limiter
        self._over = over
        self._timers: dict[Queue, asyncio.TimerHandle] = {}

    def arrived(self, pq: Queue, now: float) -> None:
        """Record that messages may have arrived at `now`, seconds of the monotonic clock."""
        if pq.retries:
            pq.gathers = any(map(_waits, self._handlers.values()))
        else:
            pq.gathers = bool(pq.buffer) and _waits(
                self._handlers.get(self._names.topic(pq.buffer[0]))
            )
        if pq.gathers:
            for message in reversed(pq.buffer):
                if message.began:
                    break  # this one is not new, nor are those before it
                message.began = now

    def holds(self, pq: Queue, now: float) -> bool:
        """Return whether the next messages of a queue wait for more of their topic."""
        buffer = pq.buffer
        topic = self._names.topic(buffer[0])
        handler = self._handlers.get(topic)
        if not isinstance(handler, Batched):
            return False
        left = buffer[0].began + handler.wait - now
        if left <= 0 or len(buffer) >= handler.size or self._limiter.is_full(pq):
            return False
        if pq.retries and any(self._names.topic(message) != topic for message in buffer):
            return False  # a message of another topic follows, which ends the batch
        timer = self._timers.get(pq)
        loop = asyncio.get_running_loop()
        if timer is None or timer.when() > loop.time() + left:
            self.forget(pq)
            self._timers[pq] = loop.call_later(left, self._waited, pq)
        return True

    def _waited(self, pq: Queue) -> None:
        del self._timers[pq]
        if pq.buffer and not pq.dropped:
            self._over(pq)

    def forget(self, pq: Queue) -> None:
        """Cancel the wait of a queue."""
        timer = self._timers.pop(pq, None)
        if timer is not None:
            timer.cancel()

    def stop(self) -> None:
        """Cancel all waits."""
        for pq in list(self._timers):
            self.forget(pq)


def _waits(handler: AnyHandler | None) -> bool:
    return isinstance(handler, Batched) and handler.wait > 0
