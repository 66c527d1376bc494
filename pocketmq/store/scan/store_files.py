"""Where the bytes of a store come from, for readers of planned slices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from pocketmq.store.encoding.queue_entry import CONSUME_QUEUE_UNIT as UNIT
from pocketmq.store.scan.errors import NotVisible
from pocketmq.store.scan.queues.queue_slice import QueueSlice, queue_directory
from pocketmq.store.scan.queues.segments import Segments, mapped


class StoreFiles(Protocol):
    """A store, or an archive of one. Can be pickled; its text is the directory or the URL."""

    @property
    def broker_name(self) -> str:
        """The name of the broker."""

    @property
    def has_log_per_queue(self) -> bool:
        """Whether each queue has a commit log of its own."""

    def log(self, topic: str, queue_id: int) -> Segments:
        """Return the parts of the commit log that a queue is in, as they are now."""

    def queue(self, topic: str, queue_id: int) -> Segments:
        """Return the parts of a consume queue, as they are now."""

    def check_visible(self) -> None:
        """Raise NotVisible if this machine does not have it."""

    def recovery(self) -> str | None:
        """Return the progress of a recovery that may put back entries which a plan has seen, as the
        name of a `store_lock.Recovery`; None if none is running."""

    def needed_for(self, slices: Iterable[QueueSlice]) -> StoreFiles:
        """Return the part of it that the readers of these slices need."""


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The store in the directory `root`, and the name of its broker.

    Attributes:
        crashed: whether a killed broker had left it so when the read was planned.
    """

    root: Path
    broker_name: str
    crashed: bool = False
    has_log_per_queue: ClassVar[bool] = False

    def log(self, topic: str, queue_id: int) -> Segments:
        """Return the files of the commit log, as they are now."""
        return mapped(self.root / "commitlog")

    def queue(self, topic: str, queue_id: int) -> Segments:
        """Return the files of a consume queue, as they are now."""
        return mapped(queue_directory(self.root, topic, queue_id))

    def check_visible(self) -> None:
        """Raise NotVisible if this machine does not have it."""
        if not (self.root / "commitlog").is_dir():
            raise NotVisible(self.root)

    def recovery(self) -> str | None:
        """Return how far a recovery is that may put entries back which a plan has seen."""
        # Imported on use: executors do without, unless something is missing.
        from pocketmq.store.store_lock import Recovery, recovery_of

        found = recovery_of(self.root)
        is_as_planned = self.crashed and found is Recovery.AHEAD
        return None if found is Recovery.NONE or is_as_planned else found.name

    def needed_for(self, slices: Iterable[QueueSlice]) -> LocalFiles:
        """Return the same: it is small."""
        return self

    def __str__(self) -> str:
        return str(self.root)


def entry_place(files: StoreFiles, part: QueueSlice, offset: int) -> tuple[Path | str, int]:
    """Return the part of the consume queue, and the byte in it, of the entry of a queue offset."""
    segments = files.queue(part.topic, part.queue_id)
    segment = segments.find(offset * UNIT)
    if segment is None:
        return segments.where, offset * UNIT
    return segment.path, offset * UNIT - segment.base
