"""Something small done again and again on the event loop, until the broker stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

log = logging.getLogger(__name__)


def every(stack: contextlib.AsyncExitStack, seconds: float, action: Callable[[], None]) -> None:
    """Call `action` every so many seconds until `stack` is closed; it must not block."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                action()
            except Exception:
                # Full disk, a bug: the next round may do better.
                log.exception("%s failed", action)

    task = asyncio.get_running_loop().create_task(repeat())
    stack.callback(task.cancel)
