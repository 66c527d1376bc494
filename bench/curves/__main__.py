"""Measure how rates and latencies change with a size, of this broker and the official one in turn.

`python -m bench.charts` draws the curves.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from bench import report
from bench.full.campaign import Row, add_options, run_all
from bench.stolen_time import StolenTime
from tests.interop.harness.official import Unavailable

from .brokers import CURVES
from .partitions import PARTITIONS

ROUNDS = 3


def main(argv: Sequence[str] | None = None) -> int:
    curves = {curve.name: curve for curve in (*CURVES, PARTITIONS)}
    parser = argparse.ArgumentParser(prog="python -m bench.curves", description=__doc__)
    add_options(parser, curves, ROUNDS)
    options = parser.parse_args(argv)
    console = Console()
    stolen = StolenTime()
    try:
        outcome = run_all({name: curve.rows for name, curve in curves.items()}, options, console)
    except Unavailable as missing:
        console.print(f"no benchmark: {missing}")
        return 1
    for row in outcome.rows:
        print(line(row))
    for note in outcome.notes:
        console.print(note)
    report.keep(
        outcome.rows, console, stolen, "curves-", directory=options.results,
        rounds=options.rounds, scale=options.scale, failed=outcome.failed, notes=outcome.notes,
    )  # fmt: skip
    return 1 if outcome.failed else 0


def line(row: Row) -> str:
    """One point, for the eye."""
    tail = "" if row["p99_us"] is None else f", p99 {row['p99_us']:,.0f} µs"
    return (
        f"{row['curve']}: {row['size']:,} {row['axis']}, {row['name']}: "
        f"{row['per_second']:,.0f} {row['unit']}{tail}"
    )


if __name__ == "__main__":
    sys.exit(main())
