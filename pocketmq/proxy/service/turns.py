"""Divides large requests among turns of the event loop.

The transport starts a few calls in a turn, whatever they contain: an AckMessage with a thousand
entries would take a tenth of a second. So such requests are executed in slices, those of all
clients together one in each turn, and so are large answers of brokers. Owners take turns, and one
that sends many such requests has them executed one after another, so that only one of them
takes memory for what is made of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from time import perf_counter
from typing import Final, TypeVar

from pocketmq.remoting.serving.light_clients import LightClients
from pocketmq.remoting.serving.rotation import Rotation

#: Messages or entries of one slice.
SLICE: Final = 8
#: Bytes of messages that take a millisecond.
LARGE: Final = 128 * 1024
#: Seconds of a slice after which clients with little work get the same time.
LONG: Final = 0.004
#: The longest such pause, in seconds.
LONGEST_REST: Final = 1.0

T = TypeVar("T")


class Turns:
    """Gives turns to owners; with longer pauses while `light` are active."""

    def __init__(
        self, light: LightClients | None = None, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._light = light or LightClients()
        self._clock = clock
        self._waiting: Rotation[asyncio.Future[None]] = Rotation()
        self._scheduled = False

    async def next(self, owner: Hashable, *, begun: bool = False) -> None:
        """Wait for a turn, which lasts until the caller waits for something else. Requests that
        have `begun` come first."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting.add(owner, future, first=begun)
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._wake)
        await future

    async def for_answer(self, owner: Hashable, size: int) -> None:
        """Wait for a turn if the messages of a broker's answer of `size` bytes are much work: those
        that were held may all come at one moment."""
        if size > LARGE:
            await self.next(owner)

    async def slices(self, owner: Hashable, items: Sequence[T]) -> AsyncIterator[Sequence[T]]:
        """Yield the items in slices, each in a turn unless there is only one."""
        for at in range(0, len(items), SLICE):
            if len(items) > SLICE:
                await self.next(owner, begun=at > 0)
            yield items[at : at + SLICE]

    def _wake(self) -> None:
        future = self._waiting.take()
        if not future.done():
            future.set_result(None)
        # It runs right after the slice.
        asyncio.get_running_loop().call_soon(self._ended, self._clock())

    def _ended(self, began: float) -> None:
        if not self._waiting:
            self._scheduled = False
            return
        now = self._clock()
        loop = asyncio.get_running_loop()
        if now - began > LONG and self._light.active(began):
            loop.call_later(min(now - began, LONGEST_REST), self._wake)
        else:
            loop.call_soon(self._wake)
