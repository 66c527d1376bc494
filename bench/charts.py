"""Draw the newest figures: `python -m bench.charts`.

It reads what `bench.full` and `bench.curves` wrote to bench/results last, writes SVG files into
docs/images, and puts tables and images between the markers in docs/benchmarks.md. The same figures
give the same files, byte for byte.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.contenders import OURS
from bench.report import RESULTS, table
from tests.interop.harness.official import PROJECT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["between_markers", "main", "newest"]

PAGE = PROJECT / "docs" / "benchmarks.md"
IMAGES = PROJECT / "docs" / "images"

#: Colours that people see differently who see few, and markers for the rest.
STYLES = {True: ("#0072b2", "o"), False: ("#d55e00", "s")}
MISSED, PLAIN = "#d55e00", "#0072b2"

#: The aim of a ratio, as bench.report spells it.
RATIO = "[≥≤] ([0-9.]+)×"

Result = Mapping[str, Any]
Row = Mapping[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.charts", description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="(bench/results)")
    parser.add_argument("--page", type=Path, default=PAGE, help="(docs/benchmarks.md)")
    parser.add_argument("--images", type=Path, default=IMAGES, help="(docs/images)")
    options = parser.parse_args(argv)
    text = options.page.read_text()
    options.images.mkdir(parents=True, exist_ok=True)
    drawn = 0
    for name, part in (("full", full), ("curves", curves)):
        result = newest(options.results, name)
        if result is None:
            print(f"no figures of bench.{name} in {options.results}")
            continue
        lines = [said(result), "", *part(result, options.images)]
        text = between_markers(text, f"bench.{name}", "\n".join(lines))
        drawn += 1
    options.page.write_text(text)
    return 0 if drawn else 1


def newest(results: Path, name: str) -> Result | None:
    """The last result whose file begins with `name`, if there is one: names end in the time."""
    paths = sorted(results.glob(f"{name}-*.json"))
    if not paths:
        return None
    result: Result = json.loads(paths[-1].read_text())
    return result


def said(result: Result) -> str:
    """Where the figures come from."""
    machine = result["machine"]
    optimised = {
        True: "built with profile-guided optimisation",
        False: "that does not say that it was built with profile-guided optimisation",
        None: "of unknown build",
    }[machine["python_optimised"]]
    accelerator = "with" if machine["accelerator"] else "without"
    scale = "" if result["scale"] == 1 else f", at {result['scale']:g} of the usual counts"
    return (
        f"Medians of {result['rounds']} rounds{scale}, on {machine['processors']} processors "
        f"({machine['processor'] or machine['machine']}), Python {machine['python']} {optimised}, "
        f"{accelerator} the accelerator."
    )


def between_markers(text: str, name: str, content: str) -> str:
    """The text with other content between its markers of a name.

    Raises:
        ValueError: it does not have them.
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"there is no {begin} with {end} behind it")
    return pattern.sub(lambda _: f"{begin}\n\n{content}\n\n{end}", text)


# The full run


def full(result: Result, images: Path) -> Iterator[str]:
    """Draw the ratios; yield the lines of the page."""
    rows: Sequence[Row] = result["measures"]
    # Other aims are in a unit.
    if rated := [row for row in rows if row["ratio"] and re.fullmatch(RATIO, row["target"])]:
        save(ratios(rated), images / "bench-full.svg")
        yield "![Ratios to the official broker, with the aims](images/bench-full.svg)"
        yield ""
    yield from table(rows)
    for name, error in result["failed"].items():
        yield f"\n{name} could not be measured: {error.splitlines()[0]}"
    if result["notes"]:
        yield ""
        yield from (f"- {note}" for note in result["notes"])


def ratios(rows: Sequence[Row]) -> Figure:
    """A bar for the ratio of each row, from 1 to the side, and its aim as a line."""
    figure = new_figure(8, 1 + 0.3 * len(rows))
    axes = figure.subplots()
    for number, row in enumerate(rows):
        ratio = row["ratio"]
        colour = MISSED if row["holds"] == "no" else PLAIN
        axes.barh(number, ratio - 1, left=1, height=0.6, color=colour)
        aim = float(re.sub(RATIO, r"\1", row["target"]))
        axes.plot((aim, aim), (number - 0.4, number + 0.4), color="black", linewidth=2)
    axes.set_xscale("log")
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [f"{row['title']} ({row['unit']})" for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    plain_numbers(axes)
    axes.set_xlabel("ratio to the official broker (black: aim)")
    return figure


# Curves


def curves(result: Result, images: Path) -> Iterator[str]:
    """Draw each curve; yield the lines of the page."""
    for name, rows in groupby(result["measures"], key=lambda row: row["curve"]):
        points = list(rows)
        save(curve(points), images / f"bench-curve-{name}.svg")
        head = points[0]
        yield f"![{head['title']}, by {head['axis']}](images/bench-curve-{name}.svg)"
        yield ""
    for name, error in result["failed"].items():
        yield f"\n{name} could not be measured: {error.splitlines()[0]}"


def curve(rows: Sequence[Row]) -> Figure:
    """Rates of all that was measured, and beside them the p99 if there is one."""
    head = rows[0]
    panels = [("per_second", head["unit"])]
    if any(row["p99_us"] is not None for row in rows):
        panels.append(("p99_us", "p99, µs"))
    figure = new_figure(4 * len(panels), 3)
    figure.suptitle(head["title"])
    places = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (key, label) in zip(places, panels, strict=True):
        for name in dict.fromkeys(row["name"] for row in rows):
            points = sorted((row["size"], row[key]) for row in rows if row["name"] == name)
            colour, marker = STYLES[name == OURS]
            axes.plot(*zip(*points, strict=True), label=name, color=colour, marker=marker)
        axes.set_xscale("log")
        if key == "p99_us":
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        plain_numbers(axes)
        axes.set_xlabel(head["axis"])
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


# Drawing


def new_figure(width: float, height: float) -> Figure:
    """A figure without a screen; matplotlib is imported only here."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def plain_numbers(axes: Axes) -> None:
    """Write 0.5 and 1,000 on axes that are logarithmic."""
    from matplotlib.ticker import FuncFormatter

    plain = FuncFormatter(lambda value, _: f"{value:,.10g}")
    axes.xaxis.set_major_formatter(plain)
    if axes.get_yscale() == "log":
        axes.yaxis.set_major_formatter(plain)


def save(figure: Figure, path: Path) -> None:
    """Write it without anything that differs from run to run."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "pocketmq", "svg.fonttype": "none"}):
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    # matplotlib ends lines of paths with blanks.
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
