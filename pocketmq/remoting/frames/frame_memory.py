"""The memory that the incomplete frames of all connections of a server take.

A frame may have 16 MiB. So a client that opens many connections, and sends an incomplete frame on
each, could fill the memory. When incomplete frames take more than the limit, the server drops the
connections that hold the most: those of others are small or soon complete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pocketmq.remoting.machine_memory import at_most

LIMIT: Final = 512 << 20
"""Bytes of incomplete frames of one server, or a quarter of its memory if that is less."""


class FrameMemory:
    """Counts the bytes of incomplete frames.

    Attributes:
        used: bytes now.
        limit: bytes above which `exceeded` is called.
        exceeded: called at each read of an incomplete frame while the limit is exceeded.
    """

    __slots__ = ("exceeded", "limit", "used")

    def __init__(self, limit: int | None = None) -> None:
        self.used = 0
        self.limit = at_most(LIMIT) if limit is None else limit
        self.exceeded: Callable[[], None] = lambda: None

    def add(self, size: int) -> None:
        """Count bytes that were received, or with a negative size, dropped."""
        self.used += size
        if self.used > self.limit and size > 0:
            self.exceeded()
