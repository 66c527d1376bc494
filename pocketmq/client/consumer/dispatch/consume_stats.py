"""Statistics of consumed messages by topic, with rates over the last minute.

Reference: ConsumerStatsManager.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable

from pocketmq.remoting.bodies.running_info import ConsumeStatus

#: Seconds between two samples; rates are over the last SAMPLES of them.
SAMPLE_PERIOD = 10.0
SAMPLES = 6


class TopicStats:
    """Since the start: `ok` and `failed` messages, and the total `seconds` of handling them."""

    __slots__ = ("failed", "ok", "seconds")

    def __init__(self, ok: int = 0, failed: int = 0, seconds: float = 0.0) -> None:
        self.ok = ok
        self.failed = failed
        self.seconds = seconds


class ConsumeStats:
    """The counters of one consumer; `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.topics: dict[str, TopicStats] = defaultdict(TopicStats)
        self._clock = clock
        self._samples: deque[tuple[float, dict[str, TopicStats]]] = deque(maxlen=SAMPLES)

    async def sample(self) -> None:
        """Record the current counters; call it every SAMPLE_PERIOD."""
        counters = {t: TopicStats(s.ok, s.failed, s.seconds) for t, s in self.topics.items()}
        self._samples.append((self._clock(), counters))

    def status(self, topic: str) -> ConsumeStatus:
        """Return one topic's rates (per second), mean handling time (ms), and failures since the
        start."""
        now = self.topics[topic]
        since, before = self._samples[0] if self._samples else (self._clock(), {})
        elapsed = max(self._clock() - since, 1e-3)
        then = before.get(topic) or TopicStats()
        count = now.ok - then.ok + now.failed - then.failed
        return ConsumeStatus(
            consume_ok_tps=(now.ok - then.ok) / elapsed if self._samples else 0.0,
            consume_failed_tps=(now.failed - then.failed) / elapsed if self._samples else 0.0,
            consume_rt=(now.seconds - then.seconds) * 1000 / count if count else 0.0,
            consume_failed_msgs=now.failed,
        )
