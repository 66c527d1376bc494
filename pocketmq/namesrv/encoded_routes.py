"""The last encoded routes, until a table changes.

A thousand clients ask for the same route every 30 s, and encoding one of a hundred brokers takes
half a millisecond.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

_MOST_BYTES: Final = 32 * 1024 * 1024


class EncodedRoutes:
    """The bodies of answers. `limit` bounds their bytes; above it, all are dropped."""

    def __init__(self, limit: int = _MOST_BYTES) -> None:
        self._limit = limit
        self._version: Hashable = None
        self._bodies: dict[Hashable, bytes] = {}
        self._bytes = 0

    def get(self, key: Hashable, version: Hashable) -> bytes | None:
        """Return the body for `key` if it is of this version of the tables."""
        return self._bodies.get(key) if version == self._version else None

    def keep(self, key: Hashable, version: Hashable, body: bytes) -> None:
        """Keep a new body."""
        if version != self._version or self._bytes + len(body) > self._limit:
            self._version = version
            self._bodies.clear()
            self._bytes = 0
        self._bodies[key] = body
        self._bytes += len(body)
