"""Pulls of 32: from memory, of a log that does not fit into it, and with a filter."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from bench.contenders import Contender, Figures
from bench.measures import Better, Load, Measure
from bench.memory_limit import MemoryLimit, evict

from .workload import MANY, Session, Workload, by_loads, count

ONE_IN = 100
#: What the brokers of the catch-up have for their own memory and the page cache together. The
#: official one's heap alone may have half of that.
LIMIT = 2 << 30
#: The log: twice as large.
LOG_MESSAGES = 3_400_000
PULL = ("pull", "-conns", "4")


def _memory(scale: float) -> tuple[Load, ...]:
    send = ("send", *MANY, "-n", count(200_000, scale, 4))
    return (
        Load(send, {}, "pulled"),
        Load((*PULL, "-rounds", "3"), {"pull": "per_second"}, "pulled"),
    )


def _filtered(scale: float) -> tuple[Load, ...]:
    send = ("send", *MANY, "-rare", str(ONE_IN), "-n", count(200_000, scale, 400))
    pull = (*PULL, "-rounds", "3", "-sql", "rare = 'yes'")
    return (Load(send, {}, "filtered"), Load(pull, {"sql": "per_second"}, "filtered"))


def _catch_up(session: Session) -> Sequence[Figures]:
    with session.brokers() as pair, ExitStack() as limits:
        limited = True
        for contender in pair:
            memory = limits.enter_context(MemoryLimit(LIMIT, contender.broker.broker_name))
            if limited := limited and memory.set:
                memory.add(contender.broker.process.pid)
        send = ("send", *MANY, "-batch", "32", "-n", count(LOG_MESSAGES, session.scale, 128))
        for contender in pair:
            session.load(contender, "behind", 0, *send)
        if limited:
            session.note(
                f"catch-up: each broker had {LIMIT >> 30} GiB in a memory cgroup, page cache "
                "included"
            )
        else:
            session.note(
                "catch-up: there is no memory cgroup to be had, so the brokers were started again, "
                "and what the page cache had of their logs was dropped before each round"
            )

        def measure(contender: Contender, _turn: int) -> None:
            if not limited:
                contender.broker.process.terminate()
                assert contender.broker.store is not None
                evict(contender.broker.store)
                contender.restart()
            line = session.load(contender, "behind", 0, *PULL)
            contender.add("catch_up", line["per_second"])

        session.in_turn(pair, measure)
        return pair


PULLS = Workload(
    "pulls",
    (Measure("pull", "pulls of 32 from memory", "msg/s", Better.HIGHER, 1.8),),
    by_loads(_memory),
)
CATCH_UP = Workload(
    "catch-up",
    (
        Measure(
            "catch_up", "catch-up over a log larger than its memory", "msg/s", Better.HIGHER, 1.0
        ),
    ),
    _catch_up,
)
FILTERED = Workload(
    "sql-filter",
    (
        Measure(
            "sql", "pulls with an SQL92 filter, 1 % match, looked at", "msg/s", Better.HIGHER, 1.0
        ),
    ),
    by_loads(_filtered),
)
