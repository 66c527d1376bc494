"""Limits the number of concurrent operations, and waits until all have ended.

Entering and leaving are O(1) for any number of waiters: a freed place goes to the first waiter, and
no other is woken.
"""

from __future__ import annotations

import asyncio
from collections import deque

from pocketmq.client.errors import RemotingTimeout


class InFlight:
    """A first-in first-out semaphore of `limit` places."""

    __slots__ = ("_idle", "_waiting", "count", "limit")

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"the limit must be at least 1, not {limit}")
        self.limit = limit
        self.count = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._idle: asyncio.Event | None = None

    def try_enter(self) -> bool:
        """Take a place if one is free and nobody waits; return whether it was taken."""
        if self.count >= self.limit or self._waiting:
            return False
        self.count += 1
        return True

    async def enter(self, timeout: float) -> None:
        """Take a place, after waiting up to `timeout` seconds for one; raises RemotingTimeout."""
        if self.try_enter():
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            async with asyncio.timeout(timeout):
                await place
        except BaseException as error:
            if place.done() and not place.cancelled():
                self.leave()  # a place was handed over at the same moment
            else:
                place.cancel()
            if isinstance(error, TimeoutError):
                raise RemotingTimeout(
                    f"{self.count} operations are in progress; none ended within {timeout:.3f} s"
                ) from None
            raise

    def leave(self) -> None:
        """Give the place back."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self.count -= 1
        if self.count == 0 and self._idle is not None:
            self._idle.set()

    async def drained(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until no operation is left; return whether that was so."""
        if self.count == 0:
            return True
        self._idle = asyncio.Event()
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True
