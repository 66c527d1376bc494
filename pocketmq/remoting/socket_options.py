"""What the kernel does with the sockets of connections. Not every system has each option."""

from __future__ import annotations

import socket
from struct import pack
from typing import Final

# The kernel detects a peer that vanished (power, network): sent data may stay unacknowledged for
# 15 s, and a silent connection is probed after 30 s. Seconds; milliseconds for TCP_USER_TIMEOUT.
_DEAD_PEER: Final = {
    "TCP_USER_TIMEOUT": 15_000,
    "TCP_KEEPIDLE": 30,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
}

MOST_UNSENT: Final = 128 * 1024
"""Bytes that the kernel holds for a client before it has sent them. It would hold up to 4 MiB for
each, which counts in no limit of ours, and the memory for that is one for the whole machine."""


def find_dead_peer(connection: socket.socket) -> None:
    """Have the kernel detect that the peer of a TCP connection has vanished."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _DEAD_PEER.items():
        _set(connection, name, value)


def limit_unsent(connection: socket.socket) -> None:
    """Leave all but `MOST_UNSENT` bytes that the peer does not take to this process."""
    _set(connection, "TCP_NOTSENT_LOWAT", MOST_UNSENT)


def discard_unsent(connection: socket.socket) -> None:
    """When the connection is closed, free what the peer has not taken: the kernel would go on
    offering it for minutes."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))


def _set(connection: socket.socket, name: str, value: int) -> None:
    option = getattr(socket, name, None)
    if option is not None:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
