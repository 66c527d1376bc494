"""Measure this broker and the official one in everything that has an aim.

Each workload has brokers of its own, which are measured in turn; the official one is warmed up. The
ratios of the medians count. A workload that fails is reported, and the others go on. The rows of
Spark are measured by bench.scan and bench.kafka.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from bench import report
from bench.generator import LoadGenerator
from bench.stolen_time import StolenTime
from bench.work_directory import work_directory
from tests.interop.harness import official
from tests.interop.harness.official import Unavailable
from tests.interop.harness.process import ProcessFailed, killed_at_the_end

from .catalogue import WORKLOADS
from .workload import Session, Workload

SHORT_ROUNDS = 2
SHORT_SCALE = 0.1


def arguments(argv: Sequence[str] | None, workloads: Mapping[str, Workload]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.full", description=__doc__, epilog=f"workloads: {' '.join(workloads)}"
    )
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", choices=workloads, help="measure only these workloads"
    )
    parser.add_argument("--rounds", type=int, help="how often each is measured (5)")
    parser.add_argument("--scale", type=float, help="factor of counts and durations (1)")
    parser.add_argument(
        "--short",
        action="store_true",
        help=f"--rounds {SHORT_ROUNDS} --scale {SHORT_SCALE}, to see that all of it works",
    )
    parser.add_argument("--no-official", action="store_true", help="measure only ours")
    parser.add_argument("--keep", type=Path, help="keep stores and logs here, in a new directory")
    parser.add_argument(
        "--results", type=Path, default=report.RESULTS, help="where the figures go (bench/results)"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 when an aim is missed")
    options = parser.parse_args(argv)
    options.rounds = options.rounds or (SHORT_ROUNDS if options.short else 5)
    options.scale = options.scale or (SHORT_SCALE if options.short else 1.0)
    return options


def main(argv: Sequence[str] | None = None, workloads: Mapping[str, Workload] = WORKLOADS) -> int:
    options = arguments(argv, workloads)
    console = Console()
    stolen = StolenTime()
    # A broker with a thousand connections and ten thousand queues needs more than 1,024.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with_official = not options.no_official and _official_is_there(console)
    found: list[dict[str, object]] = []
    failed: dict[str, str] = {}
    notes: list[str] = []
    with work_directory("pocketmq-full-", options.keep) as directory:
        try:
            generator = LoadGenerator.build(directory)
        except Unavailable as missing:
            console.print(f"no benchmark: {missing}")
            return 1
        for name in options.only or workloads:
            home = directory / name
            home.mkdir()
            session = Session(
                home, generator, console, options.rounds, options.scale, with_official
            )
            begin = time.monotonic()
            try:
                with killed_at_the_end():
                    found += measured(workloads[name], session)
            except (RuntimeError, OSError, ProcessFailed, subprocess.SubprocessError) as error:
                failed[name] = str(error)
                console.print(f"{name} failed: {str(error)[-2000:]}")
            else:
                console.print(f"{name}: {time.monotonic() - begin:.0f} s")
            notes += session.notes
            if not options.keep:
                shutil.rmtree(home, ignore_errors=True)
    report.show(found, console)
    for note in notes:
        console.print(note)
    missed = report.missed(found)
    console.print(f"missed: {', '.join(missed) or 'nothing'}")
    if failed:
        console.print(f"failed: {', '.join(failed)}")
    report.keep(
        found, console, stolen, "full-", rounds=options.rounds, scale=options.scale,
        failed=failed, notes=notes, directory=options.results,
    )  # fmt: skip
    return 1 if failed or (options.check and missed) else 0


def measured(workload: Workload, session: Session) -> list[dict[str, object]]:
    """The rows of a workload, each with its name."""
    ours, *others = workload.run(session)
    rows = report.rows(ours, others[0] if others else None, workload.measures)
    for each in (ours, *others):
        if refused := getattr(each, "refused", 0):
            session.note(f"{workload.name}: {each.name} refused {refused} messages as too busy")
    return [{"workload": workload.name, **row} for row in rows]


def _official_is_there(console: Console) -> bool:
    try:
        official.jars()
    except Unavailable as missing:
        console.print(f"only ours is measured: {missing}")
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
