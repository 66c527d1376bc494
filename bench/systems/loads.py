"""The loads that every system gets, and what one run of them tells."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

SIZE = 1024  # bytes of a message
CONNECTIONS = 4
IN_FLIGHT = 64  # requests without an answer on each connection


class Load(Enum):
    """One kind of sending; the value is the number of messages of a run."""

    SINGLE = 200_000
    BATCH = 384_000
    ONE = 10_000

    @property
    def title(self) -> str:
        return _TITLES[self]


_TITLES = {
    Load.SINGLE: "single messages in flight",
    Load.BATCH: "batches",
    Load.ONE: "one at a time",
}


class Run(NamedTuple):
    """What one run tells. `p50` is the microseconds from a request to its answer."""

    per_second: float
    p50: float


class System(Protocol):
    """A running system under measurement."""

    name: str

    def run(self, load: Load, count: int, turn: int) -> Run | None:
        """Send `count` messages in round `turn`; None for a load that the system does not have.

        Raises RuntimeError when it could not be done, and subprocess.TimeoutExpired.
        """

    def stop(self) -> None:
        """End its processes."""
