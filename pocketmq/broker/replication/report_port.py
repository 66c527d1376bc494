"""The connections of a port for slaves, and its limits: their number, and the reads of each.

Reports are small, and a slave sends one for each frame that it gets. A hostile client could send
millions, and keep the broker busy with reading them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, cast

from pocketmq.broker.replication.log_sender import LogSender
from pocketmq.message.identity import host_text, pack_host

MOST_CONNECTIONS: Final = 100
MOST_FROM_ADDRESS: Final = 50
PAUSE_SECONDS: Final = 0.02
MOST_READS: Final = 256
"""Reads before a pause while nothing is sent to the slave."""
_BUFFER: Final = 4096
_READS_AFTER_PAUSE: Final = 2
_BYTES_OF_READ: Final = 32 * 1024  # of the log; slaves report for each frame, or each piece of one


def too_many(hosts: Iterable[str], host: str) -> str:
    """Return why another connection from `host` is too many, in addition to those from `hosts`;
    empty if it is allowed."""
    open_hosts = list(hosts)
    if len(open_hosts) >= MOST_CONNECTIONS:
        return f"{MOST_CONNECTIONS} connections are open"
    if open_hosts.count(host) >= MOST_FROM_ADDRESS:
        return f"{MOST_FROM_ADDRESS} connections from there are open"
    return ""


class ReportProtocol(asyncio.BufferedProtocol):
    """The connection of one slave.

    It reads at most 4 KiB at once, and then pauses for 20 ms; it also pauses after 256 reads more
    than the frames that were sent account for.

    Attributes:
        sender: sends the log to the slave.
        peer: its address and port, as text.
        host: the address without the port.
    """

    _transport: asyncio.Transport

    def __init__(self, sender: LogSender) -> None:
        self.sender = sender
        self.peer = self.host = ""
        self._buffer = bytearray(_BUFFER)
        self._pause: asyncio.TimerHandle | None = None
        self._reads = MOST_READS

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept or refuse the connection; the slave sends first."""
        # uvloop's transports have the methods of asyncio.Transport, but are not a subclass of it.
        self._transport = cast(asyncio.Transport, transport)
        self.host, port = (transport.get_extra_info("peername") or ("0.0.0.0", 0))[:2]
        self.peer = host_text(pack_host(self.host.partition("%")[0], port))
        self.sender.open(self._transport)
        if not self.joined():
            self._transport.abort()

    def joined(self) -> bool:
        """Accept the connection; return False to refuse it."""
        raise NotImplementedError

    def pause_writing(self) -> None:
        """Pause: the slave reads too slowly."""
        self.sender.pause()

    def resume_writing(self) -> None:
        """Continue to send."""
        self.sender.resume()

    def close(self) -> None:
        """Close the connection."""
        self._transport.abort()

    def get_buffer(self, sizehint: int) -> bytearray:
        """Return the buffer for the next bytes."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Process received bytes."""
        self._reads -= 1
        if nbytes == _BUFFER or self._reads <= 0:
            self._transport.pause_reading()
            self._pause = asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._read_on)
        self.received(bytes(memoryview(self._buffer)[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop reading and sending."""
        if self._pause is not None:
            self._pause.cancel()
        self.sender.close()

    def may_report(self, size: int) -> None:
        """Record that a frame is sent: the slave may report it."""
        self._reads = min(self._reads + 1 + size // _BYTES_OF_READ, MOST_READS)

    def received(self, data: bytes) -> None:
        """Process reports."""
        raise NotImplementedError

    def _read_on(self) -> None:
        self._reads = max(self._reads, _READS_AFTER_PAUSE)
        self._transport.resume_reading()
