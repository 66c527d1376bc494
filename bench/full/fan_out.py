"""One topic that many groups wait for in long polls."""

from __future__ import annotations

from collections.abc import Sequence

from bench.contenders import Contender, Figures
from bench.measures import Better, Measure
from bench.processes import cpu_seconds

from .workload import Session, Workload, count

GROUPS = 20
RATE = 5_000
SECONDS = 15


def _run(session: Session) -> Sequence[Figures]:
    arguments = (
        "fanout", "-groups", str(GROUPS), "-rate", str(RATE),
        "-n", count(RATE * SECONDS, session.scale, 50),
    )  # fmt: skip

    def measure(contender: Contender, turn: int) -> None:
        begin = cpu_seconds(contender.broker.process.pid)
        line = session.load(contender, "fan", turn, *arguments)
        used = cpu_seconds(contender.broker.process.pid) - begin
        contender.add("fan_rate", line["per_second"])
        contender.add("fan_cpu", line["messages"] / max(used, 0.01))
        contender.add("fan_p99", line["p99_us"] / 1000)

    with session.brokers() as pair:
        session.in_turn(pair, measure)
        return pair


FAN_OUT = Workload(
    "fan-out",
    (
        Measure("fan_rate", f"{GROUPS} groups of long polls, delivered", "msg/s", Better.HIGHER),
        Measure("fan_cpu", f"{GROUPS} groups, delivered per CPU second", "msg", Better.HIGHER, 1.5),
        Measure("fan_p99", f"{GROUPS} groups, p99", "ms", Better.LOWER),
    ),
    _run,
)
