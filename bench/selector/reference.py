"""The rules of the Java producer 5.3.3, to be compared with.

After LatencyFaultToleranceImpl, MQFaultStrategy, TopicPublishInfo and the loop of
DefaultMQProducerImpl.sendDefaultImpl, in our own words and with its switches as arguments:
`latency` (sendLatencyEnable) and `detector` (startDetectorEnable). With both off it is the plain
round-robin that the Java producer does by default.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from pocketmq.client.errors import RemotingError, RemotingTimeout, is_silence
from pocketmq.client.selector.latency import LATENCY_MAX_MS, NOT_AVAILABLE_DURATION_MS
from pocketmq.message.message import MessageQueue

__all__ = ["ReferenceClient"]

Attempt = Callable[[MessageQueue, float], Awaitable[MessageQueue]]
Probe = Callable[[str, float], Awaitable[bool]]

TIMES = 3
ISOLATED_AS = 10.0
PERIOD, INTERVAL, PROBE_TIMEOUT = 3.0, 2.0, 0.2


class _Fault:
    def __init__(self) -> None:
        self.available_at = 0.0
        self.check_at = 0.0
        self.reachable = True


class ReferenceClient:
    """One Java producer: `send` and, with the detector, `detect`."""

    def __init__(
        self,
        queues: Sequence[MessageQueue],
        attempt: Attempt,
        probe: Probe,
        clock: Callable[[], float],
        *,
        start: int,
        latency: bool,
        detector: bool,
    ) -> None:
        self._queues = queues
        self._attempt = attempt
        self._probe = probe
        self._clock = clock
        self._index = start
        self._latency = latency
        self._detector = detector
        self._faults: dict[str, _Fault] = {}

    async def send(self, timeout: float) -> MessageQueue:
        """Where the message was stored; raises the last error, or RemotingTimeout when the time
        was over before an attempt."""
        began = self._clock()
        last: MessageQueue | None = None
        error: RemotingError | None = None
        for _ in range(TIMES):
            queue = last = self._select(last)
            now = self._clock()
            if timeout < now - began:
                break
            try:
                stored = await self._attempt(queue, timeout - (now - began))
            except RemotingError as failure:
                error = failure
                reachable = not (self._detector or not is_silence(failure))
                self._update(queue.broker_name, ISOLATED_AS, reachable)
            else:
                self._update(queue.broker_name, self._clock() - now, True)
                return stored
        raise error or RemotingTimeout("no attempt was made")

    async def detect(self) -> None:
        """Rounds for ever: whoever is known is asked when due, one after another."""
        while self._detector:
            await asyncio.sleep(PERIOD)
            for name, fault in list(self._faults.items()):
                if self._clock() < fault.check_at:
                    continue
                fault.check_at = self._clock() + INTERVAL
                if await self._probe(name, PROBE_TIMEOUT):
                    fault.reachable = True

    def _select(self, last: MessageQueue | None) -> MessageQueue:
        def elsewhere(queue: MessageQueue) -> bool:
            return last is None or queue.broker_name != last.broker_name

        for passes in (self._available, self._reachable):
            for _ in self._queues:
                queue = self._next()
                if passes(queue.broker_name) and elsewhere(queue):
                    return queue
        return self._next()

    def _next(self) -> MessageQueue:
        self._index += 1
        return self._queues[self._index % len(self._queues)]

    def _available(self, name: str) -> bool:
        fault = self._faults.get(name)
        return fault is None or self._clock() >= fault.available_at

    def _reachable(self, name: str) -> bool:
        fault = self._faults.get(name)
        return fault is None or fault.reachable

    def _update(self, name: str, latency: float, reachable: bool) -> None:
        if not self._latency:
            return
        fault = self._faults.setdefault(name, _Fault())
        fault.reachable = reachable
        duration = 0.0
        for least, isolation in zip(LATENCY_MAX_MS, NOT_AVAILABLE_DURATION_MS, strict=True):
            if latency * 1000 >= least:
                duration = isolation / 1000
        if duration > 0:
            fault.available_at = max(fault.available_at, self._clock() + duration)
