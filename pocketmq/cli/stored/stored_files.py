"""Shared by the commands that read the files of a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pocketmq.remoting.serving.service import ExitCode
from pocketmq.store.errors import ForeignStore, StoreCorrupt, StoreError

if TYPE_CHECKING:
    from pocketmq.store.scan.planning.snapshot import StoreSnapshot
    from pocketmq.store.scan.queues.queue_listing import QueueChoice
    from pocketmq.store.scan.scanned_store import ScannedStore


def snapshot_of(root: Path, choice: QueueChoice | None = None) -> StoreSnapshot:
    """Return a snapshot of the store with the chosen queues, or all. Raises StoreError."""
    # Not at the top: it needs numpy, which a command's --help does not.
    from pocketmq.store.scan.planning.tail import take_snapshot
    from pocketmq.store.scan.queues.queue_listing import EVERY_QUEUE

    return take_snapshot(root, choice or EVERY_QUEUE)


def stores_at(place: Path | str, choice: QueueChoice) -> Sequence[ScannedStore]:
    """Return a snapshot of the store in a directory, or of the archives under a URL or in a
    directory, with the chosen queues. Raises StoreError."""
    from pocketmq.archive.archives import brokers_under, is_archive
    from pocketmq.archive.location import Location

    if isinstance(place, Path) and not is_archive(place):
        return [snapshot_of(place, choice)]
    return [broker.look(lambda _: choice) for broker in brokers_under(Location(str(place)))]


def exit_code_of(error: StoreError) -> ExitCode:
    """Return the exit code of a command that failed because a store or an archive is damaged, is
    missing, or has lost the requested messages."""
    from pocketmq.archive.errors import NoArchive, ObjectDamaged, Unreachable, WrongLocation
    from pocketmq.store.scan.errors import NoStore, NoTopic
    from pocketmq.store.scan.queues.segments import UnreadableFile

    if isinstance(error, StoreCorrupt | ObjectDamaged):
        return ExitCode.STORE_CORRUPT
    unavailable = NoStore | NoTopic | ForeignStore | UnreadableFile | NoArchive | Unreachable
    if isinstance(error, unavailable):
        return ExitCode.UNAVAILABLE
    if isinstance(error, WrongLocation):
        return ExitCode.USAGE
    return ExitCode.FAILURE
