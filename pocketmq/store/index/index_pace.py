"""When the index follows the commit log, and who builds it: the thread, or a process of its own.

Tests pass smaller figures.
"""

from __future__ import annotations

from typing import Final

import msgspec


class IndexPace(msgspec.Struct, frozen=True):
    """Sizes in bytes of the commit log, times in seconds.

    Attributes:
        busy_bytes: when this much was added in a tenth of a second (some ten thousand messages a
            second), the thread waits. If it followed at once, it would cost a fifth of the rate of
            sends: it and the event loop wait for each other's lock.
        most_behind: with a backlog larger than this, the thread no longer waits.
        process_behind: a backlog that is worth a process, which takes 0.3 s to start.
        stretch: what the process is given at a time: a second of its time.
        process_idle: the process ends when it has not had much to do for this long.
        process_closing: how long a store that is closed waits for the process.
        moment: how long a query waits for the index to reach the end of the log.
        search: after this long, a query is answered with what it found. Java clients wait for 15 s.
    """

    busy_bytes: int = 1024 * 1024
    most_behind: int = 512 * 1024 * 1024
    process_behind: int = 128 * 1024 * 1024
    stretch: int = 64 * 1024 * 1024
    process_idle: float = 10.0
    process_closing: float = 10.0
    moment: float = 0.25
    search: float = 12.0


USUAL_PACE: Final = IndexPace()


class Inflow:
    """Tells whether so much arrives that the index should wait; `readable` is the current end of
    the log."""

    def __init__(self, pace: IndexPace, readable: int) -> None:
        self._pace = pace
        self._seen = readable

    def is_much(self, readable: int, behind: int, *, with_process: bool) -> bool:
        """Return whether it is busy, by what was added since the last call; False once the index
        is so far `behind` that it must go on."""
        added, self._seen = readable - self._seen, readable
        most = self._pace.stretch if with_process else self._pace.most_behind
        return added >= self._pace.busy_bytes and behind < most
