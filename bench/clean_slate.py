"""What every run begins with, so that none pays for what was before it."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path

__all__ = ["clean_slate"]

MEMORY = 2 << 30


def clean_slate(scale: float, directory: Path, meminfo: Path = Path("/proc/meminfo")) -> None:
    """Write back what the run before left dirty, and have free memory at hand for the next one.

    A virtual machine often gets a page of its memory from the host only when that is touched for
    the first time, or again after a while without use. A run that fills fresh pages of the file
    cache then pays for the host (up to 14 µs a page, seen in a microVM: three times what the broker
    needs for the messages in it), one that gets pages just freed does not. So a file of two
    gibibytes, times `scale`, or of half of what `meminfo` says is available, is touched page by
    page in `directory`, where the stores lie, and removed. It must be a mapped file: its pages are
    handed out again to brokers that map their files as well as to those that write them. Anonymous
    memory served only the latter (measured: the official broker took batches at 120 to 180
    thousand/s after that, at 260 to 400 after this; ours at 350 to 480 after both).
    """
    os.sync()
    size = min(int(MEMORY * scale), _available(meminfo) // 2) // mmap.PAGESIZE * mmap.PAGESIZE
    if not size:
        return
    with tempfile.TemporaryFile(dir=directory) as file:
        file.truncate(size)
        with mmap.mmap(file.fileno(), size) as memory:
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
