"""How long this process has been running."""

from __future__ import annotations

import os
import time

_IMPORTED = time.perf_counter()


def process_age() -> float:
    """Return the seconds since this process started, including the start of the interpreter.

    Linux reports the start time in ticks of 10 ms since boot. Elsewhere, this is the time since the
    import of this module, without the interpreter's own start.
    """
    try:
        with open("/proc/self/stat", "rb") as stat:
            # The second field, the name in brackets, may contain blanks; starttime is the 22nd.
            ticks = int(stat.read().rpartition(b")")[2].split()[19])
        began = ticks / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, AttributeError, ValueError):
        return time.perf_counter() - _IMPORTED
