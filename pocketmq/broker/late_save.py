"""Saving a table a moment after it changed, once, however often it changes meanwhile.

For what comes into being by itself, such as the groups that heartbeats bring: a file written for
each of a thousand would keep everybody waiting, and what a crash takes comes back with the next
heartbeat. What an admin or a send is answered for is written before the answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

DELAY_SECONDS: Final = 0.5


class LateSave:
    """Calls `save` once within `seconds` after the first `ask`. `save` blocks and may raise."""

    def __init__(self, save: Callable[[], None], seconds: float = DELAY_SECONDS) -> None:
        self._save = save
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def ask(self) -> None:
        """Something changed."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._seconds, self.finish)

    def finish(self) -> None:
        """Save now what was asked for."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        try:
            self._save()
        except OSError as error:
            # The next change writes the whole table again.
            log.error("not on the disk: %s", error)
