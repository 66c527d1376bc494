"""Memory for a process, the page cache of its files included: a cgroup of Linux, v2 or v1."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Self

__all__ = ["MemoryLimit", "evict"]

_ROOT = Path("/sys/fs/cgroup")


class MemoryLimit:
    """A cgroup with `limit` bytes, made and removed by a `with` block; `name` tells several apart.

    `set` says whether there is one: it takes root, and a memory controller under `root`. What a
    process had before it was added counts elsewhere.
    """

    def __init__(self, limit: int, name: str, root: Path = _ROOT) -> None:
        self._limit = limit
        self._name = f"pocketmq-bench-{os.getpid()}-{name}"
        self._root = root
        self._group: Path | None = None

    @property
    def set(self) -> bool:
        return self._group is not None

    def __enter__(self) -> Self:
        for parent, file in (
            (self._root, "memory.max"),
            (self._root / "memory", "memory.limit_in_bytes"),
        ):
            group = parent / self._name
            try:
                group.mkdir()
            except OSError:
                continue
            try:
                # Where the controller is not on, there is no such file.
                with (group / file).open("r+") as limit:
                    limit.write(str(self._limit))
            except OSError:
                group.rmdir()
                continue
            self._group = group
            break
        return self

    def add(self, pid: int) -> None:
        """Move a process with all its threads into the group. Raises OSError."""
        assert self._group is not None
        (self._group / "cgroup.procs").write_text(str(pid))

    def __exit__(self, *error: object) -> None:
        if self._group is None:
            return
        # Processes that still run go back to the root; else the group could not be removed.
        with suppress(OSError):
            for pid in (self._group / "cgroup.procs").read_text().split():
                (self._group.parent / "cgroup.procs").write_text(pid)
        with suppress(OSError):
            self._group.rmdir()


def evict(directory: Path) -> None:
    """Drop what the page cache has of the files in `directory`, which nobody may have mapped."""
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
