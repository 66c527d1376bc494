"""Waits that were long enough to be worth a note, until somebody asks for them."""

from __future__ import annotations

from collections import deque
from typing import Final

_LONG_NS: Final = 1_000_000


class SlowWaits:
    """The waits of at least a millisecond since they were last taken, at most `most` of them: the
    newest."""

    def __init__(self, most: int) -> None:
        self._noted = deque[tuple[int, int]](maxlen=most)

    def note(self, nanoseconds: int, what: int) -> None:
        """Somebody waited so long; `what` says for how much, in whatever the owner counts."""
        if nanoseconds >= _LONG_NS:
            self._noted.append((nanoseconds // _LONG_NS, what))

    def take(self) -> list[tuple[int, int]]:
        """Milliseconds, and for how much, of each wait since the last time."""
        taken = list(self._noted)
        self._noted.clear()
        return taken
