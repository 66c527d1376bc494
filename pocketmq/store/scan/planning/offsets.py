"""Turns requested offsets (offsets, times, -2 and -1) into a range of one queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pocketmq.store.scan.errors import RecordsLost
from pocketmq.store.scan.queues.selection import Range
from pocketmq.store.scan.scanned_store import QueueBounds, ScannedQueue, ScannedStore

EARLIEST: Final = -2
LATEST: Final = -1

# A broker stamps records in the order of the log, but its clock may be set back a little. Searches
# by time begin this much earlier and end this much later; the records' own times decide.
CLOCK_STEP_MS: Final = 60_000


_FEWEST_MS: Final = 100_000_000_000
_MOST_MS: Final = 10_000_000_000_000


def wrong_ms(value: int) -> str:
    """Return what is wrong with a number that should be ms since 1970: one that means 1970 to 1973,
    or after 2286, is in another unit, or a date. The empty text if nothing is; 0 means the
    beginning."""
    if value <= 0 or _FEWEST_MS <= value <= _MOST_MS:
        return ""
    when = "in 1970 to 1973" if value < _FEWEST_MS else "after the year 2286"
    return (
        f"as milliseconds since 1970 it is {when}; need milliseconds, such as 1764230400000, or an "
        "ISO 8601 time, such as 2026-11-27 or 2026-11-27T08:00:00Z"
    )


@dataclass(frozen=True, slots=True)
class OffsetBounds:
    """Where to begin or to end in each queue, as Spark's Kafka source has it.

    Attributes:
        otherwise: `EARLIEST` or `LATEST`, in queues that `by_queue` does not name.
        by_queue: topic → queue id → a queue offset, `EARLIEST` or `LATEST`.
    """

    otherwise: int
    by_queue: dict[str, dict[int, int]]

    def of(self, queue: QueueBounds) -> int:
        """Return the offset in one queue, not checked."""
        asked = self.by_queue.get(queue.topic, {}).get(queue.queue_id, self.otherwise)
        if asked == EARLIEST:
            return queue.min_offset
        return queue.max_offset if asked == LATEST else asked


FROM_EARLIEST: Final = OffsetBounds(EARLIEST, {})
UNTIL_LATEST: Final = OffsetBounds(LATEST, {})


def resolve(
    queue: QueueBounds,
    starting: OffsetBounds,
    ending: OffsetBounds,
    lose: Callable[[int, RecordsLost], None],
) -> Range:
    """Return the queue offsets from `starting` up to (not including) `ending` that the queue has.

    `lose` is called with a number and an error for records that were asked for by offset but are
    not there; it may raise.
    """
    start, stop = starting.of(queue), ending.of(queue)
    low, high = queue.min_offset, queue.max_offset
    if start < min(low, stop):
        gone = min(low, stop)
        lose(gone - start, _lost(queue, start, gone - 1, f"the queue begins at {low}"))
    # A start after the end shows that a queue lost its end, even if nothing is asked for.
    beyond = start if start > high else stop
    if beyond > high:
        lose(beyond - high, _lost(queue, high, beyond - 1, f"the queue ends at {high}"))
    start = min(max(start, low), high)
    return Range(start, max(start, min(stop, high)))


def stored_within(store: ScannedStore, queue: ScannedQueue, times: Range) -> Range:
    """Return a range of queue offsets outside of which no record was stored within `times` (ms)."""
    start = stop = None
    if times.start is not None:
        start = store.first_stored_from(queue, times.start - CLOCK_STEP_MS)
    if times.stop is not None:
        stop = store.first_stored_from(queue, times.stop + CLOCK_STEP_MS)
    return Range(start, stop)


def _lost(queue: QueueBounds, first: int, last: int, reason: str) -> RecordsLost:
    return RecordsLost(queue.topic, queue.queue_id, first, last, reason)
