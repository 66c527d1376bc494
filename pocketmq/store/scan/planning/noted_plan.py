"""Plans a scan of a closed store with very many queues, without opening them.

The broker has noted where each queue begins and ends (`StoreSnapshot.noted`). Opening ten thousand
queues takes a second and a half, so only a sample of their entries is read, to learn how large the
records are and where to cut the log. A partition then holds the records of any queue between two
places of the log. Their bounds in each queue are found when they are read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, zip_longest
from typing import Final, TypeAlias

from pocketmq.store.scan.planning.offsets import FROM_EARLIEST, UNTIL_LATEST
from pocketmq.store.scan.planning.partitioning import (
    SPLIT_BYTES,
    WORTH_A_CORE,
    PartitionLimits,
    Sample,
    cuts_between,
)
from pocketmq.store.scan.planning.plan import ScanRequest
from pocketmq.store.scan.planning.snapshot import NotedBounds, StoreSnapshot
from pocketmq.store.scan.queues.noted_queues import NotedQueues, Spans
from pocketmq.store.scan.queues.queue_slice import FILLER_SIZE
from pocketmq.store.scan.queues.queue_snapshot import QueueSnapshot
from pocketmq.store.scan.queues.selection import EVERYTHING, Range

_SAMPLES: Final = 64
"""To learn the size of records; about 0.1 ms each."""
_SAMPLES_PER_PARTITION: Final = 16
_MOST_SAMPLES: Final = 4096
_NotedQueue: TypeAlias = tuple[str, int, NotedBounds]


def plan_noted(
    store: StoreSnapshot, request: ScanRequest, limits: PartitionLimits
) -> list[NotedQueues] | None:
    """Return partitions of what `request` asks of `store`.

    Returns None if all queues have to be opened for that: the broker has noted nothing, or the
    request is in terms of offsets, times, or a number of records.
    """
    noted, selection = store.noted, request.selection
    if noted is None or limits.most_records or limits.least > 1:
        return None
    if (request.starting, request.ending) != (FROM_EARLIEST, UNTIL_LATEST):
        return None
    if (selection.queue_offset, selection.store_timestamp) != (EVERYTHING, EVERYTHING):
        return None
    wants = request.wants
    wanted = [
        (topic, queue_id, bounds)
        for topic, queues in noted.bounds.items()
        for queue_id, bounds in queues.items()
        if 0 <= bounds.begin < bounds.end and wants(topic, queue_id)
    ]
    sampling = _Sampling(store, wanted, noted.share)
    if not sampling.records:
        return []
    samples = sampling.take(_SAMPLES)
    size = sum(sample.size for sample in samples)
    count = limits.partitions(sampling.records, size, SPLIT_BYTES, WORTH_A_CORE)
    if count > 1:
        samples = sampling.take(min(count * _SAMPLES_PER_PARTITION, _MOST_SAMPLES))
    places = [store.log.begin, *cuts_between(samples, count)]
    return [
        NotedQueues(_spans(wanted, start), Range(start, stop))
        for start, stop in zip_longest(places, places[1:])
    ]


def _spans(wanted: Iterable[_NotedQueue], physical: int) -> Spans:
    """Return the first and the last entries of queues, without those whose last record lies before
    a physical offset."""
    spans: Spans = {}
    for topic, queue_id, bounds in wanted:
        if bounds.physical > physical:
            spans.setdefault(topic, {})[queue_id] = bounds.begin, bounds.end
    return spans


class _Sampling:
    """Looks at some of the records of many queues.

    Attributes:
        records: their number, including expired ones.
    """

    def __init__(self, store: StoreSnapshot, queues: Sequence[_NotedQueue], share: float) -> None:
        """`share`: of all records of the store, those of the queues."""
        self._store = store
        self._queues = queues
        self._share = share
        self._behind = list(accumulate(bounds.end - bounds.begin for _, _, bounds in queues))
        self.records = self._behind[-1] if self._behind else 0

    def take(self, count: int) -> list[Sample]:
        """Return the positions of records, spread evenly over those that have not expired, in the
        order of the log. Each represents the bytes of its share of all records.

        A few records may have most of the bytes, and not be in the sample. The distance to the
        previous sample shows them, as far as it is theirs.
        """
        count = min(count, self.records)
        each, share = self.records / count, self._share
        at = self._store.log.begin
        found = []
        for physical, size in sorted(
            self._entry(self.records * number // count) for number in range(count)
        ):
            if physical >= self._store.log.begin and size != FILLER_SIZE:
                found.append(
                    Sample(physical, int(max(size * each, (physical + size - at) * share)))
                )
                at = physical + size
        return found

    def _entry(self, number: int) -> tuple[int, int]:
        """Return the physical offset and size of the record with a number among all."""
        at = bisect_right(self._behind, number)
        topic, queue_id, bounds = self._queues[at]
        queue = QueueSnapshot(topic, queue_id, self._store.queue_segments(topic, queue_id))
        queue.known_end = bounds.end
        offset = queue.after_fillers(bounds.end - (self._behind[at] - number))
        return queue.entry(offset) if offset < bounds.end else (-1, FILLER_SIZE)
