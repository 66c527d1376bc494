"""Reads the files of a store into Arrow, whether a broker has it open, closed it, or was killed.

There is no Spark in here: `pocketmq.spark` makes a Spark data source of it. The modules, from
the disk up:

- `segments` maps files, `gather` collects byte ranges out of them, `heads` and `property_table`
  take records apart, `columns` makes Arrow arrays of them, `reader` does all that in blocks;
- `snapshot` reads the consume queues, `tail` finds records that only the commit log has,
  `topic_table` reads the broker's list of topics;
- `offsets`, `selection`, `partitioning` and `plan` choose what to read and split it;
- `stream_offsets` is where a stream or an export stands, by topic, broker and queue;
- `query` and `stored_messages` offer all that to Python programs (`pocketmq.open_store`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pocketmq.store.scan.columns import ALL_COLUMNS, COLUMNS
from pocketmq.store.scan.partitioning import PartitionLimits
from pocketmq.store.scan.plan import ScanRequest, plan
from pocketmq.store.scan.queue_listing import QueueChoice
from pocketmq.store.scan.reader import SliceReader
from pocketmq.store.scan.segments import undisturbed
from pocketmq.store.scan.store_files import LocalFiles
from pocketmq.store.scan.tail import take_snapshot

__all__ = ["ALL_COLUMNS", "COLUMNS", "ScanRequest", "scan"]


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
    reader = SliceReader(LocalFiles(root), columns, selection=request.selection)
    for partition in partitions:
        for part in partition:
            yield from reader.read(part)
