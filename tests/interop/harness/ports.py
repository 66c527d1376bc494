"""Free loopback ports."""

from __future__ import annotations

import socket
from contextlib import ExitStack

# What the official broker listens on, relative to listenPort: the VIP channel, itself, HA.
OFFICIAL_BROKER_SPAN = (-2, 0, 1)


def free_port() -> int:
    """A TCP port nobody listens on at the moment."""
    return free_block((0,))


def free_block(span: tuple[int, ...]) -> int:
    """A port p such that p + d is free for every d of ``span``."""
    while True:
        with ExitStack() as held:
            first = held.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                for distance in span:
                    if distance:
                        other = held.enter_context(socket.socket())
                        other.bind(("127.0.0.1", port + distance))
            except OSError:
                continue
            return port
