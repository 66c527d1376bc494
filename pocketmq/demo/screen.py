"""The output of the demo: steps as they happen, two progress bars, tables."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pocketmq.demo.ledger import Ledger

BAR_WIDTH = 40


class Screen:
    """Lines are stamped with the seconds since the demo began."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """Show one step, above any progress bars."""
        seconds = time.monotonic() - self._began
        self._console.print(
            f"[dim]{seconds:5.1f} s[/]  {escape(text)}", highlight=False, soft_wrap=True
        )

    def title(self, text: str) -> None:
        """The beginning of a part."""
        self.line(f"\n[bold]{escape(text)}[/]", markup=True)

    @contextlib.contextmanager
    def working(self, text: str) -> Iterator[None]:
        """A line for something that takes seconds, with a spinner on a terminal."""
        self.say(text)
        with self._console.status(escape(text)):
            yield

    @contextlib.contextmanager
    def progress(self, ledger: Ledger, total: int) -> Iterator[Callable[[], None]]:
        """Bars of acknowledged and pulled messages, on a terminal; yields what updates them."""
        columns = (
            TextColumn("{task.description:>12}"),
            BarColumn(BAR_WIDTH),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console, transient=True) as progress:
            sent = progress.add_task("acknowledged", total=total)
            pulled = progress.add_task("pulled", total=total)

            def update() -> None:
                progress.update(sent, completed=ledger.acknowledged)
                progress.update(pulled, completed=ledger.pulled)

            yield update

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Numbers to the right, everything else to the left."""
        table = Table(show_edge=False, pad_edge=False, header_style="bold")
        for index, header in enumerate(headers):
            number = bool(rows) and isinstance(rows[0][index], int | float)
            table.add_column(header, justify="right" if number else "left")
        for row in rows:
            table.add_row(*(escape(_cell(value)) for value in row))
        self._console.print(table)

    def bars(self, names: Sequence[str], rows: Sequence[tuple[str, Sequence[int]]]) -> None:
        """A horizontal bar per row, one part of it for each name (two at most)."""
        parts = list(zip(("█", "▒"), ("cyan", "magenta"), strict=True))[: len(names)]
        largest = max((sum(values) for _, values in rows), default=0) or 1
        legend = (
            f"[{colour}]{mark}[/] {name}" for name, (mark, colour) in zip(names, parts, strict=True)
        )
        self.line("         " + "  ".join(legend), markup=True)
        for label, values in rows:
            bar = "".join(
                f"[{colour}]{mark * round(value * BAR_WIDTH / largest)}[/]"
                for value, (mark, colour) in zip(values, parts, strict=True)
            )
            numbers = " + ".join(f"{value:,}" for value in values)
            self.line(f"{label:>7}  {bar} {numbers}", markup=True)

    def line(self, text: str, *, markup: bool = False) -> None:
        """Show one line unchanged, whatever its width."""
        self._console.print(text if markup else escape(text), highlight=False, soft_wrap=True)


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
