"""Limits the work that a client may cause without making calls. No I/O.

Frames such as PING, SETTINGS and RST_STREAM cost the server work and the client almost nothing.
Each has a price, paid from a budget that refills over time. An answered call does not reset the
budget, but earns a little, because clients send such frames for the answers that they receive.

The connections of one client share a budget as well, but not everybody at an address is the same
client. So a connection that causes little work is not to blame when the shared budget is used up:
it has a small reserve for that time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: Units of one connection; a unit is about 5 µs of work.
BURST: Final = 100_000
#: Units refilled each second.
RATE: Final = 10_000
#: The budget that connections share, as a multiple of a connection's.
SHARES: Final = 4
#: The most units of a connection's reserve, and of what refills each second without answered calls.
RESERVE: Final = 500
RESERVE_RATE: Final = 10
RESERVE_REFILLED: Final = 100
#: Units earned by an answered call.
ANSWER: Final = 8


class WorkBudget:
    """The budget of one connection, or the one that several share.

    `clock` returns monotonic seconds. A connection's spending is also charged to `shared`. While
    that does not suffice, it is taken from the connection's reserve, which is empty at first, and
    refilled by answered calls and, in part, over time.

    Attributes:
        shared: may be replaced; None without one.
    """

    __slots__ = (
        "_burst",
        "_clock",
        "_left",
        "_rate",
        "_reserve",
        "_reserved_at",
        "_since",
        "shared",
    )

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
        self.shared = shared
        self._left = float(burst)
        self._since = self._reserved_at = clock()
        self._reserve = 0.0

    def spend(self, cost: float) -> bool:
        """Pay for work; return False if the budget does not suffice."""
        self._left -= cost
        if self._left < 0:
            self._refill()
        shared = self.shared
        if shared is not None and not shared.spend(cost) and not self._spend_reserve(cost):
            return False
        return self._left >= 0

    def _spend_reserve(self, cost: float) -> bool:
        now = self._clock()
        if self._reserve < RESERVE_REFILLED:
            refilled = self._reserve + (now - self._reserved_at) * RESERVE_RATE
            self._reserve = min(refilled, RESERVE_REFILLED)
        self._reserved_at = now
        self._reserve -= cost
        return self._reserve >= 0

    def earn(self, units: float) -> None:
        """Add units for useful work."""
        self._left = min(self._left + units, self._burst)
        self._reserve = min(self._reserve + units, RESERVE)
        if self.shared is not None:
            self.shared.earn(units)

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
