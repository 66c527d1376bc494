"""Messages that the broker keeps to itself first: delay levels, timers, and half messages."""

from __future__ import annotations

from collections.abc import Sequence

from bench.contenders import Contender, Figures
from bench.measures import Better, Load, Measure

from .workload import MANY, Session, Workload, by_loads, count

BURST = 100_000
RATE = 2_000
SECONDS = 15


def _delayed(session: Session) -> Sequence[Figures]:
    scale = session.scale
    steady = ("-rate", str(RATE), "-n", count(RATE * SECONDS, scale, 100))
    burst = ("-rate", "0", "-n", count(BURST, scale, 200))
    # All are sent before the first is due.
    ahead = str(max(int(10 * scale), 2))

    def measure(contender: Contender, turn: int) -> None:
        for kind, after, until in ("level", "1", "5"), ("timer", "2", ahead):
            line = session.load(
                contender, f"late-{kind}", turn, "due", "-kind", kind, "-after", after, *steady
            )
            contender.add(f"{kind}_p99", line["p99_us"] / 1000)
            line = session.load(
                contender, f"burst-{kind}", turn, "due", "-kind", kind, "-after", until, *burst
            )
            contender.add(f"{kind}_rate", line["per_second"])

    with session.brokers() as pair:
        session.in_turn(pair, measure)
        return pair


def _transactions(scale: float) -> tuple[Load, ...]:
    return (
        Load(
            ("transact", *MANY, "-n", count(100_000, scale, 1_000)),
            {"transactions": "per_second"},
            "transactions",
        ),
    )


DELAYED = Workload(
    "delayed",
    (
        Measure("level_rate", "delay level, a burst that gets due", "msg/s", Better.HIGHER, 1.0),
        Measure("level_p99", "delay level, lateness p99", "ms", Better.LOWER, 1.0),
        Measure("timer_rate", "timers, a burst that gets due", "msg/s", Better.HIGHER, 1.0),
        Measure("timer_p99", "timers, lateness p99", "ms", Better.LOWER, 1.0),
    ),
    _delayed,
)
TRANSACTIONS = Workload(
    "transactions",
    (Measure("transactions", "transactions: half and commit", "tx/s", Better.HIGHER, 1.5),),
    by_loads(_transactions),
)
