"""What the commands that read the files of a store share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pocketmq.remoting.service import ExitCode
from pocketmq.store.errors import StoreCorrupt, StoreError

if TYPE_CHECKING:
    from pocketmq.store.scan.snapshot import StoreSnapshot


class UnreadableStore(StoreError):
    """A file of the store cannot be read."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot read {error.filename}: {error.strerror}")


def snapshot_of(root: Path) -> StoreSnapshot:
    """The store as it is now. Raises StoreError."""
    # Not at the top: it needs numpy, which the help of a command does not.
    from pocketmq.store.scan.tail import take_snapshot

    try:
        return take_snapshot(root)
    except OSError as error:
        raise UnreadableStore(error) from None


def exit_code_of(error: StoreError) -> ExitCode:
    """The exit code of a command that a store ended: it is damaged, not there, or has lost what
    was asked for."""
    from pocketmq.store.scan.errors import NoStore, NoTopic

    if isinstance(error, StoreCorrupt):
        return ExitCode.STORE_CORRUPT
    if isinstance(error, NoStore | NoTopic | UnreadableStore):
        return ExitCode.UNAVAILABLE
    return ExitCode.FAILURE
