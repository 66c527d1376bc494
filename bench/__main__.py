"""Measure our broker and the official one in turn and print the comparison."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from tests.interop.harness.official import Unavailable

from . import contenders, report
from .clean_slate import clean_slate
from .clients.comparison import MEASURES, compare
from .contenders import Contender
from .generator import LoadGenerator
from .measures import loads
from .rounds import run_load
from .stolen_time import StolenTime
from .work_directory import work_directory

WARM_UP = 500_000


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="how often each is measured (2)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the message counts (1)")
    parser.add_argument(
        "--clients", action="store_true", help="measure our client and the Java client instead"
    )
    parser.add_argument("--no-official", action="store_true", help="measure only ours")
    parser.add_argument("--keep", type=Path, help="keep stores and logs here, in a new directory")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args()
    if options.clients and options.no_official:
        parser.error("--clients needs the official client: not with --no-official")
    return options


def main() -> int:
    options = arguments()
    console = Console()
    stolen = StolenTime()
    with ExitStack() as cleanup:
        directory = cleanup.enter_context(work_directory("pocketmq-bench-", options.keep))
        if options.clients:
            return measure_clients(directory, console, options, stolen)
        try:
            generator = LoadGenerator.build(directory)
        except Unavailable as missing:
            console.print(f"no benchmark: {missing}")
            return 1
        official = None if options.no_official else start_official(directory, console)
        if official:
            cleanup.callback(official.stop)
            official.measure_idle()
            warm = int(WARM_UP * options.scale)
            console.print(f"{official.name}: warming up with {warm} sends")
            contenders.warm_up(official, generator, warm)
        ours = contenders.start_ours(directory)
        cleanup.callback(ours.stop)
        ours.measure_idle()
        for _ in range(2):  # A start takes a moment; one alone would say little.
            ours.restart()
        # In turn, A B A B: what the machine does meanwhile then touches both alike.
        for turn in range(options.rounds):
            for contender in filter(None, (official, ours)):
                console.print(f"{contender.name}: round {turn + 1} of {options.rounds}")
                measure(contender, generator, turn, options.scale, directory)
    found = report.rows(ours, official)
    report.show(found, console)
    for contender in filter(None, (official, ours)):
        if contender.refused:
            console.print(f"{contender.name} refused {contender.refused} messages as too busy")
    report.keep(found, console, stolen)
    return _status(found, options.check)


def measure_clients(
    directory: Path, console: Console, options: argparse.Namespace, stolen: StolenTime
) -> int:
    try:
        ours, official = compare(directory, console, rounds=options.rounds, scale=options.scale)
    except Unavailable as missing:
        console.print(f"no benchmark: {missing}")
        return 1
    found = report.rows(ours, official, MEASURES)
    report.show(found, console)
    for client in ours, official:
        if client.failed:
            console.print(f"{client.name}: {client.failed} sends failed")
    report.keep(found, console, stolen, "clients-")
    return _status(found, options.check)


def _status(found: list[dict[str, object]], check: bool) -> int:
    return 1 if check and report.missed(found) else 0


def start_official(directory: Path, console: Console) -> Contender | None:
    try:
        return contenders.start_official(directory)
    except Unavailable as missing:
        console.print(f"only ours is measured: {missing}")
        return None


def measure(
    contender: Contender, generator: LoadGenerator, turn: int, scale: float, directory: Path
) -> None:
    """One round: every load once, on topics of this round; the stores lie in `directory`."""
    for load in loads(scale):
        clean_slate(scale, directory)
        run_load(contender, generator, load, turn)


if __name__ == "__main__":
    sys.exit(main())
