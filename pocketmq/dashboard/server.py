"""The dashboard of a process: it listens, samples, and serves pages.

The libraries for the pages are loaded at the first connection: until then a dashboard costs its
process only a socket and the samples.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import socket
from types import ModuleType
from typing import Final

from pocketmq.dashboard.config import DashboardConfig
from pocketmq.remoting.serving.listening import PortInUse, in_plain_words
from pocketmq.remoting.serving.stop_steps import end_in_time

log = logging.getLogger(__name__)

_BACKLOG: Final = 128
_SEEN_FROM_HERE: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


class Dashboard:
    """A dashboard in this process: `start` and `stop`, or `async with`."""

    def __init__(self, config: DashboardConfig) -> None:
        self._config = config
        self._running: asyncio.Task[None] | None = None
        self.port = config.port

    @property
    def url(self) -> str:
        """The address for a browser on this machine."""
        host = _SEEN_FROM_HERE.get(self._config.host, self._config.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    async def __aenter__(self) -> Dashboard:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def start(self, *, or_any_port: bool = False) -> None:
        """Listen. `or_any_port`: if the port is in use, listen on a free one.

        Raises PortInUse or CannotListen.
        """
        host = self._config.host
        try:
            listening = _listen(host, self._config.port)
        except PortInUse:
            if not or_any_port:
                raise
            listening = _listen(host, 0)
        self.port = listening.getsockname()[1]
        self._running = asyncio.get_running_loop().create_task(self._run(listening))

    async def stop(self) -> None:
        """Stop everything. Calling it again has no effect."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await end_in_time(asyncio.wait, [running], what="the dashboard")

    async def _run(self, listening: socket.socket) -> None:
        try:
            with listening:
                await self._serve(listening)
        except Exception:
            log.exception("the dashboard has ended; everything else goes on")

    async def _serve(self, listening: socket.socket) -> None:
        called = asyncio.ensure_future(_readable(listening))
        try:
            # Leave the first seconds to whatever else starts in this process.
            await asyncio.wait([called], timeout=self._config.period)
            parts = await _loaded("pocketmq.dashboard.parts")
            async with parts.Parts(self._config) as running:
                await called
                app = await _loaded("pocketmq.dashboard.app")
                await app.serve(running, listening)
        finally:
            called.cancel()


async def _loaded(module: str) -> ModuleType:
    """Import a module without blocking the event loop."""
    return await asyncio.to_thread(importlib.import_module, module)


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises PortInUse or CannotListen."""
    with in_plain_words("dashboard", host, port):
        family, _, _, _, where = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.create_server(where[:2], family=family, backlog=_BACKLOG)
    listening.setblocking(False)
    return listening


async def _readable(listening: socket.socket) -> None:
    """Wait for a connection to accept."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(listening, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(listening)
