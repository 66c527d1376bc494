"""Clients that send little at a time, and want their answers soon: other work gives way to them.

The ports of one process share one event loop, so they share this as well: a flood at one port,
woken long polls, and slaves that copy the log leave time for the clients of every port.
"""

from __future__ import annotations

from typing import Final

#: Seconds for which a client counts as active after a read of little work.
ACTIVE_SECONDS: Final = 0.01


class LightClients:
    """Whether any of them are active. Times are seconds of one monotonic clock, as the ports and
    queues have it.

    Attributes:
        until: when they no longer count as active, unless one is heard before.
    """

    __slots__ = ("until",)

    def __init__(self) -> None:
        self.until = 0.0

    def heard(self, now: float, seconds: float = ACTIVE_SECONDS) -> None:
        """Take note of one whose requests were executed; it counts as active for so long."""
        self.until = max(self.until, now + seconds)

    def active(self, now: float) -> bool:
        """Tell whether one was heard lately."""
        return now < self.until

    def missed(self, seconds: float, now: float) -> None:
        """No client could be heard for so many seconds until now: if any were active, they are."""
        if now - seconds < self.until:
            self.until += seconds
