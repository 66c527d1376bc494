"""The latency of puts: its distribution over a minute, and the 99th and 99.9th percentile.

A put takes microseconds unless it waits: for the write of all records of a turn of the event loop
to the page cache, for a new commit-log file, or, with SYNC_FLUSH, for the disk. Such a wait is
measured once for all messages that share it. Only waits of a millisecond or more are recorded, and
a tick collects them, so the measurement costs nothing per message. The number of messages in a long
write is estimated from its bytes. The names, the bounds of the buckets and the minute that is shown
(the last full one) are those of the reference's StoreStatsService.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, chain, repeat
from typing import Final

from pocketmq.broker.acknowledge.group_commit import GroupCommit
from pocketmq.remoting.monotonic import MonotonicClock
from pocketmq.store.config import FlushDiskType
from pocketmq.store.message_store import MessageStore

MINUTE_MS: Final = 60_000

_NAMES: Final = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]",
    "[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)  # fmt: skip
_ENDS: Final = (0, 9, 49, 99, 199, 499, 999, 1999, 2999, 3999, 4999, 9999)  # ms, inclusive
# For percentiles: 20 steps of 1 ms, 15 of 2 ms and so on to 10 s.
_STEPS: Final = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
_FINE_ENDS: Final = tuple(accumulate(chain.from_iterable(repeat(*step) for step in _STEPS)))


class _Minute:
    """The puts of one minute, by their duration in milliseconds."""

    def __init__(self) -> None:
        self._coarse = [0] * len(_NAMES)
        self._fine = [0] * (len(_FINE_ENDS) + 1)

    def add(self, milliseconds: int, count: int) -> None:
        self._coarse[bisect_left(_ENDS, milliseconds)] += count
        self._fine[bisect_left(_FINE_ENDS, milliseconds)] += count

    def text(self) -> str:
        pairs = zip(_NAMES, self._coarse, strict=True)
        return " ".join(f"{name}:{count}" for name, count in pairs)

    def percentile(self, share: float) -> float:
        """Return the milliseconds within which this share of the puts ended, interpolated."""
        wanted = int(sum(self._fine) * share)
        begin = 0
        for end, count in zip(_FINE_ENDS, self._fine, strict=False):
            if wanted <= count:
                return begin + (end - begin) * wanted / count if count else float(begin)
            wanted -= count
            begin = end
        return float(begin)


class PutTimes:
    """The put times of one broker.

    Attributes:
        longest: the longest put since the start, in milliseconds.
    """

    def __init__(self, store: MessageStore, unflushed: GroupCommit, clock: MonotonicClock) -> None:
        self.longest = 0
        self._store = store
        self._unflushed = unflushed
        self._clock = clock
        self._sync = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._minute = _Minute()
        self._shown = _Minute()
        self._next_minute = clock() + MINUTE_MS
        # The totals at the last tick.
        self._messages = 0
        self._bytes = 0

    def tick(self) -> None:
        """Collect the puts since the last tick; called about once a second."""
        if self._sync:
            self._add(self._unflushed.answered, self._unflushed.long_waits.take())
        else:
            counters = self._store.counters
            size, self._bytes = counters.bytes_put - self._bytes, counters.bytes_put
            per_message = size / max(counters.messages_put - self._messages, 1)
            writes = self._store.commit_log.long_waits.take()
            self._add(
                counters.messages_put,
                [(took, round(length / per_message) if size else 0) for took, length in writes],
            )
        if self._clock() >= self._next_minute:
            self._next_minute = self._clock() + MINUTE_MS
            self._shown, self._minute = self._minute, _Minute()

    def figures(self) -> dict[str, object]:
        """Return the figures of the last full minute for brokerStatus, in milliseconds."""
        return {
            "putMessageDistributeTime": self._shown.text(),
            "putMessageEntireTimeMax": self.longest,
            "putLatency99": f"{self._shown.percentile(0.99):.2f}",
            "putLatency999": f"{self._shown.percentile(0.999):.2f}",
        }

    def _add(self, messages: int, waits: Sequence[tuple[int, int]]) -> None:
        """Count the messages up to the total `messages`. `waits` has the waits of a millisecond or
        more: their milliseconds, and the number of messages that shared each."""
        left, self._messages = messages - self._messages, messages
        for milliseconds, count in waits:
            count = min(max(count, 1), left)
            left -= count
            self._minute.add(milliseconds, count)
            self.longest = max(self.longest, milliseconds)
        self._minute.add(0, left)
