"""Finds the archives in one place: those of `pocketmq sync`, or RocketMQ's tiered storage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from pocketmq.archive.archived_store import ArchivedBroker
from pocketmq.archive.errors import NoArchive
from pocketmq.archive.location import Location
from pocketmq.archive.manifest import NAME
from pocketmq.archive.tiered_store import TieredBroker, is_tiered, tiered_brokers
from pocketmq.store.scan.query import TakeStores
from pocketmq.store.scan.queues.queue_listing import QueueChoice
from pocketmq.store.scan.queues.segments import Unreadable, reading
from pocketmq.store.scan.scanned_store import ScannedStore


class BrokerArchive(Protocol):
    """The archive of one broker, or its part of a tiered storage.

    Attributes:
        shown: its location, without secrets.
    """

    shown: str

    def look(
        self,
        choose: Callable[[str], QueueChoice] = ...,
        lose: Callable[[Unreadable], None] | None = None,
    ) -> ScannedStore:
        """Return it as it is now.

        Args:
            choose: returns the wanted queues, by broker name.
            lose: called with the error of each part that cannot be read and is skipped. If None,
                the error is raised.
        """


def is_archive(directory: Path) -> bool:
    """Return whether a local directory has archives and not a store. Raises UnreadableFile."""
    with reading(directory):
        if (directory / "commitlog").is_dir():
            return False
    return (directory / NAME).is_file() or any(directory.glob(f"*/{NAME}")) or is_tiered(directory)


def brokers_under(location: Location) -> Sequence[BrokerArchive]:
    """Return the archives of brokers under a URL, or the one at the URL itself.

    Raises:
        NoArchive: there is none.
        ArchiveError: it cannot be read.
    """
    objects = location.open()
    if objects.size(NAME) is not None:
        return [ArchivedBroker(location)]
    folders = [name for name in objects.folders() if objects.size(f"{name}/{NAME}")]
    if folders:
        return [ArchivedBroker(location, folder) for folder in folders]
    tiered = tiered_brokers(location.directory) if location.directory is not None else []
    if not tiered:
        raise NoArchive(location.shown)
    return [TieredBroker(directory) for directory in tiered]


def archives_at(location: Location) -> TakeStores:
    """Return a function that takes snapshots of the archives under a URL.

    Raises:
        NoArchive: there is none.
        ArchiveError: it cannot be read.
    """
    brokers = brokers_under(location)
    return lambda choice, lose: [broker.look(lambda _: choice, lose) for broker in brokers]
