"""Free loopback ports."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

# What the official broker listens on, relative to listenPort: the VIP channel, itself, HA.
OFFICIAL_BROKER_SPAN = (-2, 0, 1)

# Below those that systems give to outgoing connections, which might take one before its server
# does (Linux begins at 32768), and above the well-known ones of RocketMQ.
_CANDIDATES = range(12_000, 32_000)
_random = random.SystemRandom()  # A seeded one would give the processes of a test run the same.


def free_port() -> int:
    """A TCP port nobody listens on at the moment."""
    return free_block((0,))


def free_block(span: tuple[int, ...]) -> int:
    """A port p such that p + d is free for every d of `span`, which are few and small."""
    while True:
        port = _random.choice(_CANDIDATES)
        with ExitStack() as held:
            try:
                for distance in span:
                    other = held.enter_context(socket.socket())
                    other.bind(("127.0.0.1", port + distance))
            except OSError:
                continue
            return port
