"""Pauses between attempts, and attempts with pauses between them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

#: The pause of `retry` after the first failure, and after any further one at most, seconds.
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0

T = TypeVar("T")


def backoff(first: float, longest: float, failures: int) -> float:
    """The pause after so many failures in a row, at least 1: `first`, twice as long each time, and
    `longest` at most. Seconds."""
    return min(first * 2.0 ** min(failures - 1, 20), longest)


def jittered(pause: float) -> float:
    """Between half of the pause and all of it, so that clients that failed together do not come
    back together."""
    return pause * random.uniform(0.5, 1.0)


async def retry(
    ask: Callable[[float], Awaitable[T]],
    timeout: float,
    *errors: type[Exception],
    waiting: Callable[[], None] | None = None,
) -> T:
    """Ask once, and again after a growing pause while that raises one of `errors`, unless it says
    that it is not `retriable`.

    Args:
        ask: gets the seconds that are left.
        timeout: seconds; no attempt begins later.
        waiting: called once, before the first pause.

    Raises:
        One of `errors`: the last one, when the time is over.
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
