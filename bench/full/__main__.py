"""Measure this broker and the official one in everything that has an aim.

Each workload has brokers of its own, which are measured in turn; the official one is warmed up. The
ratios of the medians count. A workload that fails is reported, and the others go on. What Spark's
rows need and is not there is noted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial

from rich.console import Console

from bench import report
from bench.stolen_time import StolenTime
from tests.interop.harness.official import Unavailable

from .campaign import Row, add_options, run_all
from .catalogue import WORKLOADS
from .workload import Session, Workload

ROUNDS = 5


def main(argv: Sequence[str] | None = None, workloads: Mapping[str, Workload] = WORKLOADS) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.full", description=__doc__)
    add_options(parser, workloads, ROUNDS)
    parser.add_argument("--check", action="store_true", help="exit 1 when an aim is missed")
    options = parser.parse_args(argv)
    console = Console()
    stolen = StolenTime()
    things = {name: partial(measured, workload) for name, workload in workloads.items()}
    try:
        outcome = run_all(things, options, console)
    except Unavailable as missing:
        console.print(f"no benchmark: {missing}")
        return 1
    report.show(outcome.rows, console)
    for note in outcome.notes:
        console.print(note)
    missed = report.missed(outcome.rows)
    console.print(f"missed: {'; '.join(missed) or 'nothing'}")
    if outcome.failed:
        console.print(f"failed: {', '.join(outcome.failed)}")
    report.keep(
        outcome.rows, console, stolen, "full-", directory=options.results, rounds=options.rounds,
        scale=options.scale, failed=outcome.failed, notes=outcome.notes,
    )  # fmt: skip
    return 1 if outcome.failed or (options.check and missed) else 0


def measured(workload: Workload, session: Session) -> list[Row]:
    """The rows of a workload, each with its name."""
    ours, *others = workload.run(session)
    rows = report.rows(ours, others[0] if others else None, workload.measures)
    for each in (ours, *others):
        if refused := getattr(each, "refused", 0):
            session.note(f"{workload.name}: {each.name} refused {refused} messages as too busy")
    return [{"workload": workload.name, **row} for row in rows]


if __name__ == "__main__":
    sys.exit(main())
