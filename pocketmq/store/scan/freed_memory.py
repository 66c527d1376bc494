"""Memory that a block of records has freed, at hand for the next one."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

_LARGEST: Final = 31 << 20


@cache
def keep_freed_memory() -> None:
    """Have glibc keep memory that is freed, up to 62 MiB, instead of giving it back to the system.

    Each block needs arrays of some hundred KiB for a moment. Otherwise the kernel would clear their
    pages for every block, which is a fifth of the CPU time of a scan of all columns. glibc's
    threshold is the largest array that was freed, up to 32 MiB (M_MMAP_THRESHOLD in mallopt(3)).
    The pages of this array are never touched, and other allocators ignore it.
    """
    np.empty(_LARGEST, np.uint8)
