"""What is measured, how it is read out of a run, and what it must reach."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

BROKER = "BROKER"
"""Stands for the name of the broker among the arguments of a load."""


class Better(Enum):
    """Which way a figure should go, as the comparison of a value with its target."""

    HIGHER = "≥"
    LOWER = "≤"

    @property
    def holds(self) -> Callable[[float, float], bool]:
        return operator.ge if self is Better.HIGHER else operator.le


@dataclass(frozen=True)
class Measure:
    """One line of the table.

    `target` is the ratio ours / official where `relative`, else ours in `unit`; None where
    nothing is promised yet.
    """

    key: str
    title: str
    unit: str
    better: Better
    target: float | None = None
    relative: bool = True


@dataclass(frozen=True)
class Load:
    """One run of the load generator and the figures taken from its line."""

    arguments: tuple[str, ...]
    figures: dict[str, str]  # measure key -> field of the generator's JSON line
    topic: str  # loads of the same topic read what the other wrote


MEASURES = (
    Measure("single", "single sends", "msg/s", Better.HIGHER, 1.5),
    Measure("single_binary", "single sends, binary headers", "msg/s", Better.HIGHER),
    Measure("batch", "sends in batches of 32", "msg/s", Better.HIGHER, 1.3),
    Measure("pull", "pulls of 32", "msg/s", Better.HIGHER, 1.2),
    Measure("pop", "pops of 32, each message acknowledged", "msg/s", Better.HIGHER, 1.0),
    Measure("one_p50", "one at a time, p50", "µs", Better.LOWER, 0.7),
    Measure("one_p99", "one at a time, p99", "µs", Better.LOWER),
    Measure("clients", "64 clients, one at a time each", "msg/s", Better.HIGHER),
    Measure("poll_p50", "send to long poll, p50", "µs", Better.LOWER),
    Measure("poll_p99", "send to long poll, p99", "µs", Better.LOWER),
    Measure("start", "start to listening", "s", Better.LOWER, 0.5, relative=False),
    Measure("idle_rss", "resident, idle", "MB", Better.LOWER, 80.0, relative=False),
)


def loads(scale: float) -> tuple[Load, ...]:
    """The runs of one round; `scale` multiplies the message counts."""

    def count(messages: int) -> str:
        return str(int(messages * scale))

    many = ("-conns", "4", "-inflight", "64")
    return (
        Load(("send", *many, "-n", count(200_000)), {"single": "per_second"}, "single"),
        Load(("pull", "-conns", "4", "-rounds", "2"), {"pull": "per_second"}, "single"),
        Load(("pop", "-conns", "4", "-broker", BROKER), {"pop": "per_second"}, "single"),
        Load(
            ("send", *many, "-n", count(200_000), "-binary"),
            {"single_binary": "per_second"},
            "binary",
        ),
        Load(("send", *many, "-n", count(384_000), "-batch", "32"), {"batch": "per_second"}, "b"),
        Load(
            ("send", "-conns", "1", "-inflight", "1", "-n", count(10_000)),
            {"one_p50": "p50_us", "one_p99": "p99_us"},
            "one",
        ),
        Load(
            ("send", "-conns", "64", "-inflight", "1", "-n", count(100_000)),
            {"clients": "per_second"},
            "clients",
        ),
        Load(
            ("delay", "-n", count(1_500), "-rate", "500"),
            {"poll_p50": "p50_us", "poll_p99": "p99_us"},
            "delay",
        ),
    )
