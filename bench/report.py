"""The table of a benchmark and its file."""

from __future__ import annotations

import json
import os
import platform
import sysconfig
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pocketmq._accelerator import accelerator_state
from tests.interop.harness.official import PROJECT

from .contenders import Figures
from .measures import MEASURES, Measure
from .stolen_time import StolenTime

#: Where the files of figures are; not part of the repository.
RESULTS = PROJECT / "bench" / "results"


def verdict(measure: Measure, value: float | None, ratio: float | None) -> str:
    """'yes' or 'no' against the target, '' where there is none or nothing to compare."""
    figure = ratio if measure.relative else value
    if measure.target is None or figure is None:
        return ""
    return "yes" if measure.better.holds(figure, measure.target) else "no"


def rows(
    ours: Figures, official: Figures | None, measures: Sequence[Measure] = MEASURES
) -> list[dict[str, object]]:
    """One dict per measure: the values, their ratio, the target and whether it holds."""
    found: list[dict[str, object]] = []
    for measure in measures:
        value = ours.middle(measure.key)
        other = official.middle(measure.key) if official else None
        ratio = value / other if value is not None and other else None
        found.append(
            {
                "key": measure.key,
                "title": measure.title,
                "unit": measure.unit,
                "ours": value,
                "official": other,
                "ratio": ratio,
                "target": _target(measure),
                "holds": verdict(measure, value, ratio),
                "runs": {
                    contender.name: contender.figures.get(measure.key, [])
                    for contender in (ours, official)
                    if contender
                },
            }
        )
    return found


def _target(measure: Measure) -> str:
    if measure.target is None:
        return ""
    unit = "×" if measure.relative else f" {measure.unit}"
    return f"{measure.better.value} {measure.target:g}{unit}"


def _figure(value: object) -> str:
    if not isinstance(value, float):
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


_HEADING = ("", "unit", "pocketmq", "official", "ratio", "target", "reached")


def _cells(row: Mapping[str, object]) -> tuple[str, ...]:
    return (
        str(row["title"]),
        str(row["unit"]),
        _figure(row["ours"]),
        _figure(row["official"]),
        _figure(row["ratio"]),
        str(row["target"]),
        str(row["holds"]),
    )


def table(found: Sequence[Mapping[str, object]]) -> list[str]:
    """The lines of the table in markdown."""
    return [
        f"| {' | '.join(_HEADING)} |",
        f"|{'---|' * len(_HEADING)}",
        *(f"| {' | '.join(_cells(row))} |" for row in found),
    ]


def show(found: Sequence[Mapping[str, object]], console: Console) -> None:
    """Print the table, as markdown where the output is not a terminal."""
    if not console.is_terminal:
        print(*table(found), sep="\n")
        return
    shown = Table(
        *_HEADING, title="1 KiB bodies, 4 queues unless said; ratio = pocketmq / official"
    )
    for row in found:
        style = {"yes": "green", "no": "red"}.get(str(row["holds"]))
        shown.add_row(*_cells(row), style=style)
    console.print(shown)


def missed(found: Sequence[Mapping[str, object]]) -> list[str]:
    """The titles of the rows that do not reach their targets."""
    return [str(row["title"]) for row in found if row["holds"] == "no"]


def keep(
    found: Sequence[Mapping[str, object]],
    console: Console,
    stolen: StolenTime,
    prefix: str = "",
    *,
    directory: Path = RESULTS,
    **more: object,
) -> None:
    """Write the figures of every run as JSON to `directory`, into a file whose name begins with
    `prefix`, with `more` beside them, and say so; and how much of the machine's time was `stolen`
    meanwhile, if it was much."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{prefix}{time.strftime('%Y%m%d-%H%M%S')}.json"
    optimised = _optimised()
    machine = {
        "processors": os.cpu_count(),
        "processor": _processor(),
        "python": platform.python_version(),
        "python_optimised": optimised,
        "accelerator": accelerator_state() == "compiled",
        "system": platform.platform(),
        "machine": platform.machine(),
        "stolen_percent": stolen.percent,
    }
    path.write_text(json.dumps({"machine": machine, **more, "measures": found}, indent=1) + "\n")
    if (warning := stolen.warning()) is not None:
        console.print(warning)
    if optimised is False:
        console.print(
            "this Python does not say that it was built with profile-guided optimisation (Debian's "
            "was, and does not): with it, pocketmq is a sixth quicker"
        )
    if not machine["accelerator"]:
        console.print("without the accelerator; `make accelerator` compiles it")
    console.print(f"written to {path}")


def _processor() -> str | None:
    """What Linux calls it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return None


def _optimised() -> bool | None:
    """Whether Python was built with profile-guided optimisation; None where it does not tell."""
    arguments = sysconfig.get_config_var("CONFIG_ARGS")
    return None if arguments is None else "--enable-optimizations" in arguments
