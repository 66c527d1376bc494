"""What a port for slaves takes from one connection, and how many of them it keeps.

Reports are small, and a slave makes a few thousand a second at most. A stranger could send
millions, and the broker would do nothing but read them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

MOST_CONNECTIONS: Final = 100
MOST_FROM_ADDRESS: Final = 50
_BUFFER: Final = 4096
_PAUSE_SECONDS: Final = 0.02


def too_many(hosts: Iterable[str], host: str) -> str:
    """Return why a connection from `host` beside those from `hosts` is one too many, or ""."""
    open_hosts = list(hosts)
    if len(open_hosts) >= MOST_CONNECTIONS:
        return f"{MOST_CONNECTIONS} connections are open"
    if open_hosts.count(host) >= MOST_FROM_ADDRESS:
        return f"{MOST_FROM_ADDRESS} connections from there are open"
    return ""


class ReportProtocol(asyncio.BufferedProtocol):
    """Takes at most 4 KiB at once, and after so much makes a pause: 25,000 reports a second."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._buffer = bytearray(_BUFFER)
        self._pause: asyncio.TimerHandle | None = None

    def get_buffer(self, sizehint: int) -> bytearray:
        """Return where the next bytes go."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take what is received."""
        if nbytes == _BUFFER:
            self._transport.pause_reading()
            self._pause = asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self._read_on)
        self.received(bytes(memoryview(self._buffer)[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        """Read no more."""
        if self._pause is not None:
            self._pause.cancel()

    def received(self, data: bytes) -> None:
        """Take reports."""
        raise NotImplementedError

    def _read_on(self) -> None:
        self._transport.resume_reading()
