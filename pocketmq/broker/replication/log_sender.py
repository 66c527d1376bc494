"""Sends a master's log to one slave in frames, as fast as the slave reads them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

_TURN: Final = 1024 * 1024  # bytes for all slaves in one turn of the event loop
_WRITE_BUFFER: Final = 1024 * 1024

#: Returns the header of the next frame and its bytes of the log (none for a heartbeat), and counts
#: them as sent; None if there is nothing to send.
NextFrame = Callable[[], tuple[bytes, memoryview | bytes] | None]


class LogSender:
    """Sends over one connection, at most `most_per_second` bytes of the log per second.
    `sharers()` returns the number of connections that share a turn of the event loop.

    Attributes:
        rate: bytes per second sent lately.
    """

    def __init__(
        self,
        next_frame: NextFrame,
        most_per_second: float = math.inf,
        *,
        sharers: Callable[[], int] = lambda: 1,
    ) -> None:
        self.rate = 0
        self._next_frame = next_frame
        self._most_per_second = most_per_second
        self._sharers = sharers
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.WriteTransport | None = None
        self._paused = False
        self._again: asyncio.Handle | None = None
        self._sent = 0  # bytes since `_counted`
        self._counted = self._loop.time()

    def open(self, transport: asyncio.WriteTransport) -> None:
        """Send over this connection."""
        transport.set_write_buffer_limits(_WRITE_BUFFER)
        self._transport = transport

    def close(self) -> None:
        """Stop sending: the connection is closed."""
        self._transport = None
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def pause(self) -> None:
        """Pause: the slave reads too slowly."""
        self._paused = True

    def resume(self) -> None:
        """Continue to send."""
        self._paused = False
        self._send_soon()

    def send(self) -> None:
        """Send available frames, within this connection's share of a turn; the rest comes later."""
        transport = self._transport
        if self._paused or transport is None or transport.is_closing():
            return
        left = min(_TURN // max(self._sharers(), 1), self._allowance())
        parts: list[bytes | memoryview] = []
        frame = None
        while left > 0 and (frame := self._next_frame()) is not None:
            parts += frame
            size = len(frame[1])
            self._sent += size
            left -= size
        if parts:
            # One write, because each write wakes the slave, which costs both sides.
            transport.write(b"".join(parts))
        if frame is not None and not self._paused and self._allowance() > 0:
            self._send_soon()

    def count(self) -> None:
        """Measure the rate; call this about once a second."""
        now = self._loop.time()
        passed = now - self._counted
        if passed >= 1.0:
            self.rate = round(self._sent / passed)
            self._sent = 0
            self._counted = now

    def _allowance(self) -> float:
        """Return the number of bytes that may still be sent in this second."""
        self.count()
        return self._most_per_second - self._sent

    def _send_soon(self) -> None:
        if self._again is None and self._transport is not None:
            self._again = self._loop.call_soon(self._send_again)

    def _send_again(self) -> None:
        self._again = None
        self.send()
