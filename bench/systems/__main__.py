"""Measure this broker, NATS JetStream and Redis streams in turn, on the same two cores.

Messages of 1 KiB go to files on the disk: single ones with 64 in flight on each of 4 connections,
batches on as many connections, and one message at a time. A batch has 32 messages here; NATS has
its fast batches of 500, and Redis has none. A system that is not installed is left out.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from bench import report
from bench.clean_slate import clean_slate
from bench.stolen_time import StolenTime
from bench.work_directory import work_directory
from tests.interop.harness.official import Unavailable

from .comparison import Row, rows, table
from .loads import Load, Run, System
from .nats import Nats
from .pocketmq import Pocketmq
from .redis import Redis

CORES = 2
BUSY = 0.5  # load average from which on the figures are said to be doubtful


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.systems", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (3)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the message counts (1)")
    parser.add_argument("--keep", type=Path, help="keep stores and logs here, in a new directory")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    console = Console()
    stolen = StolenTime()
    busy = os.getloadavg()[0]
    keep_to_cores()
    runs: dict[str, dict[Load, list[Run]]] = {}
    with ExitStack() as cleanup:
        directory = cleanup.enter_context(work_directory("pocketmq-bench-", options.keep))
        systems = []
        for name, start in SYSTEMS.items():
            try:
                system = start(directory)
            except Unavailable as missing:
                console.print(f"{name} is left out: {missing}")
                continue
            cleanup.callback(system.stop)
            systems.append(system)
        # In turn, A B A B: what the machine does meanwhile then touches all alike.
        for turn in range(options.rounds):
            for load in Load:
                for system in systems:
                    clean_slate(options.scale, directory)
                    run = system.run(load, int(load.value * options.scale), turn)
                    if run is not None:
                        runs.setdefault(system.name, {}).setdefault(load, []).append(run)
            console.print(f"round {turn + 1} of {options.rounds} is done")
    found = rows(runs, Pocketmq.name, Nats.name)
    print(table(found))
    if busy > BUSY:
        console.print(
            f"the load average was {busy:.1f} when this began, so other work took its share: only "
            "the ratios mean something"
        )
    report.keep([as_dict(row, runs) for row in found], console, stolen, "systems-")
    return 0


SYSTEMS: dict[str, Callable[[Path], System]] = {
    Pocketmq.name: Pocketmq,
    Nats.name: Nats,
    Redis.name: Redis,
}


def keep_to_cores() -> None:
    """Bind this process, and so its children, to two processors, where the system can do that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])


def as_dict(row: Row, runs: dict[str, dict[Load, list[Run]]]) -> dict[str, object]:
    """The row and the single runs behind it, for the file of results."""
    return {
        **row._asdict(),
        "load": row.load.title,
        "aim": None if row.aim is None else f"{row.aim.better.value} {row.aim.ratio:g}",
        "reached": row.reached,
        "runs": runs[row.system][row.load],
    }


if __name__ == "__main__":
    sys.exit(main())
