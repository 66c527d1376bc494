"""Reads a store from its directory straight into Arrow, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pocketmq.store.scan.planning.partitioning import PartitionLimits
from pocketmq.store.scan.planning.plan import ScanRequest, plan
from pocketmq.store.scan.planning.tail import take_snapshot
from pocketmq.store.scan.queues.queue_listing import QueueChoice
from pocketmq.store.scan.queues.segments import undisturbed
from pocketmq.store.scan.reader import SliceReader
from pocketmq.store.scan.records.columns import COLUMNS
from pocketmq.store.scan.records.topic_table import local_files


def scan(
    root: Path | str,
    columns: Sequence[str] = tuple(COLUMNS),
    request: ScanRequest | None = None,
    *,
    planned: Callable[[int], None] = lambda _: None,
) -> Iterator[Any]:
    """Return the records of the store at `root`, queue by queue, as `pyarrow.RecordBatch`es.

    Args:
        columns: names out of `ALL_COLUMNS`.
        request: which records; all of topics that are not internal, when None.
        planned: is called before the first batch with the most records that there can be.

    Raises:
        NoStore, StoreCorrupt, RecordsLost: see `store.scan.errors` and `store.errors`.

    Example::

        table = pyarrow.Table.from_batches(scan("~/store", ["topic", "body"]))
    """
    root = Path(root).expanduser()
    request = request or ScanRequest()
    partitions = undisturbed(
        lambda: plan(take_snapshot(root, QueueChoice(request.wants)), request, PartitionLimits())
    )
    planned(sum(len(part) for partition in partitions for part in partition))
    # After planning, so that the reader finds every file that the plan speaks of.
    reader = SliceReader(local_files(root), columns, selection=request.selection)
    for partition in partitions:
        yield from reader.read_all(partition)
