"""Plans a scan: from the request to partitions of queue slices.

A plan is made once, against one snapshot; it has the position of every record, or which entries to
read, so that later appends by a broker do not belong to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pocketmq.message.limits import is_internal_topic
from pocketmq.store.scan.errors import RecordsLost, raise_loss
from pocketmq.store.scan.planning.offsets import (
    FROM_EARLIEST,
    UNTIL_LATEST,
    OffsetBounds,
    resolve,
    stored_within,
)
from pocketmq.store.scan.planning.partitioning import PartitionLimits, Wanted, partitions
from pocketmq.store.scan.queues.queue_slice import QueueSlice
from pocketmq.store.scan.queues.selection import ALL_RECORDS, Selection
from pocketmq.store.scan.scanned_store import ScannedStore


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What to read from a store.

    Attributes:
        wants: whether a queue (topic, queue id) is to be read.
        starting, ending: between which offsets.
        selection: conditions on the records.
    """

    wants: Callable[[str, int], bool] = lambda topic, _: not is_internal_topic(topic)
    starting: OffsetBounds = FROM_EARLIEST
    ending: OffsetBounds = UNTIL_LATEST
    selection: Selection = ALL_RECORDS


def plan(
    store: ScannedStore,
    request: ScanRequest,
    limits: PartitionLimits,
    lose: Callable[[int, RecordsLost], None] = raise_loss,
) -> list[list[QueueSlice]]:
    """Partitions of what `request` asks of `store`; none when it has nothing of it.

    `lose` is called as in `pocketmq.store.scan.planning.offsets.resolve`.
    """
    wanted = []
    for (topic, queue_id), queue in sorted(store.queues.items()):
        if request.wants(topic, queue_id):
            found = resolve(queue, request.starting, request.ending, lose)
            found &= request.selection.queue_offset
            found &= stored_within(store, queue, request.selection.store_timestamp)
            part = queue.slice().cut(found.start or 0, found.stop or 0)
            wanted.append(Wanted(queue, part))
    return partitions(wanted, limits)
