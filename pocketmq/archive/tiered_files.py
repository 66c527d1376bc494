"""RocketMQ's tiered storage as a scan's source of bytes; `tiered_store` describes its layout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from pocketmq.store.scan.errors import NotVisible
from pocketmq.store.scan.queues.segments import Segments, mapped

LOG: Final = "COMMIT_LOG"
QUEUE: Final = "CONSUME_QUEUE"
"""The directories of a queue."""


@dataclass(frozen=True, slots=True)
class TieredFiles:
    """The files of a broker in the directory `root`, which has the broker's name."""

    root: Path
    has_log_per_queue: ClassVar[bool] = True

    @property
    def broker_name(self) -> str:
        """The name of the broker."""
        return self.root.name

    def log(self, topic: str, queue_id: int) -> Segments:
        """Return the files of the commit log of a queue, as they are now."""
        return mapped(self.root / topic / str(queue_id) / LOG)

    def queue(self, topic: str, queue_id: int) -> Segments:
        """Return the files of a consume queue, as they are now."""
        return mapped(self.root / topic / str(queue_id) / QUEUE)

    def check_visible(self) -> None:
        """Raise NotVisible if the directory does not exist on this machine."""
        if not self.root.is_dir():
            raise NotVisible(self.root)

    def recovery(self) -> None:
        """Return None: these files do not change."""

    def needed_for(self, slices: object) -> TieredFiles:
        """Return self: it is small."""
        return self

    def __str__(self) -> str:
        return str(self.root)
