"""RocketMQ's tiered storage, for planning: the directory to which an official broker with the
plug-in `TieredMessageStore` and the provider `PosixFileSegment` copies its messages.

    HASH_CLUSTER/BROKER/TOPIC/QUEUEID/COMMIT_LOG/HASHOFFSET
    HASH_CLUSTER/BROKER/TOPIC/QUEUEID/CONSUME_QUEUE/HASHOFFSET

Each queue has its own commit log, which begins at 0. Records are those of the broker, except that
the physical offset is the position in this log. Files grow with each commit, first the log and then
the queue, each synced. A full file of the log ends with 16 bytes that no entry refers to. (Source:
the module tieredstore of 5.3.3.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from pocketmq.archive.tiered_files import LOG, QUEUE, TieredFiles
from pocketmq.store.scan.planning.snapshot import first_stored_from
from pocketmq.store.scan.queues.queue_listing import EVERY_QUEUE, QueueChoice, QueueListing
from pocketmq.store.scan.queues.queue_snapshot import QueueSnapshot
from pocketmq.store.scan.queues.segments import (
    Mappings,
    Segments,
    Unreadable,
    mapped,
    reading,
    undisturbed,
)
from pocketmq.store.scan.scanned_store import ScannedQueue
from pocketmq.store.scan.stream_offsets import Mark


class TieredStore:
    """The tiered storage of one broker as it was at one moment.

    Attributes:
        queues: the requested ones, by topic and queue id.
        listing: all queues.
        configured: empty; queues without messages do not exist here.
    """

    def __init__(self, files: TieredFiles, choice: QueueChoice) -> None:
        self.files = files
        self.configured: dict[str, int] = {}
        self.listing = QueueListing(files.root)
        self._mappings = Mappings()
        self.queues = {name: self._read_queue(*name) for name in self.listing.chosen(choice)}

    @property
    def broker_name(self) -> str:
        """The name of the broker."""
        return self.files.broker_name

    def first_stored_from(self, queue: ScannedQueue, timestamp: int) -> int:
        """Return the queue offset of the first record stored at `timestamp` (ms) or later."""
        return first_stored_from(self._log(queue.topic, queue.queue_id), queue, timestamp)

    def log_begin(self, queue: ScannedQueue) -> None:
        """Return None, as `mark` does."""

    def mark(self, queue: ScannedQueue, offset: int) -> None:
        """Return None: physical offsets here are not those of the broker."""

    def replaced(self, topic: str, queue_id: int, offset: int, mark: Mark) -> None:
        """Return None, as `mark` does."""

    def _read_queue(self, topic: str, queue_id: int) -> QueueSnapshot:
        # The queue first: the records that it refers to are then in the log.
        directory = self.files.root / topic / str(queue_id) / QUEUE
        queue = QueueSnapshot(topic, queue_id, mapped(directory, self._mappings))
        queue.find_end(crashed=False)
        queue.trim(self._log(topic, queue_id))
        return queue

    def _log(self, topic: str, queue_id: int) -> Segments:
        return mapped(self.files.root / topic / str(queue_id) / LOG, self._mappings)


class TieredBroker:
    """The tiered storage of one broker. Each look reads it again.

    Attributes:
        shown: the directory.
    """

    def __init__(self, directory: Path) -> None:
        self._files = TieredFiles(directory)
        self.shown = str(directory)

    def look(
        self,
        choose: Callable[[str], QueueChoice] = lambda _: EVERY_QUEUE,
        lose: Callable[[Unreadable], None] | None = None,
    ) -> TieredStore:
        """Return its current contents, without skipping anything.

        Args:
            choose: returns the wanted queues, by broker name.
        """
        choice = choose(self._files.broker_name)
        return undisturbed(lambda: TieredStore(self._files, choice))


def is_tiered(directory: Path) -> bool:
    """Return whether a directory is a tiered storage, or its part for a cluster or a broker."""
    return next(_logs(directory), None) is not None


def tiered_brokers(directory: Path) -> list[Path]:
    """Return the directories of brokers in a tiered storage, or in a part of one.

    Raises UnreadableFile: that of another broker may not be read, which `glob` leaves out.
    """
    found = sorted({log.parents[2] for log in _logs(directory)})
    for cluster in {broker.parent for broker in found if broker != directory}:
        for broker in cluster.iterdir():
            if broker.is_dir():
                with reading(broker), os.scandir(broker):
                    pass
    return found


def _logs(directory: Path) -> Iterator[Path]:
    """Return the directories of commit logs."""
    for above in ("", "*/", "*_*/*/"):
        yield from (path for path in directory.glob(f"{above}*/*/{LOG}") if path.is_dir())
