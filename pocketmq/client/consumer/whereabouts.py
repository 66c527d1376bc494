"""Where a consumer runs: its process and its event loop."""

from __future__ import annotations

import asyncio
import os

from pocketmq.client.errors import NotRunning

__all__ = ["Whereabouts"]


class Whereabouts:
    """The process and the event loop that a consumer was started in; `what` names it in errors."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._pid: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def enter(self) -> None:
        """Note that the consumer starts here."""
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()

    @property
    def here(self) -> bool:
        """Whether this is the process and the event loop that it was started in."""
        return self._pid == os.getpid() and self._loop is _present_loop()

    def check(self) -> None:
        """Raise NotRunning in another process or event loop than the one it was started in."""
        if self._pid != os.getpid():
            raise NotRunning(
                self._what,
                f"it was started in process {self._pid}, and this one is a fork of it: start the "
                "consumer, or make a new one, after the fork",
            )
        present = _present_loop()
        if present is not None and self._loop is not present:
            raise NotRunning(self._what, "it was started in another event loop: use it there")

    def check_or_leave(self) -> None:
        """Raise NotRunning if it still runs in another event loop of this process."""
        if self._pid == os.getpid() and self._loop is not None and not self._loop.is_closed():
            self.check()


def _present_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
