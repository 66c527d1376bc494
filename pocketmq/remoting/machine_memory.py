"""How much memory this process may use: that of the machine, or of its container."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

#: Bytes if the platform does not tell: small enough to be safe.
_UNKNOWN: Final = 1 << 30
#: Directories of the kernel's control groups, and the file with the limit of each.
_UNIFIED: Final = ("sys/fs/cgroup", "memory.max")
_OLD: Final = ("sys/fs/cgroup/memory", "memory.limit_in_bytes")


def at_most(most: int, part: int = 4) -> int:
    """Return `most` bytes, or the memory divided by this number of parts if that is less."""
    return min(most, memory() // part)


@lru_cache(maxsize=1)
def memory() -> int:
    """Return how many bytes this process may use."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        physical = _UNKNOWN
    return min(physical, container_memory() or physical)


def container_memory(root: Path = Path("/")) -> int | None:
    """Return the smallest limit in bytes of the control groups that this process is in; None
    without one. `root` is that of the file system."""
    return min(_limits(root), default=None)


def _limits(root: Path) -> Iterator[int]:
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        mount, name = _OLD if controllers else _UNIFIED
        # Within a container the group may have a name that only the host knows: then the limit of
        # the topmost visible group counts.
        groups = Path(group.strip("/"))
        for part in (groups, *groups.parents):
            with contextlib.suppress(OSError, ValueError):  # no such group, or no limit: "max"
                yield int((root / mount / part / name).read_text())
