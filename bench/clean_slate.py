"""What every run begins with, so that none pays for what was before it."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

__all__ = ["clean_slate"]

MEMORY = 2 << 30


def clean_slate(scale: float, meminfo: Path = Path("/proc/meminfo")) -> None:
    """Write back what the run before left dirty, and have free memory at hand for the next one.

    A virtual machine often gets a page of its memory from the host only when that is touched for
    the first time, or again after a while without use. A run that fills fresh pages of the file
    cache then pays for the host (up to 14 µs a page, seen in a microVM: three times what the broker
    needs for the messages in it), one that gets pages just freed does not. So two gibibytes, times
    `scale`, are touched and freed before each, or half of what `meminfo` says is available. That is
    four times what a run writes: of less, not all is handed out again first (measured).
    """
    os.sync()
    size = min(int(MEMORY * scale), _available(meminfo) // 2) // mmap.PAGESIZE * mmap.PAGESIZE
    if not size:
        return
    with mmap.mmap(-1, size) as memory:
        for at in range(0, size, mmap.PAGESIZE):
            memory[at] = 1


def _available(meminfo: Path) -> int:
    """Bytes; 0 where the system does not tell."""
    try:
        for line in meminfo.read_text().splitlines():
            name, _, rest = line.partition(":")
            if name == "MemAvailable":
                return int(rest.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return 0
