"""What requests cost a broker that it has to refuse, in CPU time of good ones."""

from __future__ import annotations

from collections.abc import Sequence

from bench.contenders import Contender, Figures
from bench.measures import Better, Measure
from bench.processes import cpu_seconds

from .workload import MANY, Session, Workload, count

REQUESTS = 200_000
CONNECTIONS = 5_000
TICK = 0.01  # The least that can be told of CPU time, seconds.

#: Kinds of the generator, each with the good one that it is compared with.
BAD = {"unknown": "send", "queue": "send", "topic": "send", "frame": "connect"}


def _run(session: Session) -> Sequence[Figures]:
    scale = session.scale

    def cost(contender: Contender, kind: str, turn: int) -> float:
        """CPU seconds of a request."""
        if kind == "send":
            arguments: tuple[str, ...] = ("send", *MANY, "-n", count(REQUESTS, scale, 400))
        elif BAD.get(kind) == "send":
            arguments = ("refused", "-kind", kind, *MANY, "-n", count(REQUESTS, scale, 400))
        else:
            connections = count(CONNECTIONS, scale, 40)
            arguments = ("refused", "-kind", kind, "-conns", "4", "-n", connections)
        begin = cpu_seconds(contender.broker.process.pid)
        line = session.load(contender, "good-or-bad", turn, *arguments)
        used = cpu_seconds(contender.broker.process.pid) - begin
        return max(used, TICK) / int(line["messages"])

    def measure(contender: Contender, turn: int) -> None:
        good = {kind: cost(contender, kind, turn) for kind in set(BAD.values())}
        contender.add("good_cost", good["send"] * 1e6)
        for bad, kind in BAD.items():
            contender.add(f"bad_{bad}", cost(contender, bad, turn) / good[kind])

    with session.brokers() as pair:
        session.in_turn(pair, measure)
        return pair


def _measure(key: str, title: str) -> Measure:
    return Measure(f"bad_{key}", title, "×", Better.LOWER, 1.0, relative=False)


BAD_INPUT = Workload(
    "bad-input",
    (
        Measure("good_cost", "broker's CPU for a good send", "µs", Better.LOWER),
        _measure("unknown", "an unknown code ÷ a good send, CPU"),
        _measure("queue", "a queue that is not there ÷ a good send, CPU"),
        _measure("topic", "a topic with a wrong name ÷ a good send, CPU"),
        _measure("frame", "a frame that is too long ÷ a good send, both on a new connection, CPU"),
    ),
    _run,
)
