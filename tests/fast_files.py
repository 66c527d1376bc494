"""Files of a store that do not wait for the disk."""

from __future__ import annotations

from pathlib import Path

from pocketmq.store.files import Files


class FastFiles(Files):
    """For tests in which processes end, not machines."""

    def fdatasync(self, fd: int) -> None:
        pass

    def sync_directory(self, directory: Path) -> None:
        pass
