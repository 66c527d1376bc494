"""Orderly consumption: one message or batch of a queue at a time, in the order of the queue.

Reference: ConsumeMessageOrderlyService.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from time import monotonic

from pocketmq.client.consumer.consumed_message import BatchFailure, ConsumedMessage
from pocketmq.client.consumer.dispatch.consume_service import (
    ConsumeService,
    Fate,
    GiveBack,
    Queue,
)
from pocketmq.client.consumer.dispatch.consume_stats import ConsumeStats
from pocketmq.client.consumer.dispatch.failure_policy import FailurePolicy
from pocketmq.client.consumer.dispatch.handlers import AnyHandler
from pocketmq.client.consumer.dispatch.shown_names import ShownNames
from pocketmq.client.consumer.fetch.pull_limiter import PullLimiter
from pocketmq.client.reconsume_later import DEAD_LETTER, ReconsumeLater


class ConsumeOrderly(ConsumeService):
    """Delivers the first message of each queue of which no message is in progress.

    A message that fails is retried after `suspend` seconds, or after the policy's delay for its
    exception, and its queue waits. After `max_reconsume_times` (None: never), `send_back` moves it
    to the dead letters; in broadcast mode (`send_back` is None) it is dropped. With `locked`, a
    queue waits while its lock may be lost.
    """

    def __init__(
        self,
        limiter: PullLimiter,
        stats: ConsumeStats,
        names: ShownNames,
        send_back: GiveBack | None,
        policy: FailurePolicy,
        handlers: Mapping[str, AnyHandler],
        *,
        suspend: float,
        max_reconsume_times: int | None,
        locked: bool,
    ) -> None:
        super().__init__(limiter, stats, names, send_back, policy, handlers)
        self._suspend = suspend
        self._max_reconsume_times = max_reconsume_times
        self._locked = locked
        self._idle: dict[Queue, asyncio.Event] = {}

    def _has_messages(self, pq: Queue) -> None:
        if not pq.busy:
            super()._has_messages(pq)

    def take(self) -> ConsumedMessage | None:
        if self.stopped:
            return None
        ready = self._ready
        while ready:
            pq = ready.popleft()
            pq.ready = False
            if not pq.buffer or pq.dropped or pq.paused or pq.busy:
                continue
            now = monotonic()
            if self._locked and (pq.lock_doubtful or now >= pq.locked_until):
                continue  # the next renewal extends the lock or drops the queue
            if pq.gathers and self._waits.holds(pq, now):
                continue
            return self._hand_out(pq, now)
        return None

    def _hand_out(self, pq: Queue, now: float) -> ConsumedMessage:
        pq.busy += 1
        return ConsumeService._hand_out(self, pq, now)  # takes half the time of super()

    def succeeded(self, message: ConsumedMessage) -> None:
        if message.settled:
            return
        message.settled = True
        if self._finish(message):
            self._count(message, ok=True)
        self._go_on(message)

    async def failed(self, message: ConsumedMessage, error: BaseException | None) -> None:
        pq: Queue = message.process_queue
        if message.settled:
            return
        message.settled = True
        if pq.dropped or not pq.holds(message):
            self._go_on(message)
            return
        self._count(message, ok=False)
        reason = error.reason if isinstance(error, BatchFailure) else error
        pause, limit = self._suspend, self._max_reconsume_times
        delay = self._policy.delay(reason, message.reconsume_times)
        if delay is not None:
            over, pause = delay < 0, delay
        elif isinstance(reason, ReconsumeLater) and reason.delay_level < 0:
            over = True
        else:
            over = limit is not None and message.reconsume_times >= limit
        fate = Fate.REDELIVERED
        if over:
            fate = Fate.DROPPED if self._send_back is None else Fate.DEAD
        self._say(message, error, fate)
        taken = False
        try:
            taken = over and (
                self._send_back is None or await self._send_back(message, DEAD_LETTER, reason)
            )
        finally:
            # Also after a cancellation: the queue waits for this message.
            if taken:
                self._finish(message)
                self._go_on(message)
            else:
                message.reconsume_times += 1
                # A message that could not be moved to the dead letters is retried too.
                self._later(pause if pause >= 0 else self._suspend, self._again, message)

    def _again(self, message: ConsumedMessage) -> None:
        message.began = -math.inf  # it does not wait for a full batch again
        message.process_queue.put_back(message)
        self._go_on(message)

    def _go_on(self, message: ConsumedMessage) -> None:
        """Record that a message is no longer in progress; continue with its queue if none is."""
        pq: Queue = message.process_queue
        self._release(pq)
        if not pq.busy and pq.buffer and not pq.dropped:
            self._has_messages(pq)

    def _release(self, pq: Queue) -> None:
        pq.busy -= 1
        if not pq.busy:
            idle = self._idle.pop(pq, None)
            if idle is not None:
                idle.set()

    def dropped(self, pq: Queue) -> None:
        waiting = sum(message.process_queue is pq for message in self._timers.values())
        super().dropped(pq)
        for _ in range(waiting):
            self._release(pq)

    async def idle(self, pq: Queue) -> None:
        """Return when no message of a dropped queue is in progress."""
        if pq.busy:
            await self._idle.setdefault(pq, asyncio.Event()).wait()

    def renewed(self, pq: Queue, until: float) -> None:
        """Record until when a queue's lock is valid, seconds of the monotonic clock."""
        pq.locked_until = until
        pq.lock_doubtful = False
        if pq.buffer:
            self._has_messages(pq)
