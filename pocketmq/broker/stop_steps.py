"""What a broker stops, one step after another, so that none holds up the flush of the store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

log = logging.getLogger(__name__)

STEP_SECONDS: Final = 5.0
"""A fifth of `--stop-timeout`: some steps may hang, and the store is still flushed in time."""


class StopSteps(contextlib.AsyncExitStack):
    """An exit stack whose asynchronous callbacks are cancelled, with a line in the log, when they
    have not ended after `seconds` each. `push_unbounded` is for what must come to its end."""

    def __init__(self, seconds: float = STEP_SECONDS) -> None:
        super().__init__()
        self._seconds = seconds

    def push_async_callback(  # type: ignore[override]
        self, callback: Callable[..., Awaitable[object]], /, *args: Any, **kwargs: Any
    ) -> Callable[..., Awaitable[object]]:
        """Have `callback` called at the end, for the time of a step at most."""
        super().push_async_callback(self._bounded, callback, *args, **kwargs)
        return callback

    def push_unbounded(self, callback: Callable[[], Awaitable[object]]) -> None:
        """Have `callback` called at the end, for as long as it takes."""
        super().push_async_callback(callback)

    async def _bounded(
        self, callback: Callable[..., Awaitable[object]], *args: Any, **kwargs: Any
    ) -> None:
        try:
            async with asyncio.timeout(self._seconds) as limit:
                await callback(*args, **kwargs)
        except TimeoutError:
            if not limit.expired():
                raise
            log.error(
                "%s has not ended within %g s; the broker stops without it",
                getattr(callback, "__qualname__", callback), self._seconds,
            )  # fmt: skip
