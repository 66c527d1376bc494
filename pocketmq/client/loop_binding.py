"""The process and the event loop in which a client was started and must be used."""

from __future__ import annotations

import asyncio
import os

from pocketmq.client.errors import FORKED, OTHER_LOOP, NotRunning


class LoopBinding:
    """Where a client runs. The send paths compare `loop` with the running loop, and call
    `why_elsewhere` only if they differ."""

    def __init__(self) -> None:
        #: The event loop; None before the start.
        self.loop: asyncio.AbstractEventLoop | None = None
        self._pid: int | None = None

    def enter(self) -> None:
        """Record the process and the event loop at the start."""
        self.loop = asyncio.get_running_loop()
        self._pid = os.getpid()

    @property
    def why_elsewhere(self) -> str | None:
        """Return why the client cannot be used here; None in its own process and event loop.

        Also None outside of any loop, for example in a finalizer, where nothing can be awaited.
        """
        if self._pid != os.getpid():
            return FORKED
        return None if asyncio._get_running_loop() in (None, self.loop) else OTHER_LOOP

    def check_process(self, what: str) -> None:
        """Raise NotRunning in a process other than that of the start; `what` names the client."""
        if self._pid not in (None, os.getpid()):
            raise NotRunning(what, FORKED)

    @property
    def left_behind(self) -> bool:
        """Whether the client's process or event loop has ended, so that none of its tasks run."""
        return self._pid != os.getpid() or self.loop is None or self.loop.is_closed()
