"""The life of a client: one start and one shutdown, whoever asks for them, however often and when.

A signal handler may shut a client down beside `async with`, or while it starts; the task that
starts it or shuts it down may be cancelled. The client is open in the end, or closed completely.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from pocketmq.client.errors import SHUT_DOWN, NotRunning


class Lifecycle:
    """Starts a client once, and shuts it down once.

    `connect`, the start of its instance, leaves nothing behind if it fails. `begin` is what follows
    it: whatever ends that early has the client shut down. `close` ends everything, also of a client
    that never began, or not wholly; it does not run beside `begin`.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[None]],
        begin: Callable[[], Coroutine[Any, Any, None]],
        close: Callable[[], Awaitable[None]],
    ) -> None:
        #: From the time that it begins until it is to shut down.
        self.running = False
        self._connect = connect
        self._begin = begin
        self._close = close
        self._starting = asyncio.Lock()
        self._beginning: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def closing(self) -> bool:
        """Whether it is shut down, or about to be."""
        return self._closing is not None

    async def start(self) -> None:
        """Begin, or wait until another caller has. Raises NotRunning if it is or gets shut down,
        and the errors of `connect` and `begin`."""
        async with self._starting:
            if self.running:
                return
            await self._connect()
            try:
                self._check_open()
                self.running = True
                self._beginning = asyncio.get_running_loop().create_task(self._begin())
                # Not awaited itself: the shutdown cancels it, and that is not for the caller.
                await asyncio.wait([self._beginning])
                self._check_open()
                self._beginning.result()
            except BaseException:
                await self.shutdown()
                raise

    def _check_open(self) -> None:
        if self._closing is not None:
            raise NotRunning("client", SHUT_DOWN)

    async def shutdown(self) -> None:
        """Close, or wait until it is closed; cancelling a caller does not cancel the shutdown."""
        if self._closing is None:
            self.running = False
            # In a task of its own, so that a caller that is cancelled leaves nothing half closed.
            self._closing = asyncio.get_running_loop().create_task(self._shut_down())
        await asyncio.shield(self._closing)

    async def _shut_down(self) -> None:
        try:
            if self._beginning is not None:
                self._beginning.cancel()
                await asyncio.wait([self._beginning])
        finally:
            await self._close()
