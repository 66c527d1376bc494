"""Compare the ways to choose a queue: simulated, or with `--processes` on real brokers as well."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.work_directory import work_directory
from tests.interop.harness.official import PROJECT

from .figures import Figures, figures
from .processes import measure, process_scenarios
from .scenarios import Scenario, scenarios
from .simulation import simulate
from .traffic import Contender

Row = tuple[str, str, Contender, Figures]
HEADING = (
    "scenario", "", "rules", "p50 ms", "p99 ms", "p999 ms",
    "sends to a dead broker, %", "failed", "of them savable", "full use after s",
)  # fmt: skip


#: Seconds that a scenario needs at least: simulated, the restarts would run into one another.
SHORTEST, SHORTEST_REAL = 24.0, 6.0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.selector", description=__doc__)
    parser.add_argument(
        "--length",
        type=float,
        help=f"seconds of a scenario (60, at least {SHORTEST:g}; "
        f"with --processes 18, at least {SHORTEST_REAL:g})",
    )
    parser.add_argument("--rate", type=float, default=250, help="sends a second of a client (250)")
    parser.add_argument("--seed", type=int, default=63, help="decides when sends begin (63)")
    parser.add_argument("--processes", action="store_true", help="on real brokers as well")
    options = parser.parse_args()
    if options.length is None:
        options.length = 18.0 if options.processes else 60.0
    shortest = SHORTEST_REAL if options.processes else SHORTEST
    if options.length < shortest:
        parser.error(f"--length must be at least {shortest:g}")
    return options


def main() -> None:
    options = arguments()
    console = Console()
    load = {"rate": options.rate, "seed": options.seed}
    rows: list[Row] = []

    def add(scenario: Scenario, how: str, contender: Contender, found: Figures) -> None:
        rows.append((scenario.name, how, contender, found))
        console.print(f"{scenario.name}, {how}, {contender}: p99 {found.p99:,.1f} ms")

    if options.processes:
        with work_directory("pocketmq-selector-") as directory:
            for scenario in process_scenarios(options.length):
                for contender in Contender:
                    run = simulate(scenario, contender, **load)
                    add(scenario, "simulated", contender, figures(run))
                    run = asyncio.run(measure(scenario, contender, directory, **load))
                    add(scenario, "real", contender, figures(run))
    else:
        for scenario in scenarios(options.length):
            for contender in Contender:
                add(
                    scenario, "simulated", contender, figures(simulate(scenario, contender, **load))
                )
    show(rows, console)
    console.print(f"written to {write(rows, PROJECT / 'bench' / 'results')}")


def show(rows: Sequence[Row], console: Console) -> None:
    """Print the table, as markdown where the output is not a terminal."""
    lines = [
        (
            scenario,
            how,
            str(contender),
            *(f"{value:,.1f}" for value in (found.p50, found.p99, found.p999)),
            "–" if found.bad_share is None else f"{found.bad_share:.2f}",
            str(found.failed),
            str(found.lost),
            "–" if found.recovery is None else f"{found.recovery:.1f}",
        )
        for scenario, how, contender, found in rows
    ]
    if not console.is_terminal:
        print(f"| {' | '.join(HEADING)} |")
        print(f"|{'---|' * len(HEADING)}")
        for line in lines:
            print(f"| {' | '.join(line)} |")
        return
    table = Table(*HEADING, title="queue selection")
    for line in lines:
        table.add_row(*line, style="bold" if line[2] == Contender.OURS else None)
    console.print(table)


def write(rows: Sequence[Row], directory: Path) -> Path:
    """Keep the figures as JSON; returns the file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"selector-{time.strftime('%Y%m%d-%H%M%S')}.json"
    content = [
        {"scenario": scenario, "how": how, "rules": str(contender), **asdict(found)}
        for scenario, how, contender, found in rows
    ]
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


if __name__ == "__main__":
    main()
