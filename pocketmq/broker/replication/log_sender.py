"""Sends a master's log to its slaves in frames, as fast as they read them.

A slave that is almost up to date gets new records at once. Slaves with more to copy take turns and
share the bytes of a turn of the event loop: 64 KiB while clients that send little are active, which
takes about as long as one of their requests. Without this, 40 slaves that copied a log made such a
client wait ten times as long as alone.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final

from pocketmq.remoting.serving.light_clients import LightClients

TURN: Final = 1024 * 1024
"""Bytes for all slaves in one turn of the event loop."""
SHORT_TURN: Final = 64 * 1024
"""The same while clients that send little are active."""
MOST: Final = 256 * 1024
"""Bytes for one slave at a time."""
LEAST: Final = 8 * 1024
"""Bytes that a write counts as at least: the call itself takes as long as so many bytes."""

#: Returns the header of the next frame and its bytes of the log (none for a heartbeat), and counts
#: them as sent; None if there is nothing to send.
NextFrame = Callable[[], tuple[bytes, memoryview | bytes] | None]


class CopyTurns:
    """The senders of one port that have something to send. They give way to `light`, whose times
    are those of `clock`."""

    def __init__(
        self, light: LightClients | None = None, *, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._light = light or LightClients()
        self._clock = clock
        self._new: deque[LogSender] = deque()
        self._behind: deque[LogSender] = deque()
        self._scheduled = False

    def add(self, sender: LogSender, *, is_behind: bool) -> None:
        """Let `sender` send in a later turn; before those that are behind, unless it is one."""
        (self._behind if is_behind else self._new).append(sender)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        left = SHORT_TURN if self._light.active(self._clock()) else TURN
        try:
            while left > 0 and (queue := self._new or self._behind):
                sender = queue.popleft()
                left -= max(sender.take_turn(min(left, MOST)), LEAST)
                if sender.has_more:
                    self._behind.append(sender)
        finally:  # a sender that fails must not stop the others
            self._scheduled = bool(self._new or self._behind)
            if self._scheduled:
                asyncio.get_running_loop().call_soon(self._turn)


class LogSender:
    """Sends over one connection, at most `most_per_second` bytes of the log per second.

    Attributes:
        rate: bytes per second sent lately.
        has_more: more is to be sent in a later turn.
    """

    def __init__(
        self,
        next_frame: NextFrame,
        most_per_second: float = math.inf,
        *,
        turns: CopyTurns | None = None,
    ) -> None:
        self.rate = 0
        self.has_more = False
        self._next_frame = next_frame
        self._most_per_second = most_per_second
        self._turns = turns or CopyTurns()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.WriteTransport | None = None
        self._paused = False
        self._waiting = False  # for its turn
        self._sent = 0  # bytes since `_counted`
        self._counted = self._loop.time()

    def open(self, transport: asyncio.WriteTransport) -> None:
        """Send over this connection."""
        # What the socket does not take is written without a turn, so only little may wait for it.
        transport.set_write_buffer_limits(0)
        self._transport = transport

    def close(self) -> None:
        """Stop sending: the connection is closed."""
        self._transport = None

    def pause(self) -> None:
        """Pause: the slave reads too slowly."""
        self._paused = True

    def resume(self) -> None:
        """Continue to send."""
        self._paused = False
        self._wait(is_behind=True)

    def send_soon(self) -> None:
        """Send available frames in the next turns."""
        self._wait(is_behind=False)

    def hurry(self) -> None:
        """Send available frames now, unless they are many: a send waits for them."""
        if not self._waiting:
            self._send(SHORT_TURN)
            if self.has_more:
                self._wait(is_behind=True)

    def take_turn(self, most: int) -> int:
        """Send about `most` bytes; return the number of bytes sent."""
        self._waiting = False
        sent = self._send(most)
        self._waiting = self.has_more
        return sent

    def count(self) -> None:
        """Measure the rate; call this about once a second."""
        now = self._loop.time()
        passed = now - self._counted
        if passed >= 1.0:
            self.rate = round(self._sent / passed)
            self._sent = 0
            self._counted = now

    def _wait(self, *, is_behind: bool) -> None:
        if not (self._waiting or self._paused or self._transport is None):
            self._waiting = True
            self._turns.add(self, is_behind=is_behind)

    def _send(self, most: int) -> int:
        self.has_more = False
        transport = self._transport
        if self._paused or transport is None or transport.is_closing():
            return 0
        left = min(most, self._allowance())
        parts: list[bytes | memoryview] = []
        frame = None
        sent = 0
        while left > 0 and (frame := self._next_frame()) is not None:
            parts += frame
            size = len(frame[1])
            sent += size
            left -= size
        self._sent += sent
        if parts:
            # One write: each wakes the slave, and each wake-up costs both sides.
            transport.write(b"".join(parts))
        self.has_more = frame is not None and not self._paused and self._allowance() > 0
        return sent

    def _allowance(self) -> float:
        """Return the number of bytes that may still be sent in this second."""
        self.count()
        return self._most_per_second - self._sent
