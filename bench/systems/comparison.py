"""What the figures of several systems mean: middles, ratios, and whether an aim is reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from bench.measures import Better

from .loads import Load, Run

Runs = Mapping[str, Mapping[Load, Sequence[Run]]]
"""The runs of each system by its name, and of each of its loads."""


class Aim(NamedTuple):
    """What ours ÷ theirs must be."""

    ratio: float
    better: Better


#: The aims of ours beside NATS JetStream. One at a time counts by p50, the others by messages/s.
AIMS = {
    Load.SINGLE: Aim(1.0, Better.HIGHER),
    Load.BATCH: Aim(2.0, Better.HIGHER),
    Load.ONE: Aim(0.8, Better.LOWER),
}


class Row(NamedTuple):
    """One system under one load. `ratio` is ours ÷ theirs, of the medians: of p50 for one at a
    time, else of messages/s; None for ours, and where ours is missing."""

    load: Load
    system: str
    per_second: float
    least_per_second: float
    p50: float
    least_p50: float
    ratio: float | None
    aim: Aim | None

    @property
    def reached(self) -> bool | None:
        """Whether the aim is reached; None without one."""
        if self.aim is None or self.ratio is None:
            return None
        return self.aim.better.holds(self.ratio, self.aim.ratio)


def rows(runs: Runs, ours: str, aimed_at: str) -> list[Row]:
    """Compare the system named `ours` with each other one under each load; the aims are beside
    the system `aimed_at`."""
    found = []
    for load in Load:
        own = runs.get(ours, {}).get(load, ())
        for system, measured in runs.items():
            if not (theirs := measured.get(load)):
                continue
            found.append(
                Row(
                    load,
                    system,
                    median(run.per_second for run in theirs),
                    min(run.per_second for run in theirs),
                    median(run.p50 for run in theirs),
                    min(run.p50 for run in theirs),
                    None if system == ours or not own else _ratio(load, own, theirs),
                    AIMS[load] if system == aimed_at else None,
                )
            )
    return found


def _ratio(load: Load, ours: Sequence[Run], theirs: Sequence[Run]) -> float:
    if load is Load.ONE:
        return median(run.p50 for run in ours) / median(run.p50 for run in theirs)
    return median(run.per_second for run in ours) / median(run.per_second for run in theirs)


def table(found: Sequence[Row]) -> str:
    """The rows as a table in markdown."""
    heading = (
        "", "system", "msg/s, median", "msg/s, least", "p50 µs, median", "p50 µs, least",
        "pocketmq ÷ it", "aim", "reached",
    )  # fmt: skip
    lines = [heading, ("---",) * len(heading)]
    for row in found:
        reached = row.reached
        lines.append(
            (
                row.load.title,
                row.system,
                f"{row.per_second:,.0f}",
                f"{row.least_per_second:,.0f}",
                f"{row.p50:,.0f}",
                f"{row.least_p50:,.0f}",
                "" if row.ratio is None else f"{row.ratio:.2f}",
                "" if row.aim is None else f"{row.aim.better.value} {row.aim.ratio:g}",
                "" if reached is None else "yes" if reached else "no",
            )
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
