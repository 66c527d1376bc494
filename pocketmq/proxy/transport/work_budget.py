"""How much work a client may cause without asking for anything. No I/O.

Frames such as PING, SETTINGS and RST_STREAM cost the server work and the client next to nothing.
Each has a price. A budget pays it, and refills with time: an answered call does not clear what was
spent. It earns a little, since clients send such frames for the answers that they get.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: Units of one connection: one is about 5 µs of work.
BURST: Final = 100_000
#: Units that come back each second.
RATE: Final = 10_000
#: An address has so many times the budget of a connection, for all of its connections.
ADDRESS_SHARES: Final = 4
#: Units that a call earns when it is answered.
ANSWER: Final = 8


class WorkBudget:
    """The budget of one connection, or of one address.

    `clock` gives seconds, and never goes back. What a connection spends, `shared` pays as well: the
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
        """Pay for work; False if that is more than there is."""
        self._left -= cost
        if self._left < 0:
            self._refill()
        shared = self._shared
        return (shared is None or shared.spend(cost)) and self._left >= 0

    def earn(self, units: float) -> None:
        """Get units back for something useful."""
        self._left = min(self._left + units, self._burst)
        if self._shared is not None:
            self._shared.earn(units)

    @property
    def full(self) -> bool:
        """Whether nothing of it is spent."""
        self._refill()
        return self._left >= self._burst

    def _refill(self) -> None:
        now = self._clock()
        # What is overdrawn is forgotten: nobody is shut out for longer than a refill takes.
        left = max(self._left, -self._burst) + (now - self._since) * self._rate
        self._left = min(left, self._burst)
        self._since = now
