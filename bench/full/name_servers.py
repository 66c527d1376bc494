"""Routes and registrations at a name server."""

from __future__ import annotations

from collections.abc import Sequence

from bench.contenders import Contender, Figures
from bench.measures import Better, Measure

from .workload import Session, Workload, count

TOPICS = 1_000
BROKERS = 100


def _run(session: Session) -> Sequence[Figures]:
    scale = session.scale
    size = ("-topics", str(TOPICS), "-brokers", str(BROKERS))
    routes = ("routes", *size, "-inflight", "16", "-n", count(40_000, scale, 400))
    # A broker has one registration under way.
    register = ("register", *size, "-inflight", "1", "-n", count(5_000, scale, 100))

    def measure(contender: Contender, turn: int) -> None:
        namesrv = contender.namesrv.address
        for key, arguments in ("routes", routes), ("registrations", register):
            line = session.generator.run(namesrv, "named", *arguments)
            if turn >= 0:
                contender.add(key, line["per_second"])

    with session.brokers(warm=False) as pair:
        for contender in pair[1:]:
            measure(contender, -1)  # for the just-in-time compiler
        session.in_turn(pair, measure)
        return pair


NAME_SERVER = Workload(
    "name-server",
    (
        Measure(
            "routes", f"route queries, {TOPICS} topics, {BROKERS} brokers", "/s", Better.HIGHER, 1.0
        ),
        Measure("registrations", "registrations of these brokers", "/s", Better.HIGHER, 1.0),
    ),
    _run,
)
