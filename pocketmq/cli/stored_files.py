"""What the commands that read the files of a store share."""

from __future__ import annotations

from pocketmq.remoting.service import ExitCode
from pocketmq.store.errors import StoreCorrupt, StoreError


class UnreadableStore(StoreError):
    """A file of the store cannot be read."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot read {error.filename}: {error.strerror}")


def exit_code_of(error: StoreError) -> ExitCode:
    """The exit code of a command that a store ended: it is damaged, not there, or has lost what
    was asked for."""
    # Not at the top: it needs numpy, which the help of a command does not.
    from pocketmq.store.scan.errors import NoStore, NoTopic

    if isinstance(error, StoreCorrupt):
        return ExitCode.STORE_CORRUPT
    if isinstance(error, NoStore | NoTopic | UnreadableStore):
        return ExitCode.UNAVAILABLE
    return ExitCode.FAILURE
