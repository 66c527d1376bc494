"""The process and the event loop that a client was started in, and must be used in."""

from __future__ import annotations

import asyncio
import os

from pocketmq.client.errors import FORKED, OTHER_LOOP, NotRunning


class LoopBinding:
    """Where a client runs. A send path compares `loop` with the running one, and asks
    `why_elsewhere` only when they differ."""

    def __init__(self) -> None:
        #: The event loop; None before the start.
        self.loop: asyncio.AbstractEventLoop | None = None
        self._pid: int | None = None

    def enter(self) -> None:
        """Note that the client starts here."""
        self.loop = asyncio.get_running_loop()
        self._pid = os.getpid()

    @property
    def why_elsewhere(self) -> str | None:
        """Why the client cannot be used here; None in its own process and event loop.

        Outside of any loop, say in a finalizer, nothing can be awaited and nothing goes wrong.
        """
        if self._pid != os.getpid():
            return FORKED
        return None if asyncio._get_running_loop() in (None, self.loop) else OTHER_LOOP

    def check_process(self, what: str) -> None:
        """Raise NotRunning in another process than it was started in; `what` names the client."""
        if self._pid not in (None, os.getpid()):
            raise NotRunning(what, FORKED)

    @property
    def left_behind(self) -> bool:
        """Whether its process or its event loop is gone, so that nothing of it runs any more."""
        return self._pid != os.getpid() or self.loop is None or self.loop.is_closed()
