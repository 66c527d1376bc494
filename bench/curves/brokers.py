"""Curves of both brokers: connections, bodies, queues, groups, and how much is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.contenders import Contender
from bench.full.footprint import brokers_on, sparse_store
from bench.full.workload import MANY, Session, count
from bench.starts import Case

from .curve import Curve, Points

PER_TOPIC = 8
#: Requests that are under way on all connections together, as far as there are so many.
IN_FLIGHT = 256
#: Bytes of bodies that are under way.
BYTES = 16 << 20
FAN_RATE = 1_000


def by_load(
    load_of: Callable[[int, float], tuple[str, ...]], *, same_topics: bool = False
) -> Callable[[Session, Sequence[int], Points], None]:
    """What measures one load of the generator, made for a size and a scale; with topics of its own
    in each round, or with the same ones again."""

    def measure(session: Session, sizes: Sequence[int], points: Points) -> None:
        with session.brokers() as pair:
            for size in sizes:
                run(session, pair, size, points)

    def run(session: Session, pair: Sequence[Contender], size: int, points: Points) -> None:
        def once(contender: Contender, turn: int) -> None:
            load = load_of(size, session.scale)
            line = session.load(contender, f"c{size}", 0 if same_topics else turn, *load)
            points.add(size, contender.name, line["per_second"], line["p99_us"])

        session.in_turn(pair, once)

    return measure


def _connections(connections: int, scale: float) -> tuple[str, ...]:
    depth = max(IN_FLIGHT // connections, 1)
    return (
        "send", "-conns", str(connections), "-inflight", str(depth),
        "-n", count(100_000, scale, connections),
    )  # fmt: skip


def _bodies(size: int, scale: float) -> tuple[str, ...]:
    depth = min(max(BYTES // size // 4, 1), 64)
    messages = min(100_000, (1 << 30) // size)
    return (
        "send", "-conns", "4", "-inflight", str(depth), "-size", str(size),
        "-n", count(messages, scale, 8),
    )  # fmt: skip


def _queues(queues: int, scale: float) -> tuple[str, ...]:
    topics, each = max(queues // PER_TOPIC, 1), min(queues, PER_TOPIC)
    spread = ("-topics", str(topics), "-queues", str(each))
    return ("send", *MANY, *spread, "-n", count(100_000, scale, 4))


def _groups(groups: int, scale: float) -> tuple[str, ...]:
    return (
        "fanout", "-groups", str(groups), "-rate", str(FAN_RATE),
        "-n", count(10 * FAN_RATE, scale, 50),
    )  # fmt: skip


def _stored(session: Session, sizes: Sequence[int], points: Points) -> None:
    """Single sends to brokers that have so many GB."""
    for gigabytes in sizes:
        made = sparse_store(session, Case(gigabytes, PER_TOPIC))
        with brokers_on(session, made, f"on-{gigabytes}") as pair:
            session.warm_up(pair)

            def once(contender: Contender, turn: int, gigabytes: int = gigabytes) -> None:
                send = ("send", *MANY, "-n", count(100_000, session.scale, 4))
                line = session.load(contender, "stored", turn, *send)
                points.add(gigabytes, contender.name, line["per_second"], line["p99_us"])

            session.in_turn(pair, once)


CURVES = (
    Curve(
        "connections", "single sends of 1 KiB, 256 in flight on all connections", "connections",
        "msg/s", (1, 4, 16, 64, 250, 1_000), by_load(_connections),
    ),
    Curve(
        "bodies", "single sends on 4 connections", "bytes of a body", "msg/s",
        (16, 128, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20), by_load(_bodies),
    ),
    Curve(
        "queues", "single sends of 1 KiB, spread over all queues", "queues", "msg/s",
        # With new ones each time, 30 thousand in all, the official broker stood still.
        (1, 8, 64, 512, 2_000, 10_000), by_load(_queues, same_topics=True),
    ),
    Curve(
        "groups", f"long polls of all groups, {FAN_RATE} messages/s sent", "groups",
        "delivered msg/s", (1, 5, 20, 50, 100), by_load(_groups),
    ),
    Curve(
        "stored", "single sends of 1 KiB to a broker with so much", "GB stored (sparse files)",
        "msg/s", (1, 5, 10, 50), _stored,
    ),
)  # fmt: skip
