"""Latencies at an offered rate: with a thousand connections, and of a long run whose tail counts.

They count from when a message was due, so a stall is charged to all messages that it kept waiting.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.contenders import Contender, Figures
from bench.generator import LONGEST
from bench.measures import Better, Load, Measure
from bench.stolen_time import StolenTime

from .bare_writer import BareWriter, longest_own
from .workload import MANY, Session, Workload, by_loads, count

CONNECTIONS = 1_000
RATE = 20_000
SECONDS = 30

TAIL_MINUTES = 10
BEHIND = 200_000  # messages between the end of the log and a reader
BURST = 2_000_000
#: Files of the log roll every few seconds, and are removed as soon as they are full.
HARD_LIFE = {
    "mappedFileSizeCommitLog": 256 << 20,
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "fileReservedTime": 0,
}


def _connections(scale: float) -> tuple[Load, ...]:
    connections = max(int(CONNECTIONS * min(scale, 1.0)), 10)
    rate = max(int(RATE * min(scale, 1.0)), 200)
    seconds = max(int(SECONDS * scale), 1)
    return (
        Load(
            ("offer", "-conns", str(connections), "-rate", str(rate), "-n", str(rate * seconds)),
            {"offered_p50": "p50_us", "offered_p99": "p99_us", "offered_p999": "p999_us"},
            "offered",
        ),
    )


def _tails(session: Session) -> Sequence[Figures]:
    scale = session.scale
    with session.brokers(HARD_LIFE) as pair:
        maxima = []
        for contender in pair:
            sends = ("send", *MANY, "-n", count(200_000, scale, 400))
            maxima.append(float(session.load(contender, "maximum", 0, *sends)["per_second"]))
        rate = max(int(min(maxima) / 2), 100)
        session.note(f"tails: {rate} messages/s, half of the lower maximum, for each broker")
        for contender in pair:
            _tail(session, contender, rate)
        session.in_turn(pair, lambda contender, turn: _burst(session, contender, turn))
        return pair


def _tail(session: Session, contender: Contender, rate: int) -> None:
    """One long run, with everything that a broker does besides."""
    seconds = max(int(TAIL_MINUTES * 60 * session.scale), 2)
    behind = count(BEHIND, min(session.scale, 1.0), 100)
    stolen = StolenTime()
    with BareWriter(session.directory) as bare:
        line = session.generator.run(
            contender.broker.address, "tail", "offer", "-conns", "4", "-rate", str(rate),
            "-n", str(rate * seconds), "-behind", behind, longest=seconds + LONGEST,
        )  # fmt: skip
    contender.refused += line["failed"]
    contender.add("tail_p50", line["p50_us"] / 1000)
    contender.add("tail_p999", line["p999_us"] / 1000)
    contender.add("stall", line["max_us"] / 1000)
    contender.add("own_stall", longest_own(line["stalls_us"], bare.gaps) / 1000)
    session.note(
        f"tails: {contender.name} ran {seconds} s; a reader {behind} messages behind read "
        f"{line['delivered']}; the longest stall of a bare writer beside it was "
        f"{max((end - begin for begin, end in bare.gaps), default=0) / 1000:.0f} ms; "
        f"{stolen.percent or 0:.1f} % of the processors' time was stolen"
    )


def _burst(session: Session, contender: Contender, turn: int) -> None:
    """A burst that the index has not caught up with, and at once one message at a time."""
    scale = session.scale
    session.load(
        contender, "burst", turn, "send", *MANY, "-batch", "32", "-n", count(BURST, scale, 128)
    )
    one = ("send", "-conns", "1", "-inflight", "1", "-n", count(10_000, scale, 10))
    contender.add("burst_p50", session.load(contender, "after", turn, *one)["p50_us"])


OFFERED = Workload(
    "connections",
    (
        Measure("offered_p50", "1,000 connections, 20 thousand msg/s, p50", "µs", Better.LOWER),
        Measure(
            "offered_p99", "1,000 connections, 20 thousand msg/s, p99", "µs", Better.LOWER, 0.5
        ),
        Measure(
            "offered_p999", "1,000 connections, 20 thousand msg/s, p99.9", "µs", Better.LOWER, 0.5
        ),
    ),
    by_loads(_connections),
)
TAILS = Workload(
    "tails",
    (
        Measure("tail_p50", "half of the maximum rate, p50", "ms", Better.LOWER),
        Measure("tail_p999", "half of the maximum rate, p99.9", "ms", Better.LOWER, 0.5),
        Measure("stall", "half of the maximum rate, longest stall", "ms", Better.LOWER, 0.5),
        Measure(
            "own_stall",
            "the same, without stalls of a bare writer",
            "ms",
            Better.LOWER,
            50.0,
            relative=False,
        ),
        Measure("burst_p50", "one at a time after two million, p50", "µs", Better.LOWER, 0.5),
    ),
    _tails,
)
