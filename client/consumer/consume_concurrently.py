"""Consuming in any order: each message by itself (ConsumeMessageConcurrentlyService)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic

from client.consumer.consume_service import ConsumeService, Queue, ServiceOwner, describe
from client.consumer.consume_stats import ConsumeStats
from client.consumer.consumed_message import ConsumedMessage, ReconsumeLater
from client.consumer.flow_control import FlowControl
from client.pauses import growing

__all__ = ["ConsumeConcurrently"]

log = logging.getLogger(__name__)

#: A message that the broker did not take back is worked on here again after so many seconds.
LOCAL_RETRY_DELAY = 5.0
#: Twice as many after each further time that the broker refused it, which may never end; at most:
LONGEST_LOCAL_RETRY_DELAY = 300.0


class ConsumeConcurrently(ConsumeService):
    """Hands out messages of all queues in turn, whether or not earlier ones are done.

    `send_back` returns a message to the broker with a delay level and tells whether it was taken;
    None in broadcast mode, where what failed is dropped.
    """

    def __init__(
        self,
        flow: FlowControl,
        stats: ConsumeStats,
        owner: ServiceOwner,
        send_back: Callable[[ConsumedMessage, int], Awaitable[bool]] | None,
    ) -> None:
        super().__init__(flow, stats, owner)
        self._send_back = send_back
        self._again: deque[ConsumedMessage] = deque()

    @property
    def has_ready(self) -> bool:
        return bool(self._ready or self._again) and not self.stopped

    def take(self) -> ConsumedMessage | None:
        if self.stopped:
            return None
        while self._again:
            message = self._again.popleft()
            if message.process_queue.holds(message) and not message.process_queue.dropped:
                message.began = monotonic()
                message.settled = False
                return message
        ready = self._ready
        while ready:
            pq = ready[0]
            buffer = pq.buffer
            # A queue that was dropped, paused or sought elsewhere is found out here.
            if not buffer or pq.dropped or pq.paused:
                ready.popleft()
                pq.ready = False
                continue
            message = self._hand_out(pq)
            if not buffer:
                ready.popleft()
                pq.ready = False
            elif len(ready) > 1:
                ready.rotate(-1)
            return message
        return None

    def succeeded(self, message: ConsumedMessage) -> None:
        if message.settled:
            return
        message.settled = True
        # As `_finish`, without its call.
        pq: Queue = message.process_queue
        if pq.done(message):
            if not pq.dropped:
                self._flow.remove_one(pq, message.counted)
            self._count(message, ok=True)

    async def failed(self, message: ConsumedMessage, error: BaseException | None) -> None:
        pq: Queue = message.process_queue
        # Who has the queue now gets the message from the broker.
        if message.settled or pq.dropped or not pq.holds(message):
            return
        message.settled = True
        self._count(message, ok=False)
        self._say(message, error)
        if self._send_back is None:
            log.warning(
                "%s is dropped: there is no retry in broadcast mode",
                describe(message),
                extra=self._fields(message),
            )
            self._finish(message)
            return
        delay_level = error.delay_level if isinstance(error, ReconsumeLater) else 0
        taken = False
        try:
            taken = await self._send_back(message, delay_level)
        finally:
            # Also when this is cancelled: somebody has to work on it.
            if taken:
                self._finish(message)
            else:
                message.reconsume_times += 1
                # While it is not refused but not answered, the pause stays as it is.
                times = max(message.refusals, 1)
                delay = growing(LOCAL_RETRY_DELAY, LONGEST_LOCAL_RETRY_DELAY, times)
                self._later(delay, self._retry, message)

    def _retry(self, message: ConsumedMessage) -> None:
        if message.process_queue.paused:
            self._later(LOCAL_RETRY_DELAY, self._retry, message)
            return
        self._again.append(message)
        self._owner.wake()
