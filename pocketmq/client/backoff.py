"""Exponential backoff, and a retry loop that uses it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

#: Pause of `retry` after the first failure, and the longest pause, seconds.
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0

T = TypeVar("T")


def backoff(first: float, longest: float, failures: int) -> float:
    """Return the pause after `failures` (1 or more) failures in a row: it starts at `first`,
    doubles each time, and is at most `longest`. All in seconds."""
    return min(first * 2.0 ** min(failures - 1, 20), longest)


def jittered(pause: float) -> float:
    """Return a random value between half of the pause and all of it, so that clients that failed
    together do not retry together."""
    return pause * random.uniform(0.5, 1.0)


async def retry(
    ask: Callable[[float], Awaitable[T]],
    timeout: float,
    *errors: type[Exception],
    waiting: Callable[[], None] | None = None,
) -> T:
    """Call `ask`, and again after growing pauses while it raises one of `errors`. An error that is
    not `retriable` is raised at once.

    Args:
        ask: called with the seconds that are left.
        timeout: seconds; no attempt begins after that.
        waiting: called once, before the first pause.

    Raises:
        One of `errors`: that of the last attempt, when the time is over.
    """
    deadline = time.monotonic() + timeout
    failures = 0
    while True:
        try:
            return await ask(max(deadline - time.monotonic(), 0.0))
        except errors as error:
            if not getattr(error, "retriable", True):
                raise
            failures += 1
            pause = jittered(backoff(FIRST_PAUSE, LONGEST_PAUSE, failures))
            if time.monotonic() + pause > deadline:
                raise
        if failures == 1 and waiting is not None:
            waiting()
        await asyncio.sleep(pause)
