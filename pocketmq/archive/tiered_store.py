"""RocketMQ's tiered storage as a plan sees it: the directory into which an official broker with the
plug-in `TieredMessageStore` and the provider `PosixFileSegment` copies its messages.

    HASH_CLUSTER/BROKER/TOPIC/QUEUEID/COMMIT_LOG/HASHOFFSET
    HASH_CLUSTER/BROKER/TOPIC/QUEUEID/CONSUME_QUEUE/HASHOFFSET

Each queue has a commit log of its own, which begins at 0. Records are those of the broker, but for
the physical offset, which is the place in this log. Files grow by what is committed, first the log
and then the queue, each synced. A full file of the log ends with 16 bytes that no entry points at.
(Source: the module tieredstore of 5.3.3.)
"""

from __future__ import annotations

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
    undisturbed,
)
from pocketmq.store.scan.scanned_store import ScannedQueue
from pocketmq.store.scan.stream_offsets import Mark


class TieredStore:
    """The tiered storage of one broker as it was at one moment.

    Attributes:
        queues: those that were asked for, by topic and queue id.
        listing: all queues.
        configured: nothing; a queue without messages is not there.
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

    def mark(self, queue: ScannedQueue, offset: int) -> None:
        """Return None: physical offsets here are not those of the broker."""

    def replaced(self, topic: str, queue_id: int, mark: Mark) -> None:
        """Return None, as `mark` does."""

    def _read_queue(self, topic: str, queue_id: int) -> QueueSnapshot:
        # The queue first: what it points at is in the log by then.
        directory = self.files.root / topic / str(queue_id) / QUEUE
        queue = QueueSnapshot(topic, queue_id, mapped(directory, self._mappings))
        queue.find_end(crashed=False)
        queue.trim(self._log(topic, queue_id))
        return queue

    def _log(self, topic: str, queue_id: int) -> Segments:
        return mapped(self.files.root / topic / str(queue_id) / LOG, self._mappings)


class TieredBroker:
    """The tiered storage of one broker. Each look reads it anew.

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
        """Return it as it is now. Nothing of it is left out.

        Args:
            choose: returns the queues that are wanted, by the name of the broker.
        """
        choice = choose(self._files.broker_name)
        return undisturbed(lambda: TieredStore(self._files, choice))


def is_tiered(directory: Path) -> bool:
    """Return whether a directory is a tiered storage, or the part of a cluster or a broker."""
    return next(_logs(directory), None) is not None


def tiered_brokers(directory: Path) -> list[Path]:
    """Return the directories of brokers in a tiered storage, or in a part of one."""
    return sorted({log.parents[2] for log in _logs(directory)})


def _logs(directory: Path) -> Iterator[Path]:
    """Return the directories of commit logs."""
    for above in ("", "*/", "*_*/*/"):
        yield from (path for path in directory.glob(f"{above}*/*/{LOG}") if path.is_dir())
