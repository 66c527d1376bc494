"""Writing a table to the disk every few seconds, off the event loop, and once more at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)


class Keeper:
    """Awaits `save()` every `seconds` until it is stopped; a failure is tried again then."""

    def __init__(self, seconds: float, save: Callable[[], Awaitable[None]]) -> None:
        self._seconds = seconds
        self._save = save
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; to be called on the event loop."""
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def stop(self) -> None:
        """Save once more and end."""
        self._stopping.set()
        if self._task is not None:
            await self._task

    async def _keep(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._seconds):
                    await self._stopping.wait()
            try:
                await self._save()
            except Exception:
                log.exception("%s failed", self._save)
