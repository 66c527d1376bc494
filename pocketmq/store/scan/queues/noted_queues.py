"""The records of very many queues between two places of the log, found when they are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from pocketmq.store.scan.queues.queue_slice import NO_TAIL, QueueSlice
from pocketmq.store.scan.queues.queue_snapshot import QueueSnapshot
from pocketmq.store.scan.queues.selection import Range
from pocketmq.store.scan.store_files import StoreFiles

_WORTH_HALVING: Final = 16_384
"""With more entries than that, it is halved where a partition begins, instead of comparing all."""

Spans: TypeAlias = dict[str, dict[int, tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class NotedQueues:
    """The records of many queues that lie between two places of the log. Can be pickled.

    Attributes:
        spans: topic → queue id → queue offsets of the first entry and after the last.
        physical: physical offsets between which they lie.
    """

    spans: Spans
    physical: Range

    def slices(self, files: StoreFiles) -> Iterator[QueueSlice]:
        """Return slices of the queues that have all of the records. They may have others, too."""
        for topic, queues in self.spans.items():
            for queue_id, (begin, end) in queues.items():
                part = QueueSlice(topic, queue_id, begin, end, end, NO_TAIL)
                if len(part) > _WORTH_HALVING:
                    queue = QueueSnapshot(topic, queue_id, files.queue(topic, queue_id))
                    queue.known_end = end
                    first = queue.first_from(self.physical.start or 0)
                    last = (
                        end if self.physical.stop is None else queue.first_from(self.physical.stop)
                    )
                    part = part.cut(first, last)
                yield part
