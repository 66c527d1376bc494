"""Limits the work that a client may cause without making calls. No I/O.

Frames such as PING, SETTINGS and RST_STREAM cost the server work and the client almost nothing.
Each has a price, paid from a budget that refills over time. An answered call does not reset the
budget, but earns a little, because clients send such frames for the answers that they receive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: Units of one connection; a unit is about 5 µs of work.
BURST: Final = 100_000
#: Units refilled each second.
RATE: Final = 10_000
#: The budget of an address for all its connections, as a multiple of a connection's.
ADDRESS_SHARES: Final = 4
#: Units earned by an answered call.
ANSWER: Final = 8


class WorkBudget:
    """The budget of one connection, or of one address.

    `clock` returns monotonic seconds. A connection's spending is also charged to `shared`, the
    budget of its address.
    """

    __slots__ = ("_burst", "_clock", "_left", "_rate", "_shared", "_since")

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        burst: float = BURST,
        rate: float = RATE,
        shared: WorkBudget | None = None,
    ) -> None:
        self._clock = clock
        self._burst = burst
        self._rate = rate
        self._shared = shared
        self._left = float(burst)
        self._since = clock()

    def spend(self, cost: float) -> bool:
        """Pay for work; return False if the budget does not suffice."""
        self._left -= cost
        if self._left < 0:
            self._refill()
        shared = self._shared
        return (shared is None or shared.spend(cost)) and self._left >= 0

    def earn(self, units: float) -> None:
        """Add units for useful work."""
        self._left = min(self._left + units, self._burst)
        if self._shared is not None:
            self._shared.earn(units)

    @property
    def full(self) -> bool:
        """Whether the budget is full."""
        self._refill()
        return self._left >= self._burst

    def _refill(self) -> None:
        now = self._clock()
        # Overdrafts are dropped: nobody is blocked for longer than a refill takes.
        left = max(self._left, -self._burst) + (now - self._since) * self._rate
        self._left = min(left, self._burst)
        self._since = now
