"""Long work alongside a busy event loop, in small steps with a pause after each.

A scrape of a large broker reads and writes hundreds of thousands of values. Without pauses it would
delay every client, in the event loop or, because of the interpreter lock, in a thread. With a pause
after each millisecond, a client waits for one millisecond at most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

WORK: Final = 0.001  # seconds
PAUSE: Final = 0.001


class Pace:
    """Pauses of work on an event loop; `clock` returns seconds."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._until = clock() + WORK

    async def breathe(self) -> None:
        """Pause if it is time to. Call it between small steps."""
        if self._clock() >= self._until:
            await self._sleep(PAUSE)
            self._until = self._clock() + WORK


def paced(
    items: Iterable[T],
    *,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[T]:
    """Yield the items, with the same pauses for the thread that processes them."""
    until = clock() + WORK
    for item in items:
        yield item
        if clock() >= until:
            sleep(PAUSE)
            until = clock() + WORK
