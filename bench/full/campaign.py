"""One run of many things: its options, and how it goes on when one of them fails."""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from bench import report
from bench.generator import LoadGenerator
from bench.work_directory import work_directory
from tests.interop.harness import official
from tests.interop.harness.official import Unavailable
from tests.interop.harness.process import ProcessFailed, killed_at_the_end

from .workload import Session

__all__ = ["Outcome", "Row", "add_options", "run_all"]

SHORT_ROUNDS = 2
SHORT_SCALE = 0.1

Row = dict[str, object]


@dataclass
class Outcome:
    """The rows of everything that was measured, the errors of what was not, and notes."""

    rows: list[Row] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def add_options(parser: argparse.ArgumentParser, names: Iterable[str], rounds: int) -> None:
    """Add what all such runs have; `rounds` is the default."""
    names = list(names)
    parser.epilog = f"names: {' '.join(names)}"
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", choices=names, default=names, help="measure only these"
    )
    parser.add_argument(
        "--rounds", type=int, default=rounds, help=f"how often each is measured ({rounds})"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor of counts and durations (1)"
    )
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


def run_all(
    things: Mapping[str, Callable[[Session], list[Row]]],
    options: argparse.Namespace,
    console: Console,
) -> Outcome:
    """Measure each of `options.only`. Raises Unavailable where the load generator's needs are
    missing."""
    if options.short:
        options.rounds, options.scale = SHORT_ROUNDS, SHORT_SCALE
    # A broker with a thousand connections and ten thousand queues needs more than 1,024.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with_official = not options.no_official and _official_is_there(console)
    outcome = Outcome()
    with work_directory("pocketmq-full-", options.keep) as directory:
        generator = LoadGenerator.build(directory)
        for name in options.only:
            home = directory / name
            home.mkdir()
            session = Session(
                home, generator, console, options.rounds, options.scale, with_official
            )
            begin = time.monotonic()
            try:
                with killed_at_the_end():
                    outcome.rows += things[name](session)
            except (RuntimeError, OSError, ProcessFailed, subprocess.SubprocessError) as error:
                outcome.failed[name] = str(error)
                console.print(f"{name} failed: {str(error)[-2000:]}")
            else:
                console.print(f"{name}: {time.monotonic() - begin:.0f} s")
            outcome.notes += session.notes
            if not options.keep:
                shutil.rmtree(home, ignore_errors=True)
    return outcome


def _official_is_there(console: Console) -> bool:
    try:
        official.jars()
    except Unavailable as missing:
        console.print(f"only ours is measured: {missing}")
        return False
    return True
