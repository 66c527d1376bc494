"""Start and shutdown of a client, each done once for any number and order of calls.

A signal handler may shut a client down inside `async with`, or while it starts; the task that
starts it or shuts it down may be cancelled. In the end the client is either started or completely
closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from pocketmq.client.errors import SHUT_DOWN, NotRunning


class Lifecycle:
    """Starts a client once, and shuts it down once.

    `connect` starts the client's instance and leaves nothing behind if it fails. `begin` starts the
    rest: if it fails or is cancelled, the client is shut down. `close` ends everything, also of a
    client that was started partly or not at all; it never runs at the same time as `begin`.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[None]],
        begin: Callable[[], Coroutine[Any, Any, None]],
        close: Callable[[], Awaitable[None]],
    ) -> None:
        #: Whether the client was started and is not being shut down.
        self.running = False
        self._connect = connect
        self._begin = begin
        self._close = close
        self._starting = asyncio.Lock()
        self._beginning: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def closing(self) -> bool:
        """Whether the client is shut down or shutting down."""
        return self._closing is not None

    async def start(self) -> None:
        """Start the client, or wait until another caller has. Raises NotRunning if it is or gets
        shut down, and the errors of `connect` and `begin`."""
        async with self._starting:
            if self.running:
                return
            await self._connect()
            try:
                self._check_open()
                self.running = True
                self._beginning = asyncio.get_running_loop().create_task(self._begin())
                # Not awaited itself: a shutdown cancels it, which must not cancel the caller.
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
        """Close, or wait until another caller has; cancelling a caller does not cancel it."""
        if self._closing is None:
            self.running = False
            # In its own task, so that cancelling a caller leaves nothing half closed.
            self._closing = asyncio.get_running_loop().create_task(self._shut_down())
        await asyncio.shield(self._closing)

    async def _shut_down(self) -> None:
        try:
            if self._beginning is not None:
                self._beginning.cancel()
                await asyncio.wait([self._beginning])
        finally:
            await self._close()
