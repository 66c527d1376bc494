"""Files of a store that do not wait for the disk, or are not on one."""

from __future__ import annotations

import os
from pathlib import Path

from pocketmq.store.files import Files


class FastFiles(Files):
    """For tests in which processes end, not machines."""

    def fdatasync(self, fd: int) -> None:
        pass

    def sync_directory(self, directory: Path) -> None:
        pass


def memory_directory() -> Path | None:
    """Where files are kept in memory; None where there is no such place."""
    directory = Path("/dev/shm")
    return directory if os.access(directory, os.W_OK) else None
