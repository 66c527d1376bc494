"""What a server stops, one step after another, so that none holds up the ones after it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

log = logging.getLogger(__name__)

STEP_SECONDS: Final = 5.0
"""A fifth of `--stop-timeout`: some steps may hang, and the store is still flushed in time."""

LEAVING_SECONDS: Final = 0.5
"""What a step has for its end after it was cancelled."""


class StopSteps(contextlib.AsyncExitStack):
    """An exit stack with steps that are cancelled, with a line in the log, when they have not ended
    after `seconds` each; None: they have any time. What must come to its end is no step, but a
    callback as any exit stack has."""

    def __init__(self, seconds: float | None = STEP_SECONDS) -> None:
        super().__init__()
        self._seconds = seconds

    def push_step(self, step: Callable[..., Awaitable[object]], /, *args: Any) -> None:
        """Have `step(*args)` awaited at the end."""
        self.push_async_callback(end_in_time, step, *args, seconds=self._seconds)


async def end_in_time(
    step: Callable[..., Awaitable[object]],
    /,
    *args: Any,
    what: str = "",
    seconds: float | None = STEP_SECONDS,
) -> None:
    """Await `step(*args)` for `seconds` at most. Then it is cancelled, with a line in the log that
    calls it `what`, and left, whether it heeds that or not."""
    running = asyncio.ensure_future(step(*args))
    try:
        done, _ = await asyncio.wait([running], timeout=seconds)
    except asyncio.CancelledError:
        await _leave(running)
        raise
    if done:
        running.result()
        return
    what = what or getattr(step, "__qualname__", str(step))
    log.error("%s has not ended within %g s; the stop goes on without it", what, seconds)
    await _leave(running)


async def _leave(step: asyncio.Future[object]) -> None:
    step.cancel()
    await asyncio.wait([step], timeout=LEAVING_SECONDS)
    if step.done() and not step.cancelled() and (error := step.exception()) is not None:
        log.error("a step of a stop failed after it was cancelled", exc_info=error)
